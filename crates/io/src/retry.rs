//! Errors that pass by themselves, and how often a call is made again after one.
//!
//! | error | means | the call is made again |
//! |---|---|---|
//! | `EINTR` | a signal came, or a server of files (FUSE, NFS) was interrupted; nothing is wrong | until it is over. A caller that may wait for a limited time only stops waiting all the same: the call is made in another thread then |
//! | `EAGAIN`, to a read or write | the system has no room for the request just now, and doesn't say when it has | in pauses, [`AGAIN_MAX`] times, within about 20 ms |
//!
//! A file system may answer so each time for ever, so a thread that tries again leaves its CPU to
//! others now and then: it yields it, and more seldom it sleeps, because a yield alone keeps
//! threads of a lower real-time priority out.
//!
//! [`uninterrupted`] is for calls that aren't reads or writes. They have done nothing when they are
//! interrupted.

#[cfg(not(pagefold_loom))]
use rustix::io::Errno;
use sync::thread::{sleep, yield_now};
use sync::time::Duration;

use crate::IoError;

/// Times in a row that `EAGAIN` is no answer yet.
pub(crate) const AGAIN_MAX: u32 = 20;
/// The first pause after `EAGAIN`. Each is twice as long as the one before, up to a millisecond.
const PAUSE_MIN: Duration = Duration::from_micros(50);
const PAUSE_MAX: Duration = Duration::from_millis(1);
/// Interruptions in a row of which the last one is followed by a yield,
const YIELDS_AFTER: u32 = 8;
/// or by a sleep.
const SLEEPS_AFTER: u32 = 64;

/// Errors in a row that passed by themselves.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Retries {
    interruptions: u32,
    agains: u32,
    /// The pause before the next attempt; none at all is a yield.
    pause: Option<Duration>,
}

impl Retries {
    /// Whether an error is one that may pass by itself.
    pub(crate) fn passes(error: IoError) -> bool {
        error == IoError::INTERRUPTED || error == IoError::AGAIN
    }

    /// Notes that an attempt failed. Returns whether another one is to be made, after a
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

    /// An attempt was interrupted: leaves the CPU to others, if that was often so.
    #[cold]
    fn interrupted(&mut self) {
        self.again_after(IoError::INTERRUPTED);
        self.pause();
    }

    /// Leaves the CPU to others before the next attempt, if the last one failed.
    pub(crate) fn pause(&self) {
        match self.pause {
            None => {}
            Some(Duration::ZERO) => yield_now(),
            Some(pause) => sleep(pause),
        }
    }
}

/// Makes a call until it isn't interrupted: any call to a backend or a file but a read or a write,
/// which [`read_full`](crate::read_full()) and [`write_full`](crate::write_full()) make again
/// themselves.
///
/// # Errors
/// The call's, other than `EINTR`.
pub fn uninterrupted<T>(call: impl FnMut() -> Result<T, IoError>) -> Result<T, IoError> {
    until_done(IoError::INTERRUPTED, call)
}

/// The same for a system call.
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
