//! A simulated disk with one sector that can't be written.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError, SimulatedDisk};
use sync::atomic::{AtomicBool, Ordering};
use sync::{Arc, SharedBytes};

#[derive(Clone)]
pub(crate) struct BadSector {
    disk: SimulatedDisk,
    /// Offset of one of its bytes.
    at: u64,
    bad: Arc<AtomicBool>,
}

impl BadSector {
    pub(crate) fn new(disk: &SimulatedDisk, at: u64) -> Self {
        Self { disk: disk.clone(), at, bad: Arc::new(AtomicBool::new(true)) }
    }

    pub(crate) fn mend(&self) {
        self.bad.store(false, Ordering::SeqCst);
    }

    pub(crate) fn spoil(&self) {
        self.bad.store(true, Ordering::SeqCst);
    }
}

impl Backend for BadSector {
    fn name(&self) -> &'static str {
        "bad sector"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(BadFile { file: self.disk.open(path, access)?, sector: self.clone() }))
    }
}

struct BadFile {
    file: Box<dyn BackingFile>,
    sector: BadSector,
}

impl BackingFile for BadFile {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let hit = (offset..offset + len as u64).contains(&self.sector.at);
        if hit && self.sector.bad.load(Ordering::SeqCst) {
            return Err(IoError::IO);
        }
        self.file.write(offset, from, len)
    }

    fn sync(&self) -> Result<(), IoError> {
        self.file.sync()
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.file.set_len(len)
    }
}
