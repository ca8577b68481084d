//! Keeps open the directories that contain the names of open files. If possible, all files of a
//! directory share one descriptor of it.
//!
//! A name survives a power cut if its directory was synced after the name was created. So a file
//! that is opened for writing gets a [`Name`], which can sync the directory.
//!
//! One sync of a directory makes durable all names that the directory had when the sync began, so
//! these names need no further sync. The syncs of a directory are numbered in order, and each
//! `Name` records the number of the latest sync that had begun when its file was opened. The name
//! is durable once a sync with a higher number has succeeded.
//!
//! The files of a directory share one descriptor of the directory, and the kernel reports a failed
//! sync only once per descriptor. So this module runs the syncs of a directory one at a time, and
//! counts their failures. Each name reports a failure once: if a sync has failed since the name was
//! created, or since the name last reported a failure, its next `sync` returns the last error.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{self, Stat};
use rustix::io::Errno;
use sync::lock::Mutex;
use sync::{Arc, Weak};

use crate::retry::retry_interrupted;

/// The open directories.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<HashMap<Key, Weak<Directory>>>);

/// Device and inode number.
type Key = (u64, u64);

#[derive(Debug)]
struct Directory {
    fd: OwnedFd,
    /// Locked by the sync in progress.
    syncs: Mutex<Syncs>,
    /// The map and key of the directory, unless it belongs to one file only.
    shared: Option<(Arc<Directories>, Key)>,
}

#[derive(Clone, Copy, Debug)]
struct Syncs {
    begun: u64,
    /// The last sync that succeeded; 0 if there was none.
    done: u64,
    failures: u64,
    last_failure: Errno,
}

/// Where a file's name is.
#[derive(Debug)]
pub(crate) enum Place {
    In(OwnedFd),
    /// In a directory that can't be opened.
    Somewhere,
}

/// A file's name that isn't synced yet.
#[derive(Debug)]
pub(crate) enum Name {
    In(Entry),
    /// In a directory that can't be opened. A sync of the whole file system (`syncfs`) makes the
    /// name durable.
    Somewhere,
}

/// A name in an open directory.
#[derive(Debug)]
pub(crate) struct Entry {
    directory: Arc<Directory>,
    /// The number of syncs that had begun when the file was opened.
    begun: u64,
    /// The number of failures that were reported for this file.
    failures: u64,
}

impl Directories {
    /// Creates a name. If `share` is true, all names in the same directory share one descriptor of
    /// it. The file system must then give each of its directories a unique inode number.
    pub(crate) fn name(self: &Arc<Self>, place: Place, share: bool) -> Name {
        match place {
            Place::In(directory) => Name::In(self.entry(directory, share)),
            Place::Somewhere => Name::Somewhere,
        }
    }

    fn entry(self: &Arc<Self>, fd: OwnedFd, share: bool) -> Entry {
        let stat = if share { fs::fstat(&fd).ok() } else { None };
        let directory = match stat {
            Some(Stat { st_dev, st_ino, .. }) => self.shared(fd, (st_dev, st_ino)),
            None => Directory::open(fd, None),
        };
        let Syncs { begun, failures, .. } = *directory.syncs.lock();
        Entry { directory, begun, failures }
    }

    fn shared(self: &Arc<Self>, fd: OwnedFd, key: Key) -> Arc<Directory> {
        let mut open = self.0.lock();
        if let Some(directory) = open.get(&key).and_then(Weak::upgrade) {
            return directory;
        }
        let directory = Directory::open(fd, Some((Arc::clone(self), key)));
        open.insert(key, Arc::downgrade(&directory));
        directory
    }
}

impl Directory {
    fn open(fd: OwnedFd, shared: Option<(Arc<Directories>, Key)>) -> Arc<Self> {
        let syncs = Syncs { begun: 0, done: 0, failures: 0, last_failure: Errno::IO };
        Arc::new(Self { fd, syncs: Mutex::new(syncs), shared })
    }
}

