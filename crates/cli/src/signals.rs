//! Handles Ctrl-C and the other signals that ask the process to end. The first signal stops the
//! run, which then ends as usual; a second signal ends the process immediately. If the command is
//! still running one second after the first signal, it prints what it is waiting for.
//!
//! In three phases, even the first signal ends the process immediately, unless the results of
//! earlier runs haven't been written yet:
//!
//! - while the command reads a trace, whose input may never come;
//! - while it touches the memory of the budget (`--pretouch`);
//! - while it writes results.

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use signal_hook::consts::{SIGHUP, SIGINT, SIGTERM};
use signal_hook::iterator::Signals;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;

use crate::failure::{EXIT_SIGNAL, Failure};
use crate::units;

/// How long the command may take to end before it prints what it waits for.
const NOTICE_AFTER: Duration = Duration::from_secs(1);

/// The first signal that asked us to end; 0 while none has.
static RECEIVED: AtomicU32 = AtomicU32::new(0);

/// Bytes that were written and aren't in the file yet, as of a moment ago.
static UNWRITTEN: AtomicU64 = AtomicU64::new(0);

/// A signal may end the process at once: nothing would be lost.
static ENDS_AT_ONCE: AtomicBool = AtomicBool::new(false);

/// There are results of runs that weren't written yet.
static HAS_RESULTS: AtomicBool = AtomicBool::new(false);

/// A file that must be deleted even if the process ends at once.
static TEMPORARY: Mutex<Option<PathBuf>> = Mutex::new(None);

/// Starts a thread that handles signals.
///
/// # Errors
/// The system refuses the handlers or the thread.
pub(crate) fn listen() -> Result<(), Failure> {
    let mut wanted = vec![SIGINT, SIGTERM];
    if !ignored(SIGHUP) {
        wanted.push(SIGHUP);
    }
    // A write beyond the process's limit for file sizes must fail with an error of that file. The
    // signal that comes with it (SIGXFSZ) must not end the process.
    let was_too_large = std::sync::Arc::default();
    signal_hook::flag::register(rustix::process::Signal::XFSZ.as_raw(), was_too_large)
        .context("can't have too large files reported as errors")?;
    let mut signals = Signals::new(wanted).context("can't listen for Ctrl-C")?;
    let body = move || {
        for signal in signals.forever() {
            let signal = u32::try_from(signal).unwrap_or(0);
            // SeqCst, here, in `ending_at_once` and in `received`: this thread stores `RECEIVED`
            // and then loads `ENDS_AT_ONCE`; the other thread stores `ENDS_AT_ONCE` and then loads
            // `RECEIVED`. So at least one of the two sees the other's store, and the signal isn't
            // missed.
            let is_second = RECEIVED.swap(signal, Ordering::SeqCst) != 0;
            if is_second || ENDS_AT_ONCE.load(Ordering::SeqCst) {
                end_now(signal);
            }
            // If the thread can't be started, the message is omitted.
            let _ = sync::thread::spawn("signals-notice", tell_what_is_awaited);
        }
    };
    sync::thread::spawn("signals", body).context("can't start the thread that listens for Ctrl-C")?;
    Ok(())
}

/// Returns whether this process was started with the signal ignored, as `nohup` does with SIGHUP.
fn ignored(signal: i32) -> bool {
    let status = std::fs::read_to_string("/proc/self/status").unwrap_or_default();
    let mask = status.lines().find_map(|line| line.strip_prefix("SigIgn:"));
    let mask = mask.and_then(|mask| u64::from_str_radix(mask.trim(), 16).ok()).unwrap_or(0);
    mask >> (signal - 1) & 1 == 1
}

/// A second after the first signal, prints what the command waits for. The wait may be endless, for
/// example if a device never answers.
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

/// Ends the process at once: on the second signal, or on the first one while nothing would be lost.
/// Doesn't wait for threads that are stuck in I/O.
fn end_now(signal: u32) {
    // Relaxed, here and below: only a figure.
    let unwritten = UNWRITTEN.load(Ordering::Relaxed);
    if unwritten > 0 {
        units::warn(&format!(
            "ended at once: about {} of what was written aren't in the file",
            units::bytes(unwritten)
        ));
    }
    if let Some(path) = TEMPORARY.lock().take() {
        // If this fails, there is no place to report the error.
        let _ = std::fs::remove_file(path);
    }
    // Not `exit`, which waits for write-back of dirty pages.
    signal_hook::low_level::exit(i32::from(EXIT_SIGNAL).saturating_add(i32::try_from(signal).unwrap_or(0)));
}

/// Calls `body`, which may wait for input indefinitely, or take long. A signal during the call ends
/// the process, as in [`ending_at_once`].
///
/// # Errors
/// [`Failure::Interrupted`] if a signal came before the call; the error of `body`.
pub(crate) fn while_nothing_is_lost<T>(body: impl FnOnce() -> Result<T, Failure>) -> Result<T, Failure> {
    ending_at_once(|| check().and_then(|()| body()))
}

/// Calls `body`, which may take long. A signal during the call ends the process, unless there are
/// results that weren't written yet.
pub(crate) fn ending_at_once<T>(body: impl FnOnce() -> T) -> T {
    ENDS_AT_ONCE.store(!HAS_RESULTS.load(Ordering::Relaxed), Ordering::SeqCst);
    let result = body();
    ENDS_AT_ONCE.store(false, Ordering::SeqCst);
    result
}

/// Records whether there are results of runs that weren't written yet.
pub(crate) fn set_has_results(yes: bool) {
    HAS_RESULTS.store(yes, Ordering::Relaxed);
}

/// Records how many bytes would be lost if the process ended at once.
pub(crate) fn set_unwritten(bytes: u64) {
    UNWRITTEN.store(bytes, Ordering::Relaxed);
}

/// Returns the first signal that asked the process to end, if there was one.
pub(crate) fn received() -> Option<i32> {
    match RECEIVED.load(Ordering::SeqCst) {
        0 => None,
        signal => i32::try_from(signal).ok(),
    }
}

/// Fails if a signal has asked the process to end.
///
/// # Errors
/// [`Failure::Interrupted`].
pub(crate) fn check() -> Result<(), Failure> {
    received().map_or(Ok(()), |signal| Err(Failure::Interrupted(signal)))
}

/// Records the file to delete if the process ends at once; `None` when the file is gone.
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
