//! The file mapped into memory.

use std::ptr;

use anyhow::{Context, Result};
use rustix::mm::Advice;

use super::Blocking;
use crate::peers::contents::{PAGE, Page};
use crate::peers::disk::workload::Workload;
use crate::peers::mapping::Mapping;
use crate::peers::scratch::Scratch;

/// Copies from and to shared mappings, one for each reader, and `msync`.
pub(super) struct Mmap {
    maps: Vec<Mapping>,
}

impl Mmap {
    /// Tells the kernel if the order is random. A program that knows its order would do the same.
    pub(super) fn new(file: &Scratch, workload: Workload) -> Result<Self> {
        let advice = if workload.is_random() { Advice::Random } else { Advice::Normal };
        let map = |_| {
            // The kernel's read-ahead goes by the open file.
            let file = Scratch::open(&file.path(), file.pages())?;
            Mapping::of_writable_file(file.file(), file.pages(), advice)
        };
        let maps = (0..workload.handles()).map(map).collect::<Result<_>>().context("cannot map the file")?;
        Ok(Self { maps })
    }
}

impl Blocking for Mmap {
    fn read(&self, handle: usize, first: u32, into: &mut [u8]) -> Result<()> {
        let from = self.maps[handle].page(first);
        // SAFETY: the caller stays within the file, all of which is mapped. Each page is requested
        // only once, so no thread writes to these pages meanwhile. `into` isn't part of the
        // mapping.
        unsafe { ptr::copy_nonoverlapping(from, into.as_mut_ptr(), into.len()) };
        Ok(())
    }

    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        // SAFETY: as above, and no thread reads this page meanwhile.
        unsafe { ptr::copy_nonoverlapping(bytes.as_ptr(), self.maps[0].page(page), PAGE) };
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.maps[0].sync()
    }
}
