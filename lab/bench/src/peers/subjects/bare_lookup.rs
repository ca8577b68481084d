//! What no page table can do without: an array in huge pages, and for each page a word that says
//! where in it the page is. No length, no second look, no count of hits; the pages stay where they
//! are. With `PIN` a page is kept in place while it is copied from, by a count on a line of its
//! own.

use anyhow::Result;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::Plan;
use super::array::{Array, copy_from};
use crate::peers::mapping::Backing;
use crate::peers::subject::Pages;

/// All pages of the file.
pub(super) struct BareLookup<const PIN: bool> {
    array: Array,
    places: Box<[AtomicU64]>,
    counts: Box<[Count]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Count(AtomicU32);

impl<const PIN: bool> BareLookup<PIN> {
    /// Fills the array.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let pages = plan.data.pages();
        Ok(Self {
            array: Array::new(plan, Backing::Huge)?,
            places: (0..u64::from(pages)).map(AtomicU64::new).collect(),
            counts: (0..pages).map(|_| Count::default()).collect(),
        })
    }
}

impl<const PIN: bool> Pages for BareLookup<PIN> {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        // Relaxed: nothing ever changes.
        let place = self.places[page as usize].load(Ordering::Relaxed) as u32;
        let count = &self.counts[place as usize].0;
        // Acquire and Release as a pin needs them, though no page is evicted here.
        if PIN {
            count.fetch_add(1, Ordering::Acquire);
        }
        // SAFETY: the caller stays within the file, which the array is as long as; no thread writes
        // to it.
        unsafe { copy_from(self.array.page(place), offset, into) };
        if PIN {
            count.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }
}
