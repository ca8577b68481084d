//! A simulated disk that can hold back writes, and can hold back reads and then fail them.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::{Arc, SharedBytes};
use test_disks::SimulatedDisk;

use crate::hooked::Gate;

/// See the module's head.
#[derive(Clone, Default)]
pub(crate) struct GatedDisk {
    pub(crate) disk: SimulatedDisk,
    pub(crate) gate: Arc<Gate>,
    held: Arc<AtomicU64>,
    reads_fail: Arc<AtomicBool>,
}

impl GatedDisk {
    /// Returns a disk with a file of `len` zeros at `path`.
    pub(crate) fn with_file(path: &str, len: u64) -> Self {
        let disk = Self::default();
        disk.disk.add_bytes(path, vec![0; len as usize]);
        disk
    }

    /// From now on, a write waits at the gate if one of its pages ends with this word.
    pub(crate) fn hold_writes_of(&self, word: u64) {
        self.held.store(word, Ordering::SeqCst);
    }

    /// From now on reads wait at the gate, and then fail.
    pub(crate) fn fail_reads(&self) {
        self.reads_fail.store(true, Ordering::SeqCst);
    }
}

impl Backend for GatedDisk {
    fn name(&self) -> &'static str {
        "gated"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(GatedFile { file: self.disk.open(path, access)?, of: self.clone() }))
    }
}

struct GatedFile {
    file: Box<dyn BackingFile>,
    of: GatedDisk,
}

impl BackingFile for GatedFile {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.file.len()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        if self.of.reads_fail.load(Ordering::SeqCst) {
            self.of.gate.pass();
            return Err(IoError::IO);
        }
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let mut word = [0; 8];
        let ends = |page: &SharedBytes<'_>| {
            page.copy_to(page.len() - 8, &mut word);
            word != [0; 8] && u64::from_le_bytes(word) == self.of.held.load(Ordering::SeqCst)
        };
        if from.iter().any(ends) {
            self.of.gate.pass();
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
