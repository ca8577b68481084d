//! A space as swap sees it. Swap knows pages by the numbers of their page words
//! (`manager::page_owners`).

use frames::{BeginLoad, Loading, PageState};
use swap::{PageEntry, SlotId};

use super::SpaceState;
use super::fault_types::Fault;
use super::region::{REGION_PAGES, Region};
use crate::error::Error;
use crate::manager::page_owners::{SwapIn, WordOwner};

impl WordOwner for SpaceState {
    fn swap_in(&self, slot: u32, word: u64) -> SwapIn {
        let Some((region, page)) = self.page_of_word(slot, word) else { return SwapIn::Gone };
        match self.fault(region, page, Fault::BringBack) {
            Ok(_) => SwapIn::Back,
            Err(Error::NotMapped { .. }) => SwapIn::Gone,
            Err(error) => SwapIn::Failed(error),
        }
    }

    fn move_slot(&self, slot: u32, word: u64, from: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        let Some((region, page)) = self.page_of_word(slot, word) else { return };
        let (page, entry) = (page % REGION_PAGES, PageEntry::Slot(from).bits());
        if region.map.state(page) != (PageState::Swapped { entry }) {
            return;
        }
        // If the page has left swap, and its part of the page map is gone, this makes no new part.
        let Ok(BeginLoad::Begun(loading)) = region.map.begin_load_in_part(page) else { return };
        // Checked again: from now on, no other thread can free the slot.
        let is_there = loading.swapped() == Some(entry);
        match if is_there { moved() } else { None } {
            Some(slot) => loading.end_swapped(PageEntry::Slot(slot).bits()),
            None => {
                loading.fail(Loading::ABANDONED);
                self.note_if_idle(region, page);
            }
        }
    }
}

impl SpaceState {
    /// Finds the page that a page word belongs to. `slot` is the slot of the region's record in the
    /// space's table of records, and `word` is the number of the page word. Returns the region, and
    /// the page's number in the space. The record may be reused for another region at any time, so
    /// an operation on the page checks again which region the record belongs to (REGION-1).
    fn page_of_word(&self, slot: u32, word: u64) -> Option<(&Region, u64)> {
        let (region, first) = self.index.region_of_slot(slot)?;
        Some((region, first + word % REGION_PAGES))
    }
}
