//! All open files: one state for each, however often it is open.
//!
//! A file is found by its [`Identity`]. On some file systems several files have one; these are told
//! apart by what else they have ([`Fingerprint`](crate::io::Fingerprint)), without the table's
//! lock, since that asks the system. So a file is added only once all that have its identity have
//! been compared with it, and none has come meanwhile.

use std::collections::HashMap;
use std::collections::hash_map::Entry;
use std::path::Path;

use smp_list::TwoModeLock;
use sync::lock::Mutex;
use sync::{Arc, Weak};

use crate::error::Error;
use crate::file::state::FileState;
use crate::io::{Access, BackingFile, Identity, is_same_file, uninterrupted};
use crate::manager::Manager;
use crate::slab::Slab;
use crate::stats::Counters;

/// The open files, by identity, and their counters by the number that frames carry.
///
/// A file takes itself out of both when it goes. So no call looks at other files than its own, but
/// for those that are to do something with all of them.
pub(crate) struct FileTable {
    open: Mutex<HashMap<Identity, Namesakes>>,
    /// Shared mode is for looking at it: that happens whenever pages are evicted.
    counters: TwoModeLock<Slab<Arc<Counters>>>,
}

/// Open files of one identity: as a rule one.
struct Namesakes {
    first: Weak<FileState>,
    others: Vec<Weak<FileState>>,
}

impl Namesakes {
    fn all(&self) -> impl Iterator<Item = &Weak<FileState>> {
        std::iter::once(&self.first).chain(&self.others)
    }

    /// Takes a file out, and those that are gone. Returns whether none is left.
    fn remove(&mut self, file: *const FileState) -> bool {
        let stays = |state: &Weak<FileState>| state.strong_count() > 0 && !std::ptr::eq(state.as_ptr(), file);
        self.others.retain(stays);
        if !stays(&self.first) {
            match self.others.pop() {
                Some(other) => self.first = other,
                None => return true,
            }
        }
        false
    }
}

impl Default for FileTable {
    fn default() -> Self {
        Self { open: Mutex::default(), counters: TwoModeLock::new(Slab::default()) }
    }
}

impl FileTable {
    /// Counts something for the file with this number, if it is still open.
    pub(crate) fn count(&self, owner: u32, what: impl FnOnce(&Counters)) {
        if let Some(counters) = self.counters.shared().get(owner) {
            what(counters);
        }
    }

    /// Gives a file a number.
    pub(crate) fn enrol(&self, counters: &Arc<Counters>) -> u32 {
        self.counters.exclusive().insert(Arc::clone(counters))
    }

    /// Takes a file that is going out of the table.
    pub(crate) fn remove(&self, file: &FileState) {
        drop(self.counters.exclusive().remove(file.owner));
        let identity = file.backing.identity();
        let mut open = self.open.lock();
        // The file may be open again by now, with a state of its own.
        if open.get_mut(&identity).is_some_and(|namesakes| namesakes.remove(file)) {
            open.remove(&identity);
        }
    }

    /// The open files of this identity.
    fn namesakes(&self, identity: Identity) -> Vec<Arc<FileState>> {
        let open = self.open.lock();
        open.get(&identity).into_iter().flat_map(Namesakes::all).filter_map(Weak::upgrade).collect()
    }

    /// Adds a file, unless there is one of its identity by now that isn't among `compared`.
    fn add(&self, file: &Arc<FileState>, compared: &[Arc<FileState>]) -> bool {
        let added = Arc::downgrade(file);
        let is_compared =
            |state: &Weak<FileState>| compared.iter().any(|it| std::ptr::eq(state.as_ptr(), &raw const **it));
        match self.open.lock().entry(file.backing.identity()) {
            Entry::Vacant(place) => _ = place.insert(Namesakes { first: added, others: Vec::new() }),
            Entry::Occupied(mut place) => {
                let namesakes = place.get_mut();
                if namesakes.all().any(|state| state.strong_count() > 0 && !is_compared(state)) {
                    return false;
                }
                namesakes.others.push(added);
            }
        }
        true
    }

