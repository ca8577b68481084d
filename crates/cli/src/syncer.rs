//! The thread that syncs the file periodically, for `--sync-every`.

use std::time::Duration;

use sync::Arc;
use sync::thread::JoinHandle;
use sync::time::Instant;

use crate::shared::Shared;
use crate::tally::Measured;

/// What the thread returns: the latencies of its syncs, and the sync error that ended the run, if
/// there was one.
pub(crate) type Synced = (Measured, Option<pagefold::Error>);

/// Starts the thread, which ends with the threads of the run.
///
/// # Errors
/// Errors of the system.
pub(crate) fn start(
    every: Duration,
    files: &Arc<Vec<crate::subject::Subject>>,
    shared: &Arc<Shared>,
) -> std::io::Result<JoinHandle<Synced>> {
    let (files, shared) = (Arc::clone(files), Arc::clone(shared));
    sync::thread::spawn("replay-sync", move || {
        let mut syncs = Measured::new();
        let Some(file) = files.first() else { return (syncs, None) };
        let start = Instant::now();
        let mut due = every;
        while !shared.stopping() && shared.wait(due.saturating_sub(start.elapsed())) {
            let before = start.elapsed();
            if before < due {
                continue;
            }
            // All groups have the same file, so one handle's sync covers all of them.
            if let Err(error) = file.sync() {
                shared.stop();
                return (syncs, Some(error));
            }
            syncs.record(0, start.elapsed().saturating_sub(before));
            // After a sync that takes longer than the interval, only one sync is due.
            due = (due + every).max(start.elapsed());
        }
        (syncs, None)
    })
}
