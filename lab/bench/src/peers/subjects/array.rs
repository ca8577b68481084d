//! The floor: an array in memory, without any lookup, eviction or concurrency.

use std::ptr;

use anyhow::Result;

use super::Plan;
use crate::peers::mapping::{Backing, Mapping};
use crate::peers::source::Source;
use crate::peers::subject::Pages;

/// All pages of the file, copied into one array. Afterwards no thread writes to it.
pub(super) struct Array {
    memory: Mapping,
}

impl Array {
    /// Fills, and thereby touches, the array.
    pub(super) fn new(plan: &Plan<'_>, backing: Backing) -> Result<Self> {
        let source = Source::new(plan.data, None)?;
        let memory = Mapping::anonymous(plan.data.pages(), backing)?;
        for page in 0..plan.data.pages() {
            // SAFETY: the page is inside of the mapping, and no other code knows the mapping yet.
            unsafe { source.load_raw(page, memory.page(page))? };
        }
        Ok(Self { memory })
    }

    /// Where a page starts.
    #[inline(always)]
    pub(super) fn page(&self, page: u32) -> *const u8 {
        self.memory.page(page)
    }
}

impl Pages for Array {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        // SAFETY: the caller stays within the file, which is as long as the array; no thread writes
        // to the array.
        unsafe { copy_from(self.page(page), offset, into) };
        Ok(())
    }
}

/// Copies from `offset` in the page at `page` on.
///
/// # Safety
/// `page` must point to a readable page that no thread writes to; the range must be within it.
#[inline(always)]
pub(super) unsafe fn copy_from(page: *const u8, offset: usize, into: &mut [u8]) {
    // SAFETY: the caller's; `into` is exclusive, so it can't overlap.
    unsafe { ptr::copy_nonoverlapping(page.add(offset), into.as_mut_ptr(), into.len()) };
}
