//! The file mapped into memory and stored to.

use std::ptr;

use anyhow::Result;
use rustix::mm::Advice;

use super::Store;
use crate::peers::contents::{PAGE, Page};
use crate::peers::mapping::Mapping;
use crate::peers::scratch::Scratch;

/// Stores to a shared mapping, and `msync`.
pub(super) struct MmapStore {
    memory: Mapping,
}

impl MmapStore {
    pub(super) fn new(file: &Scratch) -> Result<Self> {
        Ok(Self { memory: Mapping::of_writable_file(file.file(), file.pages(), Advice::Random)? })
    }
}

impl Store for MmapStore {
    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        // SAFETY: the caller stays within the file, all of which is mapped, and one thread writes
        // at a time; no reference to the mapping's bytes exists. `bytes` isn't part of it.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.memory.page(page), PAGE) };
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.memory.sync()
    }
}
