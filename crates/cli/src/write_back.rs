//! The sync at the end of a run that writes, and its progress.

use std::time::Duration;

use anyhow::Context;
use pagefold::{Pagefold, Stats};
use sync::Arc;
use sync::thread::JoinHandle;
use sync::time::Instant;

use crate::failure::Failure;
use crate::live;
use crate::shared::{Ended, Shared};
use crate::signals;
use crate::subject::Subject;
use crate::syncer::Synced;
use crate::tally::Measured;

/// How often the progress is checked.
const TICK: Duration = Duration::from_millis(100);

/// The result of the sync.
#[derive(Debug)]
pub(crate) struct WrittenBack {
    /// Bytes that weren't clean before the sync.
    pub(crate) unclean_bytes: u64,
    /// Bytes that still aren't clean after it, for example because it failed.
    pub(crate) left_bytes: u64,
    pub(crate) time: Duration,
    /// The syncs of `--sync-every`.
    pub(crate) periodic: Measured,
    pub(crate) error: Option<pagefold::Error>,
}

/// Bytes that were written into memory, and aren't in the file yet.
pub(crate) fn unclean_bytes(stats: &Stats) -> u64 {
    stats.files.iter().map(|file| file.unclean_bytes).sum()
}

/// Waits for the thread of `--sync-every`, which may still be in its last sync. Then syncs the file
/// through each of its handles, so that each handle reports its pending error.
///
/// # Errors
/// The system's error if the thread that syncs can't be started.
pub(crate) fn run(
    pagefold: &Pagefold,
    files: &Arc<Vec<Subject>>,
    syncer: Option<JoinHandle<Synced>>,
    quiet: bool,
) -> Result<WrittenBack, Failure> {
    let out = || pagefold.stats().files.iter().map(|file| file.bytes_out).sum::<u64>();
    let (unclean_bytes_before, out_before, start) = (unclean_bytes(&pagefold.stats()), out(), Instant::now());
    signals::set_unwritten(unclean_bytes_before);
    let bar = live::bytes_bar(quiet, unclean_bytes_before.max(1), "writing back");
    let shared = Arc::new(Shared::new(1));
    let body = {
        let (files, ended) = (Arc::clone(files), Ended(Arc::clone(&shared)));
        move || {
            let _ended = ended;
            let (periodic, error) = syncer.map_or_else(|| Ok((Measured::new(), None)), JoinHandle::join)?;
            // `fold` syncs through each handle, and keeps the last error. `next_back` would stop at
            // the first error that it meets.
            let errors = files.iter().filter_map(|file| file.sync().err());
            let last = errors.fold(None, |_, error| Some(error));
            std::thread::Result::Ok((periodic, error.or(last)))
        }
    };
    let thread = sync::thread::spawn("replay-end", body).context("can't start the thread that writes back")?;
    while shared.wait(TICK) {
        bar.set_position(out().saturating_sub(out_before));
        signals::set_unwritten(unclean_bytes(&pagefold.stats()));
    }
    bar.finish_and_clear();
    let panicked = |_| anyhow::anyhow!("a thread panicked: this is a bug in pagefold");
    let (periodic, error) = thread.join().map_err(panicked)?.map_err(panicked)?;
    let left_bytes = unclean_bytes(&pagefold.stats());
    signals::set_unwritten(left_bytes);
    Ok(WrittenBack { unclean_bytes: unclean_bytes_before, left_bytes, time: start.elapsed(), periodic, error })
}
