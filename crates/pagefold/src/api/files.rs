//! A Pagefold's open files: how a file is opened, or found open already.

use std::path::Path;

use sync::Arc;

use crate::error::Error;
use crate::file::state::FileState;
use crate::file::table::FileTable;
use crate::manager::Manager;
use crate::write::flusher;
use io::{Access, BackingFile, is_same_file, uninterrupted};

/// All open files of a Pagefold.
pub(crate) struct Files {
    manager: Arc<Manager>,
    table: Arc<FileTable<FileState>>,
}

impl Files {
    /// Opens a file, or finds it if it is open already, under any name.
    pub(crate) fn open(&self, path: &Path, access: Access) -> Result<Arc<FileState>, Error> {
        let failed = |error| Error::OpenFailed { path: path.to_owned(), error };
        let backing = Arc::from(uninterrupted(|| self.manager.file_io.backend.open(path, access)).map_err(failed)?);
        let file = self.find_or_add(path, access, &backing)?;
        if access.writes() {
            flusher::start(&self.manager)?;
            file.settle_on(|| self.manager.file_io.devices.get(file.backing.identity().device));
            file.become_writable(backing);
        }
        Ok(file)
    }

    fn find_or_add(
        &self,
        path: &Path,
        access: Access,
        backing: &Arc<dyn BackingFile>,
    ) -> Result<Arc<FileState>, Error> {
        let mut made: Option<Arc<FileState>> = None;
        loop {
            let namesakes = self.table.namesakes(backing.identity());
            if let Some(file) = namesakes.iter().find(|file| is_same_file(&*file.backing, &**backing)) {
                // Another process may have changed the length. If the new length can't be adopted
                // now, a later call adopts it.
                let _ = file.try_refresh_len();
                return Ok(Arc::clone(file));
            }
            let file = match made.take() {
                Some(file) => file,
                None => self.new_state(path, access, backing)?,
            };
            if self.table.add(&file, backing.identity(), &namesakes) {
                return Ok(file);
            }
            made = Some(file);
        }
    }

    /// Creates the state of a file. The table isn't locked meanwhile, because this may have to
    /// reclaim memory.
    fn new_state(&self, path: &Path, access: Access, backing: &Arc<dyn BackingFile>) -> Result<Arc<FileState>, Error> {
        let len =
            uninterrupted(|| backing.len()).map_err(|error| Error::OpenFailed { path: path.to_owned(), error })?;
        let file = FileState::new(&self.manager, &self.table, path, Arc::clone(backing), len, access)?;
        file.begin_watch();
        Ok(file)
    }

    /// Creates an empty table.
    pub(crate) fn new(manager: &Arc<Manager>) -> Self {
        Self { manager: Arc::clone(manager), table: Arc::default() }
    }

    /// Returns all open files.
    pub(crate) fn all(&self) -> Vec<Arc<FileState>> {
        self.table.all()
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use io::{Backend as _, IoError};
    use test_disks::SimulatedDisk;

    /// Regression: the state of a closed file, a kilobyte that was charged to no budget, stayed in
    /// memory until another file was opened.
    #[test]
    fn a_closed_file_leaves_nothing_behind() {
        let disk = SimulatedDisk::default();
        (0..8).for_each(|file| disk.add_generated(format!("f{file}"), file, 4096));
        let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
        let group = mm.group("tenant").build().unwrap();
        let mut files: Vec<_> = (0..8).map(|file| group.open(format!("f{file}")).unwrap()).collect();
        let again = group.open("f3").unwrap();
        let entries = || (mm.files().table.len(), mm.manager().memory.owners.len());
        files.truncate(4);
        assert_eq!(entries(), (4, 4));
        drop(files);
        assert_eq!(entries(), (1, 1), "the file that is open twice");
        drop(again);
        assert_eq!(entries(), (0, 0));
    }

    /// Regression: the last handle was closed, its changes couldn't be written, and the lock was
    /// released nevertheless. Later the flusher wrote these changes to the file, over changes that
    /// another Pagefold had written under its own lock.
    #[test]
    fn changes_that_could_still_be_written_keep_the_lock() {
        let disk = SimulatedDisk::default();
        disk.add_generated("f", 1, 4096);
        let mm = Pagefold::builder().memory("4MiB").backend(disk.clone()).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open_options().write(true).open("f").unwrap();
        mm.manager().file_io.flusher.stop(); // However long the test takes, the page stays dirty.
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
