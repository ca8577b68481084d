//! Makes room in the budget for memory other than frames, and lowers the budget. Both tasks give
//! extents of frames back to the system (`drain`).
//!
//! The budget's limit isn't lowered all at once, but step by step, with each extent that is given
//! back. So calls that charge a few KiB meanwhile find room, or wait only until the next extent is
//! given back.

use arrayvec::ArrayVec;
use frames::{Budget, FrameId, MapPart};
use swap::GaveWay;
use sync::wait::Backoff;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::memory::charges::MetadataCharge;
use crate::memory::lowering::{Cost, MAPS_BATCH};
use crate::memory::waits::Landings;
use crate::size::Size;

/// While page maps take less than 1/`MAPS_SHARE` of the budget, the shadows in them (traces of
/// evicted pages) are worth more than a few frames. So an extent is drained before idle parts of
/// maps are given back. If maps take more, the idle parts are given back first.
const MAPS_SHARE: u64 = 8;
/// A part of a page map is *idle*, and can be given back, if none of its pages is in memory or in
/// swap. `IDLING_PAGES` is the number of pages that are evicted at a time to make parts idle.
/// `IDLING_TURNS` is how often that is tried.
const IDLING_PAGES: usize = 8;
/// The most pages that are looked at to find pages that are almost alone in their part of a map.
const SPARSE_LOOKS: usize = 256;
const IDLING_TURNS: u32 = 8;
/// The number of extents whose draining is tried, one after the other, before the caller tries
/// something else.
const DRAINS_MAX: usize = 4;
/// How often a call makes room for a page's word before it gives up. Each time, other threads may
/// take the room first.
const ROOMS_MAX: u32 = 64;
/// How often a thread that needs room starts again after another thread has finished lowering the
/// budget. It starts again because it was not allowed to drain an extent itself during the
/// lowering.
const LOWERINGS_MAX: u32 = 16;

/// The least part of a large charge ([`ChargeInParts`]). A charge of at most this many bytes is
/// made as a whole.
const PART_MIN: u64 = 64 << 10;

/// How often a call, or a future, has made room for one page's word.
#[derive(Debug, Default)]
pub(crate) struct RoomsMade(u32);

impl RoomsMade {
    /// Counts another time. Returns false if room was made `ROOMS_MAX` times already.
    pub(crate) fn may_make(&mut self) -> bool {
        self.0 += 1;
        self.0 <= ROOMS_MAX
    }
}

/// A large charge that is made in parts: each attempt charges as much as there is room for. Suppose
/// that it waited until there is room for the whole charge. Then other threads could take the room
/// that one extent frees before the next extent is given back. So all extents might be drained over
/// and over.
struct ChargeInParts {
    /// The bytes that aren't charged yet.
    missing: u64,
}

impl ChargeInParts {
    /// Charges the next part. Returns whether all is charged.
    fn proceed(&mut self, budget: &Budget) -> bool {
        let part = budget.room().min(self.missing);
        if (part == self.missing || part >= PART_MIN) && budget.try_charge(part) {
            self.missing -= part;
        }
        self.missing == 0
    }
}

impl Manager {
    /// Makes room for the part of a page map that holds a page's word. The caller then tries again.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if no room can be made, or other threads took it first each time.
    pub(crate) fn make_room_for_word(&self, group: &GroupState, made: &mut RoomsMade) -> Result<(), Error> {
        // Sometimes: a page needs room for its part of a page map.
        if made.may_make() { self.make_room(group) } else { Err(self.limit_reached(group)) }
    }

    /// Makes room in the budget for another part of a page map. Waits for write-back if need be.
    pub(crate) fn make_room(&self, group: &GroupState) -> Result<(), Error> {
        let (mut clean, mut awaited) = (self.clean_wait(None), Landings::default());
        loop {
            let mut is_made = || self.memory.frames.budget().room() >= frames::map_room();
            if self.memory.await_lowering(&mut is_made) || self.try_make_room(group, is_made) {
                return Ok(());
            }
            if !clean.wait()
                && self.file_io.mailboxes.take_pins(None) == 0
                && !self.memory.await_landings(None, &mut awaited)
            {
                return Err(self.limit_reached(group));
            }
        }
    }

