//! Makes the bytes and the name of an open file durable, by one sync at a time.
//!
//! The kernel reports a failed writeback once per open file description, and then treats the pages
//! as clean. So without serialization, if two threads sync through one descriptor, one would get
//! the error and the other a wrong `Ok`:
//!
//! ```text
//! A: write, fdatasync ──── EIO
//! B: write, fdatasync ──────── Ok, though B's bytes were among those lost
//! ```
//!
//! So syncs are serialized. If a sync fails, the syncs that were waiting meanwhile fail with the
//! same error, without calling the kernel.

use std::os::fd::BorrowedFd;

use rustix::fs;
use rustix::io::Errno;
use sync::lock::Mutex;

use crate::directories::Name;
use crate::retry::retry_interrupted;

/// The syncs of one open file.
#[derive(Debug)]
pub(crate) struct Durability {
    failures: Mutex<Failures>,
    /// Locked by the sync in progress. Holds the file's name until the name is synced.
    name: Mutex<Option<Name>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u64,
    last: Errno,
}

impl Durability {
    /// Creates the state for a file with this name.
    pub(crate) fn new(name: Option<Name>) -> Self {
        let failures = Failures { count: 0, last: Errno::IO };
        Self { failures: Mutex::new(failures), name: Mutex::new(name) }
    }

    /// Syncs the file, always through the same descriptor. Never retries after a failure: the
    /// kernel then treats the lost pages as clean, so an `Ok` of the retry would mean nothing.
    pub(crate) fn sync(&self, fd: BorrowedFd<'_>) -> Result<(), Errno> {
        self.in_turn(|unsynced| match unsynced {
            None => retry_interrupted(|| fs::fdatasync(fd)),
            Some(name) => {
                retry_interrupted(|| fs::fsync(fd))?;
                name.sync(fd)?;
                *unsynced = None;
                Ok(())
            }
        })
    }

    /// Returns whether the name isn't synced yet.
    #[cfg(test)]
    pub(crate) fn has_name(&self) -> bool {
        self.name.lock().is_some()
    }

    fn in_turn(&self, sync: impl FnOnce(&mut Option<Name>) -> Result<(), Errno>) -> Result<(), Errno> {
        self.since(self.failures_so_far(), sync)
    }

    fn failures_so_far(&self) -> u64 {
        self.failures.lock().count
    }

    /// Runs `sync` under the lock, unless a sync has failed since the caller saw `came` failures.
    fn since(&self, came: u64, sync: impl FnOnce(&mut Option<Name>) -> Result<(), Errno>) -> Result<(), Errno> {
        let mut name = self.name.lock();
        let failures = *self.failures.lock();
        if failures.count != came {
            return Err(failures.last);
        }
        sync(&mut name).inspect_err(|&last| {
            let mut failures = self.failures.lock();
            *failures = Failures { count: failures.count + 1, last };
        })
    }
}

#[cfg(test)]
mod tests {
    use std::os::fd::AsFd as _;

    use sync::Arc;
    use sync::asleep::Sleeper;
    use sync::atomic::{AtomicUsize, Ordering};

    use super::*;
    use crate::directories::{Directories, Place};
    use crate::patience::wait_until;

    #[test]
    fn a_failure_is_everybodys_who_was_there_and_nobodys_who_came_later() {
        let durability = Durability::new(None);
        let (waiting, others) = (AtomicUsize::new(0), <[Sleeper; 4]>::default());
        std::thread::scope(|scope| {
            let failing = || {
                durability.in_turn(|_| {
                    wait_until("four others come", || waiting.load(Ordering::SeqCst) == 4);
                    others.iter().for_each(Sleeper::await_sleep); // They wait for their turns.
                    Err(Errno::IO)
                })
            };
            let first = scope.spawn(failing);
            wait_until("the first one has its turn", || durability.name.try_lock().is_none());
            let comes = || {
                let came = durability.failures_so_far();
                waiting.fetch_add(1, Ordering::SeqCst);
                durability.since(came, |_| Ok(()))
            };
            let others: Vec<_> = others.iter().map(|other| scope.spawn(move || other.run(comes))).collect();
            assert_eq!(first.join().unwrap(), Err(Errno::IO));
            for other in others {
                assert_eq!(other.join().unwrap(), Err(Errno::IO));
            }
        });
        assert_eq!(durability.in_turn(|_| Ok(())), Ok(()));
    }

    #[test]
    fn a_directory_is_synced_once_and_again_after_a_failure() {
        let dir = tempfile::tempdir().unwrap();
        let file = std::fs::File::create(dir.path().join("file")).unwrap();
        // Neither a pipe nor an `O_PATH` descriptor of a directory can be synced.
        let (pipe, _other) = std::io::pipe().unwrap();
        let durability =
            |directory| Durability::new(Some(Arc::<Directories>::default().name(Place::In(directory), true)));
        let of_directory = durability(std::fs::File::open(dir.path()).unwrap().into());
        assert_eq!(of_directory.sync(pipe.as_fd()), Err(Errno::INVAL));
        assert!(of_directory.has_name());
        assert_eq!(of_directory.sync(file.as_fd()), Ok(()));
        assert!(!of_directory.has_name());
        assert_eq!(of_directory.sync(file.as_fd()), Ok(()));
        let of_name_only = durability(fs::openat(fs::CWD, dir.path(), fs::OFlags::PATH, fs::Mode::empty()).unwrap());
        assert_eq!(of_name_only.sync(file.as_fd()), Err(Errno::BADF));
        assert!(of_name_only.has_name());
    }
}
