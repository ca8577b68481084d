//! All spaces, for whoever has the number of a page word and wants its page back.

use frames::{BeginLoad, Loading, PageState};
use swap::{PageEntry, SlotId};
use sync::lock::Mutex;
use sync::{Arc, Weak};

use super::SpaceState;
use super::region::{REGION_PAGES, Region};
use super::swap_in::Fault;
use crate::error::Error;

/// See the module's head.
#[derive(Default)]
pub(crate) struct SpaceTable {
    /// Whoever looks has the list as it was: it is copied only where one is added meanwhile.
    all: Mutex<Arc<Vec<Weak<SpaceState>>>>,
}

/// What became of a page that was to come back.
pub(crate) enum SwapIn {
    Back,
    /// It was unmapped, or its space is on its way out.
    Gone,
    Failed(Error),
}

impl SpaceTable {
    pub(super) fn add(&self, space: &Arc<SpaceState>) {
        let mut all = self.all.lock();
        let all = Arc::make_mut(&mut all);
        all.retain(|space| space.strong_count() > 0);
        all.push(Arc::downgrade(space));
    }

    /// Brings the page back whose word has that number, to stay without a slot for now.
    pub(crate) fn swap_in(&self, word: u64) -> SwapIn {
        let swapped_in =
            self.with_page(word, |space, region, page| match space.fault(region, page, Fault::BringBack) {
                Ok(_) => SwapIn::Back,
                Err(Error::NotMapped { .. }) => SwapIn::Gone,
                Err(error) => SwapIn::Failed(error),
            });
        swapped_in.unwrap_or(SwapIn::Gone)
    }

    /// Has the page whose word has that number, and that is in `slot`, be in the slot that `moved` says. Its word is in *loading*
    /// meanwhile; nothing happens if it isn't to be had at once.
    pub(crate) fn move_slot(&self, word: u64, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        let entry = PageEntry::Slot(slot).bits();
        self.with_page(word, |_, region, page| {
            let page = page % REGION_PAGES;
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
        });
    }

    fn with_page<R>(&self, word: u64, f: impl FnOnce(&SpaceState, &Region, u64) -> R) -> Option<R> {
        // Upgraded without the lock, as the last handle of a space may be dropped here.
        let all = Arc::clone(&self.all.lock());
        for space in all.iter().filter_map(Weak::upgrade) {
            if let Some((region, page)) = space.index.of_word(word) {
                return Some(f(&space, region, page));
            }
        }
        None
    }
}
