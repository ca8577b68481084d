//! A space, as swap knows it: by the numbers of its page words (`manager::page_owners`).

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
        let BeginLoad::Begun(loading) = region.map.begin_load(page) else { return };
        // Looked at again: only now it can't go any more.
        let is_there = loading.swapped() == Some(entry);
        match if is_there { moved() } else { None } {
            Some(slot) => loading.end_swapped(PageEntry::Slot(slot).bits()),
            None => loading.fail(Loading::ABANDONED),
        }
    }
}

impl SpaceState {
    /// The region whose record is in that slot, and the page of it that has a word, which may
    /// become another region's at any time: what is done to the page looks at that again
    /// (REGION-1).
    fn page_of_word(&self, slot: u32, word: u64) -> Option<(&Region, u64)> {
        let (region, first) = self.index.region_of_slot(slot)?;
        Some((region, first + word % REGION_PAGES))
    }
}
