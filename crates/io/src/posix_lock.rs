//! The advisory lock of an open file of the machine (`flock`).
//!
//! The lock belongs to the open file description, which a forked child shares until it calls `exec`
//! or ends. So if the parent only closed its descriptor, the child would still hold the lock.
//! Therefore the process that took the lock releases it explicitly, by calling `flock`. A child
//! never makes this call, because the call would release its parent's lock.

use std::os::fd::OwnedFd;

use rustix::fs::{self, FlockOperation};
use rustix::io::Errno;
use sync::FirstTime;
use sync::atomic::Backoff;
use sync::lock::Mutex;

use crate::retry::retry_interrupted;

/// The lock of one open file: holds the id of the process that took the lock through this file, if
/// any.
#[derive(Debug, Default)]
pub(crate) struct FileLock(Mutex<Option<u32>>);

impl FileLock {
    /// Takes the lock. Fails with `EBUSY` if another open file still has the lock after two
    /// seconds. The reason for the wait: the kernel holds the locks of a killed process until the
    /// process's remaining requests have ended.
    ///
    /// If the file system has no locks, or a sandbox forbids them, this succeeds without a lock,
    /// and logs a warning once.
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

    /// Releases the lock, if this process has taken it.
    pub(crate) fn release(&self, fd: &OwnedFd) {
        let mut holder = self.0.lock();
        if *holder == Some(std::process::id()) {
            let _ = fs::flock(fd, FlockOperation::Unlock);
            *holder = None;
        }
    }
}

fn say_once(error: Errno) {
    static SAID: FirstTime = FirstTime::new();
    if SAID.is_now() {
        tracing::warn!(%error, "a file system has no locks, or they are forbidden: a second user of a file there \
                                isn't noticed");
    }
}