impl Drop for Directory {
    fn drop(&mut self) {
        let Some((all, key)) = &self.shared else { return };
        // Doesn't wait for the lock, because the wait might never end: in a forked child, the
        // thread that holds the lock may not exist. If the lock isn't free, the dangling entry
        // stays, and the next opening of the directory replaces the entry.
        let Some(mut open) = all.0.try_lock() else { return };
        // Another directory may have replaced the entry.
        if open.get(key).is_some_and(|one| one.strong_count() == 0) {
            open.remove(key);
        }
    }
}

impl Name {
    /// Makes the file's name durable. `file` is the open file.
    pub(crate) fn sync(&mut self, file: BorrowedFd<'_>) -> Result<(), Errno> {
        match self {
            Self::In(entry) => entry.sync(),
            Self::Somewhere => retry_interrupted(|| fs::syncfs(file)),
        }
    }
}

impl Entry {
    fn sync(&mut self) -> Result<(), Errno> {
        let Directory { fd, syncs, .. } = &*self.directory;
        let mut syncs = syncs.lock();
        if syncs.failures != self.failures {
            self.failures = syncs.failures;
            return Err(syncs.last_failure);
        }
        if syncs.done > self.begun {
            return Ok(());
        }
        syncs.begun += 1;
        match retry_interrupted(|| fs::fsync(fd.as_fd())) {
            // A file system that has nothing to sync in a directory reports `EINVAL`.
            Ok(()) | Err(Errno::INVAL) => {
                syncs.done = syncs.begun;
                Ok(())
            }
            Err(error) => {
                syncs.failures += 1;
                syncs.last_failure = error;
                self.failures = syncs.failures;
                Err(error)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn directory(path: &std::path::Path, flags: fs::OFlags) -> OwnedFd {
        fs::openat(fs::CWD, path, flags, fs::Mode::empty()).unwrap()
    }

    #[test]
    fn a_directory_is_open_once_and_closed_with_its_last_name() {
        let place = tempfile::tempdir().unwrap();
        let all = Arc::<Directories>::default();
        let name = |share| all.entry(directory(place.path(), fs::OFlags::RDONLY), share);
        let (one, other, own) = (name(true), name(true), name(false));
        assert!(Arc::ptr_eq(&one.directory, &other.directory) && !Arc::ptr_eq(&one.directory, &own.directory));
        drop((one, own));
        assert_eq!(all.0.lock().len(), 1);
        drop(other);
        assert!(all.0.lock().is_empty());
    }

    #[test]
    fn one_sync_covers_all_names_that_were_there_when_it_began() {
        let place = tempfile::tempdir().unwrap();
        let all = Arc::<Directories>::default();
        let name = || all.entry(directory(place.path(), fs::OFlags::RDONLY), true);
        let (mut one, mut other) = (name(), name());
        one.sync().unwrap();
        let mut later = name();
        other.sync().unwrap();
        assert_eq!(one.directory.syncs.lock().begun, 1);
        later.sync().unwrap();
        assert_eq!(one.directory.syncs.lock().begun, 2);
    }

    #[test]
    fn a_failure_is_told_to_each_name_that_was_there_once() {
        let place = tempfile::tempdir().unwrap();
        let all = Arc::<Directories>::default();
        // An `O_PATH` descriptor can't be synced.
        let name = || all.entry(directory(place.path(), fs::OFlags::PATH), true);
        let (mut one, mut other) = (name(), name());
        assert_eq!(one.sync(), Err(Errno::BADF));
        let mut later = name();
        assert_eq!((other.sync(), one.directory.syncs.lock().begun), (Err(Errno::BADF), 1));
        assert_eq!((other.sync(), later.sync()), (Err(Errno::BADF), Err(Errno::BADF)));
        assert_eq!(one.directory.syncs.lock().begun, 2, "the later one hears of the second failure");
    }
}
