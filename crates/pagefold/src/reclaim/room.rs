//! Room in the budget for what isn't frames, and a smaller budget: frames' memory goes back to the system, an extent at a time.

use std::time::Duration;

use sync::thread::sleep;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::lru::stripe::{BATCH_MAX, Batch, Leftovers};
use crate::manager::Manager;
use crate::size::Size;

/// Room for a part of a page map, and for what opening a segment of it costs.
const ROOM_WANTED: u64 = 8 << 10;
/// While page maps take less than this part of the budget, their shadows are worth more than a few frames.
const MAPS_SHARE: u64 = 8;
/// Parts of page maps that are given back in one go.
const MAPS_BATCH: usize = 64;
/// Extents that are tried before giving up.
const EXTENTS_TRIED: usize = 16;
/// Times that files are written back to make room.
const CLEAN_TURNS: u32 = 3;
/// Times that an extent's pages are gone through: a page being loaded is there a moment later.
const DRAIN_ATTEMPTS: usize = 3;

impl Manager {
    /// Makes the budget have room for another part of a page map.
    pub(crate) fn make_room(&self, group: &GroupState) -> Result<(), Error> {
        let _turn = self.room_making.lock();
        if self.frames.budget().room() >= ROOM_WANTED {
            return Ok(()); // Somebody else was faster.
        }
        let maps_are_large = self.frames.stats().map_bytes > self.frames.budget().max() / MAPS_SHARE;
        let made = (maps_are_large && self.frames.sweep_maps(MAPS_BATCH) > 0)
            || self.drain_extent()
            || self.frames.sweep_maps(MAPS_BATCH) > 0
            // Parts of maps become idle as the coldest pages go. The next turn finds them, if this one doesn't.
            || self.reclaim_any(MAPS_BATCH) > 0
            || self.clean_all();
        if made { Ok(()) } else { Err(self.limit_reached(group)) }
    }

    /// Charges metadata of ours to the budget.
    pub(crate) fn charge_metadata(&self, bytes: u64) -> Result<(), Error> {
        self.make_room_until(&mut || self.frames.budget().try_charge(bytes))
    }

    /// Makes room in the budget until what is to be charged has been.
    pub(crate) fn make_room_until(&self, is_charged: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.refuse_child()?;
        let _turn = self.room_making.lock();
        let mut cleaned = 0;
        while !is_charged() {
            if !self.drain_extent() && self.frames.sweep_maps(MAPS_BATCH) == 0 && !self.clean_some(&mut cleaned) {
                let used = Size(self.frames.budget().used());
                return Err(Error::BudgetBusy { size: Size(self.frames.budget().max()), used });
            }
        }
        Ok(())
    }

    /// Lowers or raises the budget.
    pub(crate) fn resize(&self, size: Size) -> Result<(), Error> {
        self.refuse_child()?;
        let _turn = self.room_making.lock();
        let budget = self.frames.budget();
        let before = budget.max();
        self.frames.set_budget(size.0);
        // Comes to an end: areas that are beyond their limits take nothing in.
        while self.swap.give_way(self) {}
        let (mut cleaned, mut awaited) = (0, 0);
        while budget.used() > size.0 {
            if !self.drain_extent()
                && self.frames.sweep_maps(MAPS_BATCH) == 0
                && !self.clean_some(&mut cleaned)
                && !self.await_landings(None, &mut awaited)
            {
                let used = Size(budget.used());
                self.frames.set_budget(before);
                self.tell_groups(before);
                return Err(Error::BudgetBusy { size, used });
            }
        }
        self.tell_groups(size.0);
        Ok(())
    }

    /// Writes back what is unclean, so that its frames can be given back: a few times, as others may go on writing. Once
    /// it says so even if nothing is unclean, as that may have changed since the caller came upon it.
    pub(crate) fn clean_some(&self, turns: &mut u32) -> bool {
        *turns += 1;
        *turns <= CLEAN_TURNS && (self.clean_all() || *turns == 1)
    }

    /// Groups made before see it here; those made later read the budget under the table's lock.
    fn tell_groups(&self, budget: u64) {
        for group in self.groups.all() {
            group.budget_changed(budget / self.frames.page_size() as u64);
        }
    }

    /// Gives one extent of frames back to the system. False if every one has a page that can't be moved out now.
    pub(crate) fn drain_extent(&self) -> bool {
        let mut tried = 0;
        (0..self.frames.extents()).any(|_| {
            if tried == EXTENTS_TRIED {
                return false;
            }
            let Some(drain) = self.frames.begin_drain() else { return false };
            if drain.is_pinned() {
                return false; // Nothing would come of it but evictions.
            }
            tried += 1;
            for attempt in 0..DRAIN_ATTEMPTS {
                if attempt > 0 {
                    sleep(Duration::from_micros(50));
                }
                self.drain_entries();
                let mut anonymous = Batch::<BATCH_MAX>::new();
                for frame in drain.frames() {
                    self.evict_listed(frame, &mut anonymous);
                    if anonymous.is_full() {
                        self.evict_anonymous(std::mem::take(&mut anonymous));
                    }
                }
                self.evict_anonymous(anonymous);
            }
            drain.finish()
        })
    }

    /// Evicts a page whatever the policy thinks of it, if it is on a list and not pinned. One that no file has is left to the
    /// caller.
    fn evict_listed(&self, frame: frames::FrameId, anonymous: &mut Batch<BATCH_MAX>) {
        let Some(isolated) = self.frames.isolate(frame) else { return };
        let Some(group) = self.groups.get(self.frames.group(frame)) else { return };
        if self.is_anonymous(&isolated) {
            return anonymous.push(isolated);
        }
        group.lists.unlink(&self.frames, &[frame]);
        match self.evict(&group, isolated) {
            Ok(frame) => {
                self.count_evictions(&group, std::slice::from_ref(&frame));
                self.release(&group, [frame]);
            }
            Err(refused) => {
                let mut leftovers = Leftovers::default();
                group.lists.put_back(&self.frames, refused.frame, &mut leftovers);
                self.settle(&group, leftovers);
            }
        }
    }
}
