//! The directories that files have their names in, each open once for all of its files.
//!
//! A name survives a power cut once its directory was synced after the name was made. A file that
//! is opened for writing gets a [`Name`] for that. The sync of one name covers all names of its
//! directory that were there when it began, so the others need none of their own: syncs of a
//! directory are numbered in their order, and a name knows the last one that had begun when the
//! file was opened.
//!
//! The kernel tells each descriptor of a failure once. So syncs of a directory take turns, and each
//! name that was there before a failure hears of it.

use std::collections::HashMap;
use std::os::fd::{AsFd as _, BorrowedFd, OwnedFd};

use rustix::fs::{self, Stat};
use rustix::io::Errno;
use sync::lock::Mutex;
use sync::{Arc, Weak};

use crate::retry::retry_interrupted;

/// Directories that are open.
#[derive(Debug, Default)]
pub(crate) struct Directories(Mutex<HashMap<Key, Weak<Directory>>>);

/// Device and inode number.
type Key = (u64, u64);

#[derive(Debug)]
struct Directory {
    fd: OwnedFd,
    /// Held by the sync that is under way.
    syncs: Mutex<Syncs>,
    /// Where it is found, unless it is its one file's alone.
    shared: Option<(Arc<Directories>, Key)>,
}

#[derive(Clone, Copy, Debug)]
struct Syncs {
    begun: u64,
    /// The last one that went well; 0 if there was none.
    done: u64,
    failures: u64,
    last_failure: Errno,
}

/// Where a file has its name.
#[derive(Debug)]
pub(crate) enum Place {
    In(OwnedFd),
    /// In a directory that can't be opened.
    Somewhere,
}

/// The name of a file, until it was synced.
#[derive(Debug)]
pub(crate) enum Name {
    In(Entry),
    /// In a directory that can't be opened: a sync of the whole file system (`syncfs`) makes the
    /// name last.
    Somewhere,
}

/// A name in a directory that is open.
#[derive(Debug)]
pub(crate) struct Entry {
    directory: Arc<Directory>,
    /// Syncs that had begun when the file was opened.
    begun: u64,
    /// Failures that the file has heard of.
    failures: u64,
}

impl Directories {
    /// A name. `share`: the file system has one inode number for each of its directories.
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
        // Not waited for: in a forked child, the thread that has the lock isn't there. The entry
        // leads nowhere, and the next opening of the directory replaces it.
        let Some(mut open) = all.0.try_lock() else { return };
        // Another one may have come in its place.
        if open.get(key).is_some_and(|one| one.strong_count() == 0) {
            open.remove(key);
        }
    }
}

impl Name {
    /// Makes the name of the file, which is open as `file`, survive a power cut.
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
            // File systems that have nothing to sync in a directory say so.
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
        // A descriptor that stands for a name alone can't be synced.
        let name = || all.entry(directory(place.path(), fs::OFlags::PATH), true);
        let (mut one, mut other) = (name(), name());
        assert_eq!(one.sync(), Err(Errno::BADF));
        let mut later = name();
        assert_eq!((other.sync(), one.directory.syncs.lock().begun), (Err(Errno::BADF), 1));
        assert_eq!((other.sync(), later.sync()), (Err(Errno::BADF), Err(Errno::BADF)));
        assert_eq!(one.directory.syncs.lock().begun, 2, "the later one hears of the second failure");
    }
}