    /// Tries once to make room for another part of a page map, without waiting for write-back. See
    /// also [`make_room`](Self::make_room).
    fn try_make_room(&self, group: &GroupState, is_made: impl Fn() -> bool) -> bool {
        let _turn = self.memory.room_making.lock();
        if is_made() {
            // Sometimes: another thread has made room.
            return true; // Another thread was faster.
        }
        let mut evicted = 0;
        let maps_are_large = self.memory.frames.stats().map_bytes > self.memory.frames.budget().max() / MAPS_SHARE;
        // Idle parts of the group's own maps go before its pages.
        let parts = frames::map_room().div_ceil(self.memory.frames.page_size() as u64);
        let own_parts = || self.reclaim_idle_parts(group, parts) > 0 || is_made();
        (maps_are_large && (self.sweep_some_maps(MAPS_BATCH) > 0 || own_parts() || self.idle_maps(group)))
            || self.drain_extent(Cost::Unused)
            || self.sweep_some_maps(MAPS_BATCH) > 0
            || (1..DRAINS_MAX).any(|_| self.drain_extent(Cost::Unused))
            || own_parts()
            || self.idle_maps(group)
            || self.reclaim_for_maps(group, &mut evicted)
            || self.drain_extent(Cost::Any)
            || self.sweep_maps(MAPS_BATCH) > 0
            // Something was evicted, so the caller's next attempt gets further.
            || evicted > 0
    }

    /// Evicts pages that are almost alone in their part of a page map, so that the part becomes
    /// idle, and gives the idle parts back. A tenant that reads at scattered places has many such
    /// pages. Evicts only pages that may be evicted for this group and that reclaim would evict
    /// next.
    fn idle_maps(&self, group: &GroupState) -> bool {
        let (need, budget) = (self.memory.page_for(group), self.memory.budget_pages());
        let may_take = |frame| {
            self.memory
                .groups
                .with(self.memory.frames.group(frame), |owner| need.may_take_of(owner, budget))
                .unwrap_or(false)
        };
        let (mut pages, mut parts) =
            (ArrayVec::<FrameId, IDLING_PAGES>::new(), ArrayVec::<MapPart, IDLING_PAGES>::new());
        let mut looks = 0;
        self.memory.frames.visit_sparse_pages(|frame, part| {
            looks += 1;
            if !self.memory.is_worth_moving(frame) && may_take(frame) {
                pages.push(frame);
                parts.push(part);
            }
            looks < SPARSE_LOOKS && !parts.is_full()
        });
        self.evict_all(pages.into_iter());
        parts.into_iter().filter(|&part| self.give_back_part(part)).count() > 0
    }

    /// Reclaims a few pages so that parts of page maps become idle, and gives these parts back.
    fn reclaim_for_maps(&self, group: &GroupState, evicted: &mut usize) -> bool {
        (0..IDLING_TURNS).any(|_| {
            let freed = match self.reclaim_group(group, IDLING_PAGES) {
                0 => self.reclaim_any(self.memory.page_for(group), IDLING_PAGES),
                some => some,
            };
            *evicted += freed;
            freed > 0 && self.sweep_some_maps(MAPS_BATCH) > 0
        })
    }

    /// Charges Pagefold's own metadata to the budget. Makes room for it if need be. A charge that
    /// exceeds the whole budget fails at once, and no page is evicted for it.
    pub(crate) fn charge_metadata(&self, bytes: u64) -> Result<(), Error> {
        let budget = self.memory.frames.budget();
        if bytes > budget.max() {
            return Err(Error::BudgetBusy { size: Size(budget.max()), used: Size(budget.used()) });
        }
        if bytes <= PART_MIN {
            return self.make_room_until(&mut || budget.try_charge(bytes));
        }
        let mut charge = ChargeInParts { missing: bytes };
        let made = self.make_room_until(&mut || charge.proceed(budget));
        made.inspect_err(|_| budget.uncharge(bytes - charge.missing))
    }

