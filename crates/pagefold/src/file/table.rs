//! All open files: one state for each, however often it is open.

use std::collections::HashMap;
use std::path::Path;

use smp_list::TwoModeLock;
use sync::lock::Mutex;
use sync::{Arc, Weak};

use crate::error::Error;
use crate::file::state::FileState;
use crate::io::{Access, BackingFile, Identity};
use crate::manager::Manager;
use crate::stats::Counters;

/// The open files, by identity, and their counters by the number that frames carry.
pub(crate) struct FileTable {
    open: Mutex<HashMap<Identity, Weak<FileState>>>,
    /// Shared mode is for looking at it: that happens whenever pages are evicted.
    counters: TwoModeLock<Vec<Option<Arc<Counters>>>>,
}

impl Default for FileTable {
    fn default() -> Self {
        Self { open: Mutex::default(), counters: TwoModeLock::new(Vec::new()) }
    }
}

impl FileTable {
    /// Counts something for the file with this number, if it is still open.
    pub(crate) fn count(&self, owner: u32, what: impl FnOnce(&Counters)) {
        if let Some(Some(counters)) = self.counters.shared().get(owner as usize) {
            what(counters);
        }
    }

    /// Gives a file a number.
    pub(crate) fn enrol(&self, counters: &Arc<Counters>) -> u32 {
        let mut slots = self.counters.exclusive();
        let free = slots.iter().position(Option::is_none).unwrap_or_else(|| {
            slots.push(None);
            slots.len() - 1
        });
        slots[free] = Some(Arc::clone(counters));
        free as u32
    }

    /// Takes a number back.
    pub(crate) fn strike(&self, owner: u32) {
        if let Some(slot) = self.counters.exclusive().get_mut(owner as usize) {
            *slot = None;
        }
    }

    /// All open files.
    pub(crate) fn all(&self) -> Vec<Arc<FileState>> {
        let mut files = Vec::new();
        self.collect(&mut files);
        files
    }

    /// Adds all open files to a list, which may have room for them already.
    pub(crate) fn collect(&self, into: &mut Vec<Arc<FileState>>) {
        into.extend(self.open.lock().values().filter_map(Weak::upgrade));
    }
}

impl Manager {
    /// Opens a file, or finds it open already, under whatever name.
    pub(crate) fn open(self: &Arc<Self>, path: &Path, access: Access) -> Result<Arc<FileState>, Error> {
        let failed = |error| Error::OpenFailed { path: path.to_owned(), error };
        let backing = Arc::from(self.backend.open(path, access).map_err(failed)?);
        let file = self.find_or_add(path, access, &backing)?;
        if access.writes() {
            self.start_flusher()?;
            file.become_writable(backing, access.makes()).map_err(failed)?;
        }
        Ok(file)
    }

    fn find_or_add(
        self: &Arc<Self>,
        path: &Path,
        access: Access,
        backing: &Arc<dyn BackingFile>,
    ) -> Result<Arc<FileState>, Error> {
        let identity = backing.identity();
        if let Some(file) = self.files.open.lock().get(&identity).and_then(Weak::upgrade) {
            return Ok(file);
        }
        let len = backing.len().map_err(|error| Error::OpenFailed { path: path.to_owned(), error })?;
        // Made without the table's lock, since it may have to make room for itself.
        let file = FileState::new(self, path, Arc::clone(backing), len, access)?;
        let mut open = self.files.open.lock();
        if let Some(faster) = open.get(&identity).and_then(Weak::upgrade) {
            drop(open); // Before our own state goes, which takes locks.
            return Ok(faster);
        }
        open.retain(|_, file| file.strong_count() > 0);
        open.insert(identity, Arc::downgrade(&file));
        Ok(file)
    }
}
