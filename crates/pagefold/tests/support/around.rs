//! A simulated disk, with code that runs around the calls to it.

use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, Identity, IoError};
use sync::SharedBytes;
use test_disks::{Call, SimulatedDisk};

/// Code that runs around calls to a disk and its files.
pub trait Around: Clone + Send + Sync + 'static {
    /// Called before each call. If it returns an error, the call isn't made, and fails with this
    /// error.
    fn before(&self, call: Call) -> Result<(), IoError> {
        let _ = call;
        Ok(())
    }

    /// The result of `needs_stable_bytes` for all files.
    fn needs_stable_bytes(&self) -> bool {
        false
    }

    /// The result of `tells_len_at_once` for all files.
    fn tells_len_at_once(&self) -> bool {
        false
    }

    /// Called instead of the inner disk's `write`.
    fn write(
        &self,
        file: &dyn BackingFile,
        offset: u64,
        from: &[SharedBytes<'_>],
        len: usize,
    ) -> Result<usize, IoError> {
        file.write(offset, from, len)
    }

    /// Called instead of the inner disk's `sync`.
    fn sync(&self, file: &dyn BackingFile) -> Result<(), IoError> {
        file.sync()
    }
}

/// A disk, wrapped in an [`Around`].
#[derive(Clone)]
pub struct Wrapped<A> {
    disk: SimulatedDisk,
    pub around: A,
}

impl<A: Around> Wrapped<A> {
    pub fn new(disk: &SimulatedDisk, around: A) -> Self {
        Self { disk: disk.clone(), around }
    }
}

impl<A: Around> Backend for Wrapped<A> {
    fn name(&self) -> &'static str {
        "wrapped"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        self.around.before(Call::Open)?;
        Ok(Box::new(WrappedFile { file: self.disk.open(path, access)?, around: self.around.clone() }))
    }
}

struct WrappedFile<A> {
    file: Box<dyn BackingFile>,
    around: A,
}

impl<A: Around> BackingFile for WrappedFile<A> {
    fn identity(&self) -> Identity {
        self.file.identity()
    }

    fn len(&self) -> Result<u64, IoError> {
        self.around.before(Call::Len)?;
        self.file.len()
    }

    fn needs_stable_bytes(&self) -> bool {
        self.around.needs_stable_bytes()
    }

    fn tells_len_at_once(&self) -> bool {
        self.around.tells_len_at_once()
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        self.around.before(Call::Read)?;
        self.file.read(offset, into)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.around.before(Call::Write)?;
        self.around.write(&*self.file, offset, from, len)
    }

    fn sync(&self) -> Result<(), IoError> {
        self.around.before(Call::Sync)?;
        self.around.sync(&*self.file)
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.around.before(Call::SetLen)?;
        self.file.set_len(len)
    }

    fn lock(&self) -> Result<(), IoError> {
        self.file.lock()
    }

    fn unlock(&self) {
        self.file.unlock();
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        self.around.before(Call::SetLen)?;
        self.file.lengthen(len)
    }
}