    /// All open files.
    pub(crate) fn all(&self) -> Vec<Arc<FileState>> {
        self.open.lock().values().flat_map(Namesakes::all).filter_map(Weak::upgrade).collect()
    }
}

impl Manager {
    /// Opens a file, or finds it open already, under whatever name.
    pub(crate) fn open(self: &Arc<Self>, path: &Path, access: Access) -> Result<Arc<FileState>, Error> {
        let failed = |error| Error::OpenFailed { path: path.to_owned(), error };
        let backing = Arc::from(uninterrupted(|| self.backend.open(path, access)).map_err(failed)?);
        let file = self.find_or_add(path, access, &backing)?;
        if access.writes() {
            self.start_flusher()?;
            file.settle_on(|| self.devices.get(file.backing.identity().device));
            file.become_writable(backing);
        }
        Ok(file)
    }

    fn find_or_add(
        self: &Arc<Self>,
        path: &Path,
        access: Access,
        backing: &Arc<dyn BackingFile>,
    ) -> Result<Arc<FileState>, Error> {
        let mut made: Option<Arc<FileState>> = None;
        loop {
            let namesakes = self.files.namesakes(backing.identity());
            if let Some(file) = namesakes.iter().find(|file| is_same_file(&*file.backing, &**backing)) {
                // Another process may have changed its length. One that can't be taken over now is
                // by a later call.
                let _ = file.try_refresh_len();
                return Ok(Arc::clone(file));
            }
            let file = match made.take() {
                Some(file) => file,
                None => self.new_state(path, access, backing)?,
            };
            if self.files.add(&file, &namesakes) {
                return Ok(file);
            }
            made = Some(file);
        }
    }

    /// A state for a file. Made without the table's lock, since it may have to make room for
    /// itself.
    fn new_state(
        self: &Arc<Self>,
        path: &Path,
        access: Access,
        backing: &Arc<dyn BackingFile>,
    ) -> Result<Arc<FileState>, Error> {
        let len =
            uninterrupted(|| backing.len()).map_err(|error| Error::OpenFailed { path: path.to_owned(), error })?;
        let file = FileState::new(self, path, Arc::clone(backing), len, access)?;
        file.begin_watch();
        Ok(file)
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use crate::io::{Backend as _, IoError, SimulatedDisk};

    /// The state of a closed file, a kilobyte that was charged to no budget, stayed until another
    /// file was opened.
    #[test]
    fn a_closed_file_leaves_nothing_behind() {
        let disk = SimulatedDisk::default();
        (0..8).for_each(|file| disk.add_generated(format!("f{file}"), file, 4096));
        let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
        let group = mm.group("tenant").build().unwrap();
        let mut files: Vec<_> = (0..8).map(|file| group.open(format!("f{file}")).unwrap()).collect();
        let again = group.open("f3").unwrap();
        let table = &mm.manager().files;
        let entries = || (table.open.lock().len(), table.counters.shared().len());
        files.truncate(4);
        assert_eq!(entries(), (4, 4));
        drop(files);
        assert_eq!(entries(), (1, 1), "the file that is open twice");
        drop(again);
        assert_eq!(entries(), (0, 0));
    }

    /// The last handle was closed, its changes couldn't be written, and the lock was released all
    /// the same. The flusher, which was just coming to the file, wrote them later: over what
    /// another Pagefold had written under its lock.
    #[test]
    fn changes_that_could_still_be_written_keep_the_lock() {
        let disk = SimulatedDisk::default();
        disk.add_generated("f", 1, 4096);
        let mm = Pagefold::builder().memory("4MiB").backend(disk.clone()).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open_options().write(true).open("f").unwrap();
        file.write_at(&[1; 4096], 1 << 20).unwrap();
        let flushers = Arc::clone(&file.handle().file);
        disk.set_capacity(0);
        drop(file);
        let other = disk.open(Path::new("f"), Access::Write).unwrap();
        assert!(flushers.unclean() > 0);
        assert_eq!(other.lock(), Err(IoError::BUSY));
        drop(flushers);
        assert_eq!(other.lock(), Ok(()));
    }
}
