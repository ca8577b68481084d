//! A simulated disk, and somebody who looks on: told of every call before it is made, and free to refuse it.

use std::path::Path;
use sync::Arc;

use pagefold::io::{Access, Backend, BackingFile, Call, Identity, IoError, SimulatedDisk};
use sync::SharedBytes;

type Look = dyn Fn(Call) -> Result<(), IoError> + Send + Sync;

#[derive(Clone)]
pub(crate) struct Watched {
    disk: SimulatedDisk,
    look: Arc<Look>,
}

impl Watched {
    pub(crate) fn new(
        disk: &SimulatedDisk,
        look: impl Fn(Call) -> Result<(), IoError> + Send + Sync + 'static,
    ) -> Self {
        Self { disk: disk.clone(), look: Arc::new(look) }
    }
}

impl Backend for Watched {
    fn name(&self) -> &'static str {
        "watched"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        (self.look)(Call::Open)?;
        Ok(Box::new(WatchedFile { file: self.disk.open(path, access)?, look: Arc::clone(&self.look) }))
    }
}

struct WatchedFile {
    file: Box<dyn BackingFile>,
    look: Arc<Look>,
}

impl BackingFile for WatchedFile {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        (self.look)(Call::Len)?;
        self.file.len()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        (self.look)(Call::Read)?;
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        (self.look)(Call::Write)?;
        self.file.write(offset, from, len)
    }

    fn sync(&self) -> Result<(), IoError> {
        (self.look)(Call::Sync)?;
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        (self.look)(Call::SetLen)?;
        self.file.set_len(len)
    }
}
