//! Frees pages: how they leave memory when they are unmapped or discarded.

use arrayvec::ArrayVec;
use frames::{Detach, OwnedFrame};
use swap::{PageEntry, SlotId};
use sync::atomic::Backoff;

use super::SpaceState;
use super::address::Pages;
use super::region::Region;
use crate::lru::batch::BATCH_MAX;
use crate::lru::rank::Rank;

/// Frames and slots of pages that were taken out of memory, to be freed together.
#[derive(Default)]
struct Gone<'a> {
    unlisted: ArrayVec<OwnedFrame<'a>, BATCH_MAX>,
    listed: ArrayVec<OwnedFrame<'a>, BATCH_MAX>,
    slots: ArrayVec<SlotId, BATCH_MAX>,
}

impl Gone<'_> {
    fn is_full(&self) -> bool {
        self.unlisted.is_full() || self.listed.is_full() || self.slots.is_full()
    }

    /// Adds the slot that a page kept; 0 means none.
    fn add_slot(&mut self, slot: u64) {
        self.slots.extend(SlotId::from_bits(slot).filter(|_| slot != 0));
    }
}

impl SpaceState {
    pub(super) fn give_back<'a>(&'a self, frames: impl IntoIterator<Item = OwnedFrame<'a>>) {
        let count = self.manager().memory.release_anonymous(self.group.state(), frames);
        self.manager().spaces.warm.freed(count as u64);
    }

    /// Takes all of `pages` out of memory, and waits for each thread that holds one of them (S1).
    /// The caller must have vacated the pages. So a thread that gets hold of a page from now on
    /// finds the page's entry changed, and releases the page.
    pub(super) fn free(&self, pages: Pages) {
        let held = self.free_unless_held(pages, None);
        debug_assert!(held.is_none(), "each page was waited for");
    }

    /// Takes `pages` out of memory. Leaves out pages that other threads hold for too long:
    /// `patience` limits the wait for all pages together. Returns the first page that was left out.
    pub(super) fn free_unheld(&self, pages: Pages, patience: &mut Backoff) -> Option<u64> {
        self.free_unless_held(pages, Some(patience))
    }

    fn free_unless_held(&self, pages: Pages, mut patience: Option<&mut Backoff>) -> Option<u64> {
        let (mut gone, mut held) = (Gone::default(), None);
        for (region, local) in self.index.regions(pages) {
            let (first, mut has_pages) = (region.first(), false);
            for page in region.map.pages_in_memory(local.clone()) {
                has_pages = true;
                if !self.take_out(region, page, patience.as_deref_mut(), &mut gone) {
                    held = held.or(Some(first + page));
                }
                if gone.is_full() {
                    self.free_gone(&mut gone);
                }
            }
            if has_pages && region.map.has_idle_part(local) {
                self.manager().spaces.note_idle_parts(self.group.state(), &region.map);
            }
        }
        self.free_gone(&mut gone);
        held
    }

    fn free_gone<'a>(&'a self, gone: &mut Gone<'a>) {
        if !gone.unlisted.is_empty() {
            self.give_back(gone.unlisted.drain(..));
        }
        self.manager().memory.free_gone(gone.listed.drain(..).collect());
        self.manager().swapping.free_slots(&self.manager().memory, self.group.state(), gone.slots.drain(..));
    }

    /// Takes a page out of memory. Returns false if another thread holds it for longer than
    /// `patience` allows.
    fn take_out<'a>(
        &'a self,
        region: &'a Region,
        page: u64,
        mut patience: Option<&mut Backoff>,
        gone: &mut Gone<'a>,
    ) -> bool {
        let mut backoff = Backoff::new();
        loop {
            match region.map.detach(page, 0, true) {
                Detach::Listed { frame, slot, .. } => {
                    gone.add_slot(slot);
                    let is_unlisted = Rank::of(&self.manager().memory.frames, frame.id()).is_unlisted();
                    if is_unlisted {
                        gone.unlisted.push(frame);
                    } else {
                        gone.listed.push(frame);
                    };
                    return true;
                }
                // Another thread has the frame isolated. That thread frees the frame when it puts
                // the frame back.
                Detach::Orphaned { slot, .. } => {
                    gone.add_slot(slot);
                    return true;
                }
                Detach::Swapped { entry } => {
                    if let Some(PageEntry::Slot(slot)) = PageEntry::from_bits(entry) {
                        gone.slots.push(slot);
                    }
                    return true;
                }
                Detach::Vacant => return true,
                Detach::Pinned | Detach::Busy | Detach::Loading | Detach::Unclean => {
                    self.free_gone(gone); // Other threads may need this memory meanwhile.
                    match patience.as_deref_mut() {
                        None => backoff.wait(),
                        Some(patience) => {
                            if patience.wait_or(|| ()).is_err() {
                                return false;
                            }
                        }
                    }
                }
            }
        }
    }
}
