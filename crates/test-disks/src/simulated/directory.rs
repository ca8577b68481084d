//! The names on the simulated disk.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use io::{Access, IoError};
use sync::Arc;
use sync::lock::Mutex;
use sync::random::{Random, mix};

use super::contents::Contents;
use super::file::{File, Space};

/// The files by name, and the space that they share.
pub(crate) struct Directory {
    files: HashMap<PathBuf, Arc<File>>,
    made: u64,
    space: Arc<Mutex<Space>>,
}

impl Directory {
    /// Creates an empty directory with unlimited space.
    pub(crate) fn new() -> Self {
        let space = Space { pages: 0, pages_max: u64::MAX };
        Self { files: HashMap::new(), made: 0, space: Arc::new(Mutex::new(space)) }
    }

    /// Adds a file that counts as durable.
    pub(crate) fn add(&mut self, path: PathBuf, contents: Contents, len: u64) {
        self.insert(path, contents, len, true);
    }

    pub(crate) fn find(&self, path: &Path) -> Result<Arc<File>, IoError> {
        self.files.get(path).cloned().ok_or(IoError::NOT_FOUND)
    }

    /// Finds or creates a file, as `access` specifies.
    pub(crate) fn open(&mut self, path: &Path, access: Access) -> Result<Arc<File>, IoError> {
        if access == Access::Unnamed {
            self.made += 1;
            return Ok(Arc::new(File::new(self.made, Contents::Given(Vec::new()), 0, false, &self.space)));
        }
        match self.find(path) {
            Ok(_) if access == Access::CreateNew => Err(IoError::EXISTS),
            Err(IoError::NOT_FOUND) if access.makes() => {
                Ok(self.insert(path.to_owned(), Contents::Given(Vec::new()), 0, false))
            }
            found => found,
        }
    }

    fn insert(&mut self, path: PathBuf, contents: Contents, len: u64, named: bool) -> Arc<File> {
        self.made += 1;
        let file = Arc::new(File::new(self.made, contents, len, named, &self.space));
        self.files.insert(path, Arc::clone(&file));
        file
    }

    pub(crate) fn set_capacity(&mut self, pages: u64) {
        self.space.lock().pages_max = pages;
    }

    /// Cuts the power for each file separately, so that the order of the files doesn't matter.
    pub(crate) fn power_cut(&mut self, seed: u64) {
        self.files.retain(|_, file| file.power_cut(&mut Random::seeded(mix(seed) ^ mix(file.inode))));
    }
}
