//! A page's ways into memory, new or back from swap, and its end.

use arrayvec::ArrayVec;
use frames::{BeginLoad, Detach, OwnedFrame, PageState};
use swap::{PageEntry, SlotId};
use sync::atomic::{Backoff, fence_after_update};

use super::SpaceState;
use super::address::Pages;
use super::fault::{Fault, NoMemory};
use super::region::{REGION_PAGES, Region};
use crate::error::Error;
use crate::lru::batch::BATCH_MAX;
use crate::lru::rank::Rank;
use crate::reclaim::room::RoomsMade;

/// What is left of pages that are taken out of memory together.
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

    /// Adds the slot that a page kept, 0 for none.
    fn add_slot(&mut self, slot: u64) {
        self.slots.extend(SlotId::from_bits(slot).filter(|_| slot != 0));
    }
}

/// How often others may be faster, but leave the page where it was.
const OUTRUN_MAX: u32 = 8;

impl SpaceState {
    /// Brings a page into memory: back from swap, or zeros if it was never written; then `fault` is
    /// done to it. Returns false, with nothing done, if the page is in memory, if another thread
    /// has it, or if it isn't the space's own any more.
    ///
    /// # Errors
    /// [`Error::LimitReached`]; those of [`refuse`](Self::refuse); those of swap.
    #[cold]
    pub(super) fn fault(&self, region: &Region, page: u64, fault: Fault<'_>) -> Result<bool, Error> {
        let manager = &**self.manager();
        let local = page % REGION_PAGES;
        let (mut rooms_made, mut outrun) = (RoomsMade::default(), 0);
        if let Some(PageEntry::Slot(slot)) = region.swapped_to(page) {
            manager.swap.prefetch([slot]);
        }
        loop {
            let memory = match self.take_memory(manager, region, local, fault) {
                Ok(memory) => memory,
                Err(NoMemory { error, is_outrun }) => match region.map.state(local) {
                    // Another thread got the last frame for this very page.
                    PageState::Resident { .. } => return Ok(false),
                    PageState::Loading => {
                        return self.outcome(page, region.map.wait(local), || region.swapped_to(page));
                    }
                    // Or had it, in vain or for a moment.
                    PageState::Swapped { .. } | PageState::Vacant { .. } if is_outrun && outrun < OUTRUN_MAX => {
                        outrun += 1;
                        continue;
                    }
                    PageState::Swapped { .. } | PageState::Vacant { .. } => return Err(error),
                },
            };
            // Most pages are new: filled before any thread has to wait for them.
            let is_new = fault.writes() && matches!(region.map.state(local), PageState::Vacant { .. });
            if is_new {
                memory.frame.fill(|bytes| fault.begin(bytes, memory.is_warm));
            }
            let along = self.look_along(region, local, fault, &memory);
            match region.map.begin_load(local) {
                BeginLoad::Begun(loading) => {
                    fence_after_update(); // S1
                    let entry = region.entry(page);
                    if !fault.is_permitted(entry) {
                        drop(loading);
                        self.give_up(memory, along);
                        return if fault.may_go_on(entry) { Ok(false) } else { Err(self.refuse(page, entry)) };
                    }
                    return self.bring_in(page, loading, memory, along, fault, is_new);
                }
                BeginLoad::Resident => {
                    self.give_up(memory, along);
                    return Ok(false);
                }
                BeginLoad::Busy => {
                    self.give_up(memory, along);
                    return self.outcome(page, region.map.wait(local), || region.swapped_to(page));
                }
                // A region has a place for each of its pages.
                BeginLoad::NoRoom | BeginLoad::NoPlace => {
                    self.give_up(memory, along);
                    manager.make_room_for_word(self.group.state(), &mut rooms_made)?;
                }
            }
        }
    }

    pub(super) fn give_back<'a>(&'a self, frames: impl IntoIterator<Item = OwnedFrame<'a>>) {
        let count = self.manager().release_anonymous(self.group.state(), frames);
        self.manager().spaces.warm.freed(count as u64);
    }

    /// Takes all of `pages` out of memory, and waits for threads that have one of them (S1). No
    /// thread gets one of them any more.
    pub(super) fn free(&self, pages: Pages) {
        let held = self.free_unless_held(pages, None);
        debug_assert!(held.is_none(), "each page was waited for");
    }

    /// The same without pages that another thread keeps for long. Returns the first of these.
    pub(super) fn free_unheld(&self, pages: Pages) -> Option<u64> {
        self.free_unless_held(pages, Some(Backoff::new()))
    }

    /// With one `patience` for all pages, if there is one.
    fn free_unless_held(&self, pages: Pages, mut patience: Option<Backoff>) -> Option<u64> {
        let (mut gone, mut held) = (Gone::default(), None);
        for (region, local) in self.index.regions(pages) {
            let first = region.first();
            for page in region.map.pages_in_memory(local) {
                if !self.take_out(region, page, patience.as_mut(), &mut gone) {
                    held = held.or(Some(first + page));
                }
                if gone.is_full() {
                    self.free_gone(&mut gone);
                }
            }
        }
        self.free_gone(&mut gone);
        held
    }

    fn free_gone<'a>(&'a self, gone: &mut Gone<'a>) {
        if !gone.unlisted.is_empty() {
            self.give_back(gone.unlisted.drain(..));
        }
        self.manager().free_gone(gone.listed.drain(..).collect());
        self.manager().free_slots(self.group.state(), gone.slots.drain(..));
    }

    /// Takes a page out of memory. Returns false if another thread keeps it longer than there is
    /// `patience`.
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
                    let is_unlisted = Rank::of(&self.manager().frames, frame.id()).is_unlisted();
                    if is_unlisted {
                        gone.unlisted.push(frame);
                    } else {
                        gone.listed.push(frame);
                    };
                    return true;
                }
                // The thread that has it isolated is about to put it back, and frees it.
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
                    self.free_gone(gone); // Others may be short of them meanwhile.
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
