//! The file is mapped, and all of it is resident: the kernel's page cache, with its page tables
//! ready.

use anyhow::Result;

use super::Plan;
use super::array::copy_from;
use crate::peers::mapping::Mapping;
use crate::peers::subject::Pages;

/// A shared mapping of the file, which no thread writes to.
pub(super) struct Mmap {
    memory: Mapping,
}

impl Mmap {
    /// Maps the file, every page at once.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        Ok(Self { memory: Mapping::of_file(plan.data.file(), plan.data.pages())? })
    }
}

impl Pages for Mmap {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        // SAFETY: the caller stays within the file, all of which is mapped; the file doesn't change
        // in a run.
        unsafe { copy_from(self.memory.page(page), offset, into) };
        Ok(())
    }
}
