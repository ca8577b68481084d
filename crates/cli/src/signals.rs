//! Ctrl-C, and the other requests to end: the first one stops the work in good order, the second
//! one at once. If the first takes longer than a second, the command says what it waits for. Where
//! nothing would be lost, the first one ends it at once, too: while it waits for input, which may
//! never come, or for the system to touch memory, and while it writes its last results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;

use crate::failure::{EXIT_SIGNAL, Failure};
use crate::units;

/// How long the command may take to end before it says why.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// The first signal that asked us to end; 0 while none has.
static RECEIVED: AtomicU32 = AtomicU32::new(0);

/// Bytes that were written to a file which doesn't have them yet, a moment ago.
static UNWRITTEN: AtomicU64 = AtomicU64::new(0);

/// A signal may end the process at once: nothing would be lost.
static ENDS_AT_ONCE: AtomicBool = AtomicBool::new(false);

/// There are results of runs that aren't written yet.
static HAS_RESULTS: AtomicBool = AtomicBool::new(false);

/// What has to be deleted even if the process ends at once.
static TEMPORARY: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Listens from now on, in a thread of its own.
///
/// # Errors
/// The system's, if it refuses the handlers or the thread.
pub(crate) fn listen() -> Result<(), Failure> {
    let mut wanted = vec![SIGINT, SIGTERM];
    if !ignored(SIGHUP) {
        wanted.push(SIGHUP);
    }
    // A file that would become larger than this process may make one is an error of that file, not
    // the end of the process.
    let was_too_large = std::sync::Arc::default();
    signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), was_too_large)
        .context("can't have too large files reported as errors")?;
    let mut signals = Signals::new(wanted).context("can't listen for Ctrl-C")?;
    let body = move || {
        for signal in signals.forever() {
            let signal = u32::try_from(signal).unwrap_or(0);
            // SeqCst, here and in `ending_at_once`: either this sees that nothing would be lost, or
            // `while_nothing_is_lost` sees the signal.
            let is_second = RECEIVED.swap(signal, Ordering::SeqCst) != 0;
            if is_second || ENDS_AT_ONCE.load(Ordering::SeqCst) {
                end_now(signal);
            }
            // Without a thread for it, it goes without saying.
            let _ = sync::thread::spawn("signals-notice", tell_what_is_awaited);
        }
    };
    sync::thread::spawn("signals", body).context("can't start the thread that listens for Ctrl-C")?;
    Ok(())
}

/// Whether this process was started with the signal ignored, as `nohup` does with the end of a
/// terminal.
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// The first signal, if the command takes long to end after it: a device may never answer.
fn tell_what_is_awaited() {
    sync::thread::sleep(NOTICE_AFTER);
    units::warn(&awaited(UNWRITTEN.load(Ordering::Relaxed)));
}

fn awaited(unwritten: u64) -> String {
    let what = match unwritten {
        0 => "waits for what is under way, as for a device to answer".to_owned(),
        bytes => format!("writes {} to the file, which would be lost", units::bytes(bytes)),
    };
    format!("not ended yet: the command {what}; another Ctrl-C ends it at once")
}

/// The second signal: the user won't wait for threads that are stuck in I/O.
fn end_now(signal: u32) {
    // Relaxed, here and below: a figure.
    let unwritten = UNWRITTEN.load(Ordering::Relaxed);
    if unwritten > 0 {
        units::warn(&format!(
            "ended at once: about {} of what was written aren't in the file",
            units::bytes(unwritten)
        ));
    }
    if let Some(path) = TEMPORARY.lock().take() {
        // If this fails, there is no place to report it.
        let _ = std::fs::remove_file(path);
    }
    // Not `exit`, which waits for what is unwritten.
    signal_hook::low_level::exit(i32::from(EXIT_SIGNAL).saturating_add(i32::try_from(signal).unwrap_or(0)));
}

/// Does what may wait for input for as long as its writer likes, or take long. A signal ends the
/// process meanwhile.
///
/// # Errors
/// [`Failure::Interrupted`] if a signal came before; what `body` fails with.
pub(crate) fn while_nothing_is_lost<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    ending_at_once(|| check().and_then(|()| body()))
}

/// Does what may take long. A signal that comes meanwhile ends the process, unless there are
/// results that it would lose.
pub(crate) fn ending_at_once<T>(body: impl FnOnce() -> T) -> T {
    ENDS_AT_ONCE.store(!HAS_RESULTS.load(Ordering::Relaxed), Ordering::SeqCst);
    let result = body();
    ENDS_AT_ONCE.store(false, Ordering::SeqCst);
    result
}

/// Whether there are results of runs that aren't written yet.
pub(crate) fn set_has_results(yes: bool) {
    HAS_RESULTS.store(yes, Ordering::Relaxed);
}

/// So many bytes would be lost if the process ended at once.
pub(crate) fn set_unwritten(bytes: u64) {
    UNWRITTEN.store(bytes, Ordering::Relaxed);
}

/// The signal that asked us to end, if one has.
pub(crate) fn received() -> Option<i32> {
    match RECEIVED.load(Ordering::SeqCst) {
        0 => None,
        signal => i32::try_from(signal).ok(),
    }
}

/// Fails once a signal has asked us to end.
///
/// # Errors
/// [`Failure::Interrupted`].
pub(crate) fn check() -> Result<(), Failure> {
    received().map_or(Ok(()), |signal| Err(Failure::Interrupted(signal)))
}

/// Deletes `path` if the process ends at once; `None` when the file is gone.
pub(crate) fn set_temporary(path: Option<&Path>) {
    *TEMPORARY.lock() = path.map(Path::to_path_buf);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_awaited_after_a_signal_is_said() {
        assert!(awaited(0).contains("waits for what is under way, as for a device"), "{}", awaited(0));
        assert!(awaited(1 << 20).contains("writes 1 MiB"), "{}", awaited(1 << 20));
    }
}
