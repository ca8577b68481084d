//! What all handles of one Pagefold share, and the one way to a frame.

use std::ops::Deref;
use std::time::Duration;

use frames::{Frames, OwnedFrame};
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::Mutex;
use sync::thread::sleep;
use sync::time::Instant;

use crate::census::HandleTable;
use crate::dirty::{Rate, UncleanCount};
use crate::entry_batches::EntryBatches;
use crate::error::Error;
use crate::file_table::FileTable;
use crate::flusher::Flushers;
use crate::group_lists::Orphans;
use crate::group_state::GroupState;
use crate::group_table::GroupTable;
use crate::io::Backend;
use crate::reclaimer::Doorbell;
use crate::reserve::Shortage;
use crate::size::Size;
use crate::stats::Counters;

/// Everything but the background thread, which shares it.
pub(crate) struct Manager {
    pub(crate) frames: Arc<Frames>,
    pub(crate) backend: Box<dyn Backend>,
    pub(crate) groups: GroupTable,
    pub(crate) files: FileTable,
    pub(crate) handles: HandleTable,
    pub(crate) entries: EntryBatches,
    pub(crate) doorbell: Doorbell,
    pub(crate) flushers: Flushers,
    pub(crate) unclean: UncleanCount,
    /// How fast pages are written back.
    pub(crate) rate: Rate,
    /// Started at the beginning.
    pub(crate) clock: Instant,
    /// Somebody is filling up a reserve.
    pub(crate) helping: AtomicBool,
    /// Held while frames are turned into room for page maps, or given back to the system.
    pub(crate) room_making: Mutex<()>,
}

/// Pages that a thread frees when it has to do so itself.
const DIRECT_BATCH: usize = 32;
/// And that it frees for the reserve.
const HELP_BATCH: usize = 32;

/// How often a thread tries to get a frame before it gives up, if pages are in flight that may become evictable.
const ATTEMPTS_MAX: u32 = 400;
/// And how often if all pages are listed, and pinned: then waiting helps only if somebody unpins.
const ATTEMPTS_PINNED_MAX: u32 = 8;
/// The longest wait between attempts: 400 of them are about four seconds.
const PAUSE_MAX: Duration = Duration::from_millis(10);

impl Manager {
    /// Charges a page to `group` and gets a frame for it, reclaiming as much as that takes. The caller holds no lock
    /// and no page word.
    ///
    /// # Errors
    /// [`Error::LimitReached`], in bounded time, when nothing can be reclaimed.
    pub(crate) fn take_frame<'a>(&'a self, group: &'a GroupState) -> Result<ChargedFrame<'a>, Error> {
        let (mut failed, mut failed_for_good) = (0, 0);
        loop {
            let own_limit = !group.try_charge();
            let freed = if !own_limit {
                if let Some(frame) = self.frames.allocate() {
                    self.keep_reserves(group);
                    return Ok(ChargedFrame { frame, charge: Charge(group) });
                }
                group.uncharge(1);
                self.reclaim_any(DIRECT_BATCH)
            } else {
                self.reclaim_group(group, DIRECT_BATCH)
            };
            Counters::add(&group.counters.direct_reclaims, 1);
            if freed > 0 {
                (failed, failed_for_good) = (0, 0);
                continue;
            }
            failed += 1;
            self.drain_entries();
            let unclean = self.unclean.get() > 0;
            if unclean {
                self.flushers.ring_for_frames();
            }
            // When that is over, what was waited for may have come just after the last look.
            failed_for_good = if unclean || self.in_flight(group, own_limit) { 0 } else { failed_for_good + 1 };
            if failed > ATTEMPTS_MAX || failed_for_good > ATTEMPTS_PINNED_MAX {
                return Err(self.limit_reached(group));
            }
            sleep(Duration::from_micros(20 << failed.min(9)).min(PAUSE_MAX));
        }
    }