    /// Charges metadata like [`charge_metadata`](Self::charge_metadata), for a caller that may
    /// still fail, or that calls a backend before the metadata exists.
    pub(crate) fn hold_metadata(&self, bytes: u64) -> Result<MetadataCharge<'_>, Error> {
        self.charge_metadata(bytes)?;
        Ok(MetadataCharge::new(self.memory.frames.budget(), bytes))
    }

    /// Makes room in the budget until `is_charged` succeeds in charging.
    pub(crate) fn make_room_until(&self, is_charged: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.memory.refuse_child()?;
        if self.memory.await_lowering(is_charged) {
            return Ok(()); // Most often at once, without `room_making`.
        }
        let (mut clean, mut awaited, mut lowerings) = (self.clean_wait(None), Landings::default(), 0);
        loop {
            let mut is_lowered = false;
            {
                let _turn = self.memory.room_making.lock();
                loop {
                    if is_charged() {
                        return Ok(());
                    }
                    let mut drain = |cost| {
                        is_lowered |= self.memory.lowers();
                        self.drain_extent(cost)
                    };
                    let made = drain(Cost::Unused) || self.sweep_maps(MAPS_BATCH) > 0 || drain(Cost::Any);
                    if !made {
                        break;
                    }
                    clean.progressed();
                }
            }
            // Waits without the lock, which other tenants need.
            let may_go_on = clean.wait()
                || self.file_io.mailboxes.take_pins(None) > 0
                || self.memory.await_landings(None, &mut awaited);
            if may_go_on {
                continue;
            }
            // While the budget is being lowered, only the lowering thread drains extents.
            if self.memory.await_lowering(is_charged) {
                return Ok(());
            }
            if is_lowered && lowerings < LOWERINGS_MAX {
                lowerings += 1;
                continue;
            }
            let used = Size(self.memory.frames.budget().used());
            return Err(Error::BudgetBusy { size: Size(self.memory.frames.budget().max()), used });
        }
    }

    /// Lowers or raises the budget.
    pub(crate) fn resize(&self, size: Size) -> Result<(), Error> {
        let mut awaited = Landings::default();
        self.resize_pausing(size, &mut |is_held| {
            self.memory.await_landings_if(&mut awaited, || is_held || self.memory.in_flight(None))
        })
    }

    /// Does the work of [`resize`](Self::resize). `pause` waits a moment for pages in flight, or,
    /// if its argument is true, for a frame that another thread holds. It returns whether to try
    /// again.
    fn resize_pausing(&self, size: Size, pause: &mut dyn FnMut(bool) -> bool) -> Result<(), Error> {
        self.memory.refuse_child()?;
        let _turn = self.memory.lowering.turn.lock();
        let budget = self.memory.frames.budget();
        let before = budget.max();
        let (mut clean, mut busy) = (self.clean_wait(None), Backoff::new());
        loop {
            if budget.used() <= size.0 {
                self.memory.frames.set_budget(size.0);
                if budget.used() <= size.0 {
                    break; // No thread charged anything in between.
                }
            }
            self.memory.frames.lower_budget(size.0);
            let beyond = budget.used().saturating_sub(size.0);
            if beyond == 0 {
                continue; // Other threads have uncharged the excess meanwhile.
            }
            if self.give_way(&mut busy) {
                clean.progressed();
                continue;
            }
            let drained = self.drain_for_good(beyond);
            if drained.given > 0 || self.sweep_maps(MAPS_BATCH) > 0 {
                clean.progressed();
            } else if !clean.wait() && self.file_io.mailboxes.take_pins(None) == 0 && !pause(drained.is_held) {
                let used = Size(budget.used());
                // Sometimes: a budget cannot be lowered.
                self.memory.frames.set_budget(before);
                self.memory.groups.budget_changed(before / self.memory.frames.page_size() as u64);
                return Err(Error::BudgetBusy { size, used });
            }
        }
        // Areas of compressed pages may use a certain share of the budget. The budget is smaller
        // now, so pages are moved out of the areas that exceed their share. The loop ends because
        // such an area accepts no new pages.
        while self.give_way(&mut busy) {}
        self.memory.groups.budget_changed(size.0 / self.memory.frames.page_size() as u64);
        // Uncharges what CPUs have in stock, so that no page has to be evicted for charges that no
        // page uses.
        self.memory.drain_charges(None);
        Ok(())
    }

    /// Moves pages out of compressed areas that exceed their limits. Returns whether another call
    /// may move more. If another thread is moving pages out of such an area, this call only waits
    /// once, for the time that `busy` sets. Returns false if calls have waited for long and no page
    /// was moved, because the other thread may be writing to a device that doesn't answer.
    fn give_way(&self, busy: &mut Backoff) -> bool {
        match self.swapping.areas.give_way(self) {
            GaveWay::Some => {
                *busy = Backoff::new();
                true
            }
            GaveWay::Busy => {
                // Sometimes: a budget is lowered while another thread spills compressed pages.
                busy.wait_or(|| ()).is_ok()
            }
            GaveWay::Nothing => false,
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use crate::manager::reclaim::drain::tests::{group_with_pages, isolate_one};
    use std::cell::Cell;
    use sync::atomic::Ordering;
    use test_disks::SimulatedDisk;

    const PAGE: u64 = 4096;

    /// A regression: the tables of a swap area were larger than the budget. All pages of all
    /// tenants were evicted before the call failed.
    #[test]
    fn a_charge_beyond_the_budget_evicts_nothing() {
        let (group, _file) = group_with_pages();
        let manager = group.manager();
        let max = manager.memory.frames.budget().max();
        let error = manager.charge_metadata(max + 1).unwrap_err();
        assert!(matches!(error, Error::BudgetBusy { .. }));
        assert!(error.to_string().starts_with("no room in a budget of 16 MiB: "), "it isn't lowered: {error}");
        assert_eq!(group.stats().evictions, 0);
    }

    /// A regression: a call drained extents until there was room for all of its large charge at
    /// once. But a tenant took the room that each drained extent freed. So the call drained extents
    /// without end.
    #[test]
    fn a_large_charge_is_made_beside_a_tenant_that_takes_all_room() {
        let (group, _file) = group_with_pages();
        let frames = &group.manager().memory.frames;
        let take_all = || drop(std::iter::from_fn(|| frames.allocate()).collect::<Vec<_>>());
        take_all();
        let before = frames.budget().used();
        let extents = 3;
        let (mut charge, mut calls) = (ChargeInParts { missing: extents * frames.extent_bytes() }, 0);
        let made = group.manager().make_room_until(&mut || {
            calls += 1;
            let is_made = charge.proceed(frames.budget()) || calls == 10_000;
            take_all();
            is_made
        });
        assert!(made.is_ok() && charge.missing == 0, "{made:?}, {} bytes are missing", charge.missing);
        assert!(calls <= 4 * extents, "{calls} calls");
        assert!(frames.budget().used() <= before.max(frames.budget().max()));
    }

    /// Calls [`make_room_until`](Manager::make_room_until) with all memory pinned. Returns the
    /// result, and how often `is_charged` returned true. `is_charged` gets the number of its call,
    /// counted from 1.
    fn make_room_in_vain(is_charged: impl Fn(&Manager, u32) -> bool) -> (Result<(), Error>, u32) {
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 4 << 20);
        let mm = Pagefold::builder().memory("1MiB").backend(disk).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open("file").unwrap();
        let _pins: Vec<_> = (0..).map_while(|page| file.page_at(page * PAGE).ok()).collect();
        let (mut calls, mut charges) = (0, 0);
        let made = mm.manager().make_room_until(&mut || {
            calls += 1;
            let is_charged = is_charged(mm.manager(), calls);
            charges += u32::from(is_charged);
            is_charged
        });
        (made, charges)
    }

    /// A regression: if the last attempt of a call to charge memory succeeded, the call charged the
    /// memory twice. Only one of the two charges was ever taken back.
    #[test]
    fn room_that_is_found_at_the_last_look_is_charged_once() {
        for at in 1..12 {
            let (made, charges) = make_room_in_vain(|_, call| call >= at);
            assert_eq!(charges, u32::from(made.is_ok()), "from call {at} on: {made:?}");
        }
        assert!(matches!(make_room_in_vain(|_, _| false), (Err(Error::BudgetBusy { .. }), 0)));
    }

    /// A regression: while a budget was being lowered, other threads couldn't drain extents. If no
    /// page was dirty, a call that needed room failed at once. It should have waited, because there
    /// was room moments later.
    #[test]
    fn a_call_waits_for_the_end_of_a_lowering() {
        let (made, charges) = make_room_in_vain(|manager, call| {
            manager.memory.lowering.drains.store((2..8).contains(&call), Ordering::Relaxed);
            call >= 8
        });
        assert!(made.is_ok() && charges == 1, "{made:?}");
    }

    /// A regression: another thread held a frame, for example to free it, and got no CPU. A call
    /// that lowered the budget failed after milliseconds.
    #[test]
    fn a_lowering_waits_for_a_frame_that_another_thread_holds() {
        let (group, _file) = group_with_pages();
        let manager = group.manager();
        let mut held = Some(isolate_one(manager));
        let used = manager.memory.frames.budget().used();
        let (mut pauses, mut asked) = (0, 0);
        let made = manager.resize_pausing(Size(used - 1), &mut |is_held| {
            pauses += 1;
            asked += u32::from(is_held);
            if let Some(frame) = held.take_if(|_| pauses == 3) {
                manager.memory.frames.put_back(frame).unwrap();
            }
            pauses < 10
        });
        assert!(made.is_ok() && asked == 3, "{made:?} after {pauses} pauses, {asked} for a frame");
    }

    /// A regression: the lowering ended just before the call checked whether it had to wait for the
    /// lowering. The call failed. It should first have tried to drain an extent itself.
    #[test]
    fn a_call_tries_itself_after_a_lowering() {
        let looks = Cell::new(0);
        let (made, charges) = make_room_in_vain(|manager, _| {
            // True while the call drains extents, false while it looks whether to wait.
            let drains = manager.memory.room_making.try_lock().is_none();
            manager.memory.lowering.drains.store(drains, Ordering::Relaxed);
            looks.set(looks.get() + u32::from(!drains));
            drains && looks.get() > 1 // The first look comes before it drains.
        });
        assert!(made.is_ok() && charges == 1, "{made:?}");
    }
}
