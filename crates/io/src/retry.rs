//! Transient errors, and how often a call is retried after them.
//!
//! | error | means | the call is made again |
//! |---|---|---|
//! | `EINTR` | a signal arrived, or a file server (FUSE, NFS) was interrupted; nothing is wrong | until it completes. A caller with a time limit has another thread make the call, and can stop waiting for it |
//! | `EAGAIN`, to a read or write | the system temporarily has no room for the request, and doesn't report when it has | after pauses, [`AGAIN_MAX`] times, within about 20 ms |
//!
//! A file system may return these errors forever. So a thread that retries gives up its CPU at
//! intervals. Usually the thread yields. Less often it sleeps, because a thread that only yields
//! starves threads of a lower real-time priority.
//!
//! [`uninterrupted`] is for calls other than reads and writes. If such a call is interrupted, it
//! has done nothing, so it can be repeated.

#[cfg(not(pagefold_loom))]
use rustix::io::Errno;
use sync::thread::{sleep, yield_now};
use sync::time::Duration;

use crate::IoError;

/// The number of times that a call is retried after consecutive `EAGAIN`s.
pub(crate) const AGAIN_MAX: u32 = 20;
/// The first pause after `EAGAIN`. Each further pause is twice as long as the one before, up to a
/// millisecond.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Every `YIELDS_AFTER`th consecutive interruption is followed by a yield.
const YIELDS_AFTER: u32 = 8;
/// Every `SLEEPS_AFTER`th is followed by a sleep instead.
const SLEEPS_AFTER: u32 = 64;

/// Counts consecutive transient errors.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries {
    interruptions: u32,
    agains: u32,
    /// The pause before the next attempt. `None` means no pause, zero means a yield.
    pause: Option<Duration>,
}

impl Retries {
    /// Returns whether an error is transient.
    pub(crate) fn passes(error: IoError) -> bool {
        error == IoError::INTERRUPTED || error == IoError::AGAIN
    }

    /// Counts a failed attempt. Returns whether the caller must retry, after a
    /// [`pause`](Self::pause).
    pub(crate) fn again_after(&mut self, error: IoError) -> bool {
        match error {
            IoError::INTERRUPTED => {
                self.interruptions = self.interruptions.wrapping_add(1);
                self.pause = match self.interruptions {
                    n if n.is_multiple_of(SLEEPS_AFTER) => Some(PAUSE_MIN),
                    n if n.is_multiple_of(YIELDS_AFTER) => Some(Duration::ZERO),
                    _ => None,
                };
                true
            }
            IoError::AGAIN if self.agains < AGAIN_MAX => {
                self.pause = Some((PAUSE_MIN * (1 << self.agains.min(8))).min(PAUSE_MAX));
                self.agains += 1;
                true
            }
            _ => false,
        }
    }

    /// Counts an interrupted attempt, and gives up the CPU if there were many.
    #[cold]
    fn interrupted(&mut self) {
        self.again_after(IoError::INTERRUPTED);
        self.pause();
    }

    /// Yields or sleeps before the next attempt, if the last error requires it.
    pub(crate) fn pause(&self) {
        match self.pause {
            None => {}
            Some(Duration::ZERO) => yield_now(),
            Some(pause) => sleep(pause),
        }
    }
}

/// Makes a call to a backend or a file, and repeats it for as long as it fails with `EINTR`. Reads
/// and writes don't need this function: [`read_full`](crate::read_full()) and
/// [`write_full`](crate::write_full()) repeat interrupted calls themselves.
///
/// # Errors
/// The call's, other than `EINTR`.
pub fn uninterrupted<T>(call: impl FnMut() -> Result<T, IoError>) -> Result<T, IoError> {
    until_done(IoError::INTERRUPTED, call)
}

/// Makes a system call, and retries it until it isn't interrupted.
#[cfg(not(pagefold_loom))]
#[inline]
pub(crate) fn retry_interrupted<T>(call: impl FnMut() -> Result<T, Errno>) -> Result<T, Errno> {
    until_done(Errno::INTR, call)
}

#[inline]
fn until_done<T, E: PartialEq>(interrupted: E, mut call: impl FnMut() -> Result<T, E>) -> Result<T, E> {
    let mut retries = Retries::default();
    loop {
        match call() {
            Err(error) if error == interrupted => retries.interrupted(),
            answer => return answer,
        }
    }
}
