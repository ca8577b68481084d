//! When what was written to a file of the machine is on its disk for good.
//!
//! The kernel tells each open file description of a failed write-back once, and takes the pages for
//! clean then. Two threads that sync through one descriptor would thus get one error and one wrong
//! `Ok`:
//!
//! ```text
//! A: write, fdatasync ──── EIO
//! B: write, fdatasync ──────── Ok, though B's bytes were among those lost
//! ```
//!
//! So syncs take turns, and one that came before another one failed fails with it, without asking
//! again.

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
    /// Held by the sync that is under way: the file's name, until that is synced.
    name: Mutex<Option<Name>>,
}

#[derive(Clone, Copy, Debug)]
struct Failures {
    count: u64,
    last: Errno,
}

impl Durability {
    /// For a file that has this name.
    pub(crate) fn new(name: Option<Name>) -> Self {
        let failures = Failures { count: 0, last: Errno::IO };
        Self { failures: Mutex::new(failures), name: Mutex::new(name) }
    }

    /// Syncs the file, always through the same descriptor. A failure is never tried again here:
    /// after one, an `Ok` would mean nothing.
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

    /// Whether the name is still to be synced.
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

    /// A turn of a thread that came when there had been so many failures.
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

    use sync::atomic::{AtomicUsize, Ordering};
    use sync::time::Duration;
    use sync::{Arc, thread};

    use super::*;
    use crate::directories::{Directories, Place};
    use crate::patience::wait_until;

    #[test]
    fn a_failure_is_everybodys_who_was_there_and_nobodys_who_came_later() {
        let durability = Durability::new(None);
        let waiting = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            let failing = || {
                durability.in_turn(|_| {
                    wait_until("four others come", || waiting.load(Ordering::SeqCst) == 4);
                    // Some time for them to stand in line.
                    thread::sleep(Duration::from_millis(20));
                    Err(Errno::IO)
                })
            };
            let first = scope.spawn(failing);
            wait_until("the first one has its turn", || durability.name.try_lock().is_none());
            let others: Vec<_> = (0..4)
                .map(|_| {
                    scope.spawn(|| {
                        let came = durability.failures_so_far();
                        waiting.fetch_add(1, Ordering::SeqCst);
                        durability.since(came, |_| Ok(()))
                    })
                })
                .collect();
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
        // A pipe can't be synced, nor can a directory that is only a name.
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
