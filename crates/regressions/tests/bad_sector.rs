//! A simulated disk with one sector that can't be written.

use pagefold::io::{BackingFile, IoError};
use sync::atomic::{AtomicBool, Ordering};
use sync::{Arc, SharedBytes};
use test_disks::SimulatedDisk;

use crate::support::around::{Around, Wrapped};

#[derive(Clone)]
pub(crate) struct BadSector {
    /// Offset of one of its bytes.
    at: u64,
    bad: Arc<AtomicBool>,
}

impl BadSector {
    pub(crate) fn new(disk: &SimulatedDisk, at: u64) -> Wrapped<Self> {
        Wrapped::new(disk, Self { at, bad: Arc::new(AtomicBool::new(true)) })
    }

    pub(crate) fn mend(&self) {
        self.bad.store(false, Ordering::SeqCst);
    }

    pub(crate) fn spoil(&self) {
        self.bad.store(true, Ordering::SeqCst);
    }
}

impl Around for BadSector {
    fn write(
        &self,
        file: &dyn BackingFile,
        offset: u64,
        from: &[SharedBytes<'_>],
        len: usize,
    ) -> Result<usize, IoError> {
        let hit = (offset..offset + len as u64).contains(&self.at);
        if hit && self.bad.load(Ordering::SeqCst) { Err(IoError::IO) } else { file.write(offset, from, len) }
    }
}
