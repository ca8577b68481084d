//! The minimum that every cache of whole pages must do. For a page in memory, this is a copy out of
//! it; for another page, a `pread` and a copy into memory. There is no lookup, no choice of a
//! victim, no list, no accounting, and no sharing between threads.

use std::slice;

use anyhow::Result;
use sync::SharedBytes;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Plan;
use super::array::copy_from;
use crate::peers::contents::PAGE;
use crate::peers::mapping::{Backing, Mapping};
use crate::peers::source::Source;
use crate::peers::subject::{Misses, Pages};

/// One page in `step` stays in memory. When another page is read, its bytes are also copied to
/// memory that is never read, past the CPU's caches.
pub(super) struct BareCopies {
    source: Source,
    resident: Mapping,
    kept: Mapping,
    budget_pages: u32,
    /// One page in `step` is in memory.
    step: u32,
    /// Pages kept so far.
    next: AtomicU32,
}

/// Spreads the frames that are written one after the other.
const SCATTER: u32 = 0x9E37_79B1;

impl BareCopies {
    /// Over the plan's first file, with twice the plan's budget.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let budget_pages = plan.budget_pages.min(plan.data.pages());
        let step = plan.data.pages().div_ceil(budget_pages);
        let source = Source::new(plan.data, None)?;
        let map = || Mapping::anonymous(budget_pages, Backing::Huge);
        let (resident, kept) = (map()?, map()?);
        for page in (0..plan.data.pages()).step_by(step as usize) {
            // SAFETY: the page is inside of the mapping, and no other code knows the mapping yet.
            unsafe { source.load_raw(page, resident.page(page / step))? };
        }
        for page in 0..budget_pages {
            // SAFETY: as above.
            unsafe { kept.page(page).write(1) };
        }
        Ok(Self { source, resident, kept, budget_pages, step, next: AtomicU32::new(0) })
    }

    fn keep(&self, bytes: &[u8]) {
        // Relaxed: a number.
        let frame = self.next.fetch_add(1, Ordering::Relaxed).wrapping_mul(SCATTER) % self.budget_pages;
        // SAFETY: a page of the mapping; all code accesses it only as here.
        let words = unsafe { slice::from_raw_parts(self.kept.page(frame).cast::<AtomicU64>(), PAGE / 8) };
        SharedBytes::new(words).stream_from(bytes);
    }
}

impl Pages for BareCopies {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        if page.is_multiple_of(self.step) {
            // SAFETY: the caller stays within the file, and this is one of its pages; no thread
            // writes to the mapping.
            unsafe { copy_from(self.resident.page(page / self.step), offset, into) };
            return Ok(());
        }
        match into.as_mut_array() {
            Some(whole) => {
                self.source.load(page, whole)?;
                self.keep(whole);
                Ok(())
            }
            None => self.source.read(page, offset, into),
        }
    }

    fn misses(&self) -> Misses {
        self.source.misses()
    }
}