    /// After a frame was taken: has the reserves it came from filled up again (`reserve`).
    fn keep_reserves(&self, group: &GroupState) {
        let shortages = [group.shortage(), self.shortage()];
        if shortages == [Shortage::None; 2] || self.helping.swap(true, Ordering::Relaxed) {
            return;
        }
        if shortages[0] != Shortage::None {
            self.pass(group, HELP_BATCH, false);
        } else if let Some(group) = self.groups.fullest() {
            self.pass(&group, HELP_BATCH, false);
        }
        // Relaxed, both: a second helper would do no harm.
        self.helping.store(false, Ordering::Relaxed);
        if shortages.iter().any(|shortage| matches!(shortage, Shortage::Deep(_))) {
            self.doorbell.ring();
        }
    }

    /// How short the whole budget is of free frames.
    pub(crate) fn shortage(&self) -> Shortage {
        let limit = self.frames.budget().max() >> self.frames.page_size().trailing_zeros();
        Shortage::of(limit, self.frames.available() as u64)
    }

    /// Whether pages are being loaded, or looked at by reclaim: those may become evictable without anybody's help.
    /// Pages of `group`, if it is its own limit that was reached; of any group otherwise.
    fn in_flight(&self, group: &GroupState, own_limit: bool) -> bool {
        let some = |group: &GroupState| group.charged() > group.lists.lock().len() as u64;
        if own_limit { some(group) } else { self.groups.any(some) }
    }

    pub(crate) fn limit_reached(&self, group: &GroupState) -> Error {
        let page_size = self.frames.page_size() as u64;
        let max = group.max().saturating_mul(page_size).min(self.frames.budget().max());
        Error::LimitReached { group: group.name.clone(), max: Size(max), charged: Size(group.charged() * page_size) }
    }

    // ---- room in the budget for what isn't a page

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

    /// Refuses a forked child.
    pub(crate) fn refuse_child(&self) -> Result<(), Error> {
        if self.frames.forked() { Err(Error::Forked) } else { Ok(()) }
    }

    /// Charges metadata of ours to the budget.
    pub(crate) fn charge_metadata(&self, bytes: u64) -> Result<(), Error> {
        self.refuse_child()?;
        let _turn = self.room_making.lock();
        let mut cleaned = 0;
        while !self.frames.budget().try_charge(bytes) {
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
        let mut cleaned = 0;
        while budget.used() > size.0 {
            if !self.drain_extent() && self.frames.sweep_maps(MAPS_BATCH) == 0 && !self.clean_some(&mut cleaned) {
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
    fn drain_extent(&self) -> bool {
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
                for frame in drain.frames() {
                    self.evict_listed(frame);
                }
            }
            drain.finish()
        })
    }

    /// Evicts a page whatever the policy thinks of it, if it is on a list and not pinned.
    fn evict_listed(&self, frame: frames::FrameId) {
        let Some(isolated) = self.frames.isolate(frame) else { return };
        let Some(group) = self.groups.get(self.frames.group(frame)) else { return };
        let mut lists = group.lists.lock();
        lists.unlink(&self.frames, frame);
        drop(lists);
        match self.evict(&group, isolated) {
            Ok(frame) => {
                self.count_evictions(&group, std::slice::from_ref(&frame));
                self.release(&group, [frame]);
            }
            Err(refused) => {
                let mut orphans = Orphans::default();
                group.lists.lock().put_back(&self.frames, refused.frame, &mut orphans);
                group.uncharge(orphans.count);
            }
        }
    }
}

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

/// A frame that is charged to a group. Dropped, it is freed and uncharged.
#[derive(Debug)]
pub(crate) struct ChargedFrame<'a> {
    frame: OwnedFrame<'a>,
    charge: Charge<'a>,
}

/// One page's charge.
#[derive(Debug)]
struct Charge<'a>(&'a GroupState);

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.0.uncharge(1);
    }
}

impl<'a> ChargedFrame<'a> {
    /// The frame, whose charge goes on to the page in it.
    pub(crate) fn into_frame(self) -> OwnedFrame<'a> {
        std::mem::forget(self.charge);
        self.frame
    }
}

impl<'a> Deref for ChargedFrame<'a> {
    type Target = OwnedFrame<'a>;

    fn deref(&self) -> &OwnedFrame<'a> {
        &self.frame
    }
}
