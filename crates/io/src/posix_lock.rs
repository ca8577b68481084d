//! The advisory lock of an open file of the machine (`flock`).
//!
//! The lock is the open file's, and a forked child has that one, too, until it calls `exec` or
//! ends. So the lock is given back by a call rather than by closing the descriptor, and not by a
//! child, which would give back its parent's.

use std::os::fd::OwnedFd;

use rustix::fs::{self, FlockOperation};
use rustix::io::Errno;
use sync::atomic::{AtomicBool, Backoff, Ordering};
use sync::lock::Mutex;

use crate::retry::retry_interrupted;

/// The lock of one open file: the process that has taken it through this one, if any has.
#[derive(Debug, Default)]
pub(crate) struct FileLock(Mutex<Option<u32>>);

impl FileLock {
    /// `EBUSY` if another open file has the lock, and keeps it for two seconds: the kernel holds
    /// the locks of a process that was killed until the requests that it left have ended. Where the
    /// file system has no locks, or a sandbox forbids them, there is none, which the log says,
    /// once.
    pub(crate) fn take(&self, fd: &OwnedFd) -> Result<(), Errno> {
        let mut holder = self.0.lock();
        let mut backoff = Backoff::new();
        loop {
            match retry_interrupted(|| fs::flock(fd, FlockOperation::NonBlockingLockExclusive)) {
                Ok(()) => *holder = Some(std::process::id()),
                Err(Errno::WOULDBLOCK) => {
                    backoff.wait_or(|| Errno::BUSY)?;
                    continue;
                }
                Err(error @ (Errno::NOLCK | Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL | Errno::PERM)) => {
                    say_once(error);
                }
                Err(error) => return Err(error),
            }
            return Ok(());
        }
    }

    /// Gives the lock back, if this process has it.
    pub(crate) fn release(&self, fd: &OwnedFd) {
        let mut holder = self.0.lock();
        if *holder == Some(std::process::id()) {
            let _ = fs::flock(fd, FlockOperation::Unlock);
            *holder = None;
        }
    }
}

fn say_once(error: Errno) {
    static SAID: AtomicBool = AtomicBool::new(false);
    // Relaxed: only the log depends on it.
    if !SAID.swap(true, Ordering::Relaxed) {
        tracing::warn!(%error, "a file system has no locks, or they are forbidden: a second user of a file there \
                                isn't noticed");
    }
}
