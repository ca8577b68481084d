//! The minimum that every page table must do: an array in huge pages, and for each page a word that
//! says where in the array the page is. There is no check of the file's length, no second load of
//! the word, and no count of hits; pages are never moved. With `PIN`, a count on a cache line of
//! its own keeps the page in place during the copy.

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
        // Acquire and Release, as a pin would need them if pages were evicted.
        if PIN {
            count.fetch_add(1, Ordering::Acquire);
        }
        // SAFETY: the caller stays within the file, which is as long as the array; no thread writes
        // to the array.
        unsafe { copy_from(self.array.page(place), offset, into) };
        if PIN {
            count.fetch_sub(1, Ordering::Release);
        }
        Ok(())
    }
}
