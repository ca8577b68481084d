//! Room in the budget for what isn't frames, and a smaller budget: frames' memory goes back to the
//! system, by extents.
//!
//! An extent goes only as a whole, so one with a page that can't leave is let alone, rather than
//! lose all its other pages in vain. While the budget is being lowered, all extents that have to go
//! are drained together: the free frames in them are found with one look at all that are free. Its
//! limit comes down with each of them, and so leaves room for calls that charge a few KiB
//! meanwhile; they wait for no more than the next extent.

use std::time::Duration;

use arrayvec::ArrayVec;
use frames::{FrameId, IsolatedFrame, MapPart};
use sync::atomic::Ordering;
use sync::thread::sleep;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::lru::admission::ANONYMOUS;
use crate::lru::batch::{BATCH_MAX, Batch, Leftovers};
use crate::lru::rank::Rank;
use crate::manager::Manager;
use crate::manager::lowering::{Cost, MAPS_BATCH};
use crate::manager::ranking::For;
use crate::size::Size;

/// While page maps take less than this part of the budget, their shadows are worth more than a few
/// frames.
const MAPS_SHARE: u64 = 8;
/// Pages that are evicted at a time so that parts of page maps become idle, and how often that is
/// tried.
const IDLING_PAGES: usize = 8;
/// Pages that are looked at to find those.
const SPARSE_LOOKS: usize = 256;
const IDLING_TURNS: u32 = 8;
/// Extents that are looked at to find one that can be drained.
const EXTENTS_LOOKED_AT: usize = 16;
/// Extents that are drained, one after the other, before that is given up.
const DRAINS_MAX: usize = 4;
/// Times that an extent's pages are gone through: a page being loaded is there a moment later.
const DRAIN_ATTEMPTS: usize = 3;
/// How often room is made for a page's word before a call gives up: other threads may be faster
/// each time.
const ROOMS_MAX: u32 = 64;
/// How long a thread waits for the next extent that a lowering of the budget gives back, and how
/// often: for a second.
const LOWERING_PAUSE: Duration = Duration::from_micros(100);
const LOWERING_TURNS: u32 = 10_000;

/// How often a call has had room made for one page's word.
#[derive(Debug, Default)]
pub(crate) struct RoomsMade(u32);

impl Manager {
    /// Makes room for the part of a page map that a page's word is in, for a call that then looks
    /// again whether there is some.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if there is none to be had, or other threads were faster each time.
    pub(crate) fn make_room_for_word(&self, group: &GroupState, made: &mut RoomsMade) -> Result<(), Error> {
        // Sometimes: a page needs room for its part of a page map.
        made.0 += 1;
        if made.0 > ROOMS_MAX { Err(self.limit_reached(group)) } else { self.make_room(group) }
    }

    /// Makes the budget have room for another part of a page map.
    pub(crate) fn make_room(&self, group: &GroupState) -> Result<(), Error> {
        let mut clean = self.clean_wait(None);
        loop {
            let mut is_made = || self.frames.budget().room() >= frames::map_room();
            if self.await_lowering(&mut is_made) || self.try_make_room(group, is_made) {
                return Ok(());
            }
            if !clean.wait() && self.mailboxes.take_pins(None) == 0 {
                return Err(self.limit_reached(group));
            }
        }
    }

    /// [`make_room`](Self::make_room), without waiting for a device.
    fn try_make_room(&self, group: &GroupState, is_made: impl Fn() -> bool) -> bool {
        let _turn = self.room_making.lock();
        if is_made() {
            // Sometimes: another thread has made room.
            return true; // Another thread was faster.
        }
        let mut evicted = 0;
        let maps_are_large = self.frames.stats().map_bytes > self.frames.budget().max() / MAPS_SHARE;
        (maps_are_large && (self.frames.sweep_some_maps(MAPS_BATCH) > 0 || self.idle_maps(group)))
            || self.drain_extent(Cost::Unused)
            || self.frames.sweep_some_maps(MAPS_BATCH) > 0
            || (1..DRAINS_MAX).any(|_| self.drain_extent(Cost::Unused))
            || self.idle_maps(group)
            || self.reclaim_for_maps(group, &mut evicted)
            || self.drain_extent(Cost::Any)
            || self.frames.sweep_maps(MAPS_BATCH) > 0
            // The next turn goes on from there.
            || evicted > 0
    }

    /// Has parts of page maps become idle, and gives them back: those of pages that have such a
    /// part nearly for themselves, as pages have of a tenant that reads here and there. Only pages
    /// go that may for this group, and that reclaim would take next.
    fn idle_maps(&self, group: &GroupState) -> bool {
        let (need, budget) = (self.page_for(group), self.budget_pages());
        let may_take = |frame| {
            self.groups.with(self.frames.group(frame), |owner| need.may_take_of(owner, budget)).unwrap_or(false)
        };
        let (mut pages, mut parts) =
            (ArrayVec::<FrameId, IDLING_PAGES>::new(), ArrayVec::<MapPart, IDLING_PAGES>::new());
        let mut looks = 0;
        self.frames.visit_sparse_pages(|frame, part| {
            looks += 1;
            if !self.is_worth_moving(frame) && may_take(frame) {
                pages.push(frame);
                parts.push(part);
            }
            looks < SPARSE_LOOKS && !parts.is_full()
        });
        self.evict_all(pages.into_iter());
        parts.into_iter().filter(|&part| self.frames.give_back(part)).count() > 0
    }

    /// Reclaims a few pages so that parts of page maps become idle, and gives these back.
    fn reclaim_for_maps(&self, group: &GroupState, evicted: &mut usize) -> bool {
        (0..IDLING_TURNS).any(|_| {
            let freed = match self.reclaim_group(group, IDLING_PAGES) {
                0 => self.reclaim_any(self.page_for(group), IDLING_PAGES),
                some => some,
            };
            *evicted += freed;
            freed > 0 && self.frames.sweep_some_maps(MAPS_BATCH) > 0
        })
    }

    /// Charges metadata of ours to the budget.
    pub(crate) fn charge_metadata(&self, bytes: u64) -> Result<(), Error> {
        self.make_room_until(&mut || self.frames.budget().try_charge(bytes))
    }

    /// Makes room in the budget until what is to be charged has been.
    pub(crate) fn make_room_until(&self, is_charged: &mut dyn FnMut() -> bool) -> Result<(), Error> {
        self.refuse_child()?;
        if self.await_lowering(is_charged) {
            return Ok(()); // Most often at once, without waiting for threads that make room.
        }
        let mut clean = self.clean_wait(None);
        loop {
            {
                let _turn = self.room_making.lock();
                loop {
                    if is_charged() {
                        return Ok(());
                    }
                    let made = self.drain_extent(Cost::Unused)
                        || self.frames.sweep_maps(MAPS_BATCH) > 0
                        || self.drain_extent(Cost::Any);
                    if !made {
                        break;
                    }
                    clean.progressed();
                }
            }
            // Without the lock, which other tenants need.
            if !clean.wait() && self.mailboxes.take_pins(None) == 0 && !is_charged() {
                let used = Size(self.frames.budget().used());
                return Err(Error::BudgetBusy { size: Size(self.frames.budget().max()), used });
            }
        }
    }

    /// Lowers or raises the budget.
    pub(crate) fn resize(&self, size: Size) -> Result<(), Error> {
        self.refuse_child()?;
        let _turn = self.lowering.turn.lock();
        let budget = self.frames.budget();
        let before = budget.max();
        let (mut clean, mut awaited) = (self.clean_wait(None), 0);
        loop {
            if budget.used() <= size.0 {
                self.frames.set_budget(size.0);
                if budget.used() <= size.0 {
                    break; // Nothing was charged in between.
                }
            }
            self.frames.lower_budget(size.0);
            let beyond = budget.used().saturating_sub(size.0);
            if beyond == 0 {
                continue; // Other threads gave it back meanwhile.
            }
            if self.swap.give_way(self) || self.drain_for_good(beyond) > 0 || self.frames.sweep_maps(MAPS_BATCH) > 0 {
                clean.progressed();
            } else if !clean.wait() && self.mailboxes.take_pins(None) == 0 && !self.await_landings(None, &mut awaited) {
                let used = Size(budget.used());
                // Sometimes: a budget cannot be lowered.
                self.frames.set_budget(before);
                self.tell_groups(before);
                return Err(Error::BudgetBusy { size, used });
            }
        }
        // Areas of compressed pages have a part of the budget, which is smaller now. It ends: areas
        // beyond their limits take nothing in.
        while self.swap.give_way(self) {}
        self.tell_groups(size.0);
        Ok(())
    }

    /// Gives back as many extents as have `bytes`, but one at least, or those of them that can be
    /// drained. Returns their number.
    fn drain_for_good(&self, bytes: u64) -> usize {
        let wanted = bytes.div_ceil(self.frames.extent_bytes()).max(1) as usize;
        self.lowering.drains.store(true, Ordering::Relaxed);
        let (mut given, mut candidates) = (0, wanted);
        // Pages on their way into memory can't be seen: with more extents to choose from there is
        // one without.
        while given == 0 && candidates < 2 * self.frames.extents() {
            given = self.drain(wanted, candidates, usize::MAX, Cost::Any);
            candidates *= 2;
        }
        self.lowering.drains.store(false, Ordering::Relaxed);
        given
    }

    /// Groups made before see it here; those made later read the budget under the table's lock.
    fn tell_groups(&self, budget: u64) {
        for group in self.groups.all() {
            group.budget_changed(budget / self.frames.page_size() as u64);
        }
    }

    /// Gives one extent of frames back to the system. False if no extent can be drained now, at
    /// this cost.
    pub(crate) fn drain_extent(&self, cost: Cost) -> bool {
        // A lowering of the budget has the turn of draining for as long as it takes.
        !self.lowers() && self.drain(1, 1, EXTENTS_LOOKED_AT, cost) > 0
    }

    /// Whether a lowering of the budget gives extents back just now. Relaxed: a hint.
    fn lowers(&self) -> bool {
        self.lowering.drains.load(Ordering::Relaxed)
    }

    /// While the budget is being lowered: waits for the next extents that are given back, which
    /// leave some room each, until `is_made` says that it is enough. Returns what it says last.
    fn await_lowering(&self, is_made: &mut dyn FnMut() -> bool) -> bool {
        for _ in 0..LOWERING_TURNS {
            if is_made() {
                return true;
            }
            if !self.lowers() {
                break;
            }
            sleep(LOWERING_PAUSE);
        }
        false
    }

    /// Gives up to `wanted` extents back to the system, of as many `candidates` among the next
    /// `looks`. Returns their number.
    fn drain(&self, wanted: usize, candidates: usize, looks: usize, cost: Cost) -> usize {
        let slots_are_free = self.swaps() && self.swap.may_have_free_slots();
        let may_leave = |frame| self.may_leave(frame, slots_are_free);
        let Some(drain) = self.frames.begin_drain(candidates, looks, may_leave) else { return 0 };
        let mut given = 0;
        for attempt in 0..DRAIN_ATTEMPTS {
            if attempt > 0 {
                sleep(Duration::from_micros(50));
                drain.sift();
            }
            self.drain_entries();
            for at in (0..drain.len()).filter(|&at| !drain.is_finished(at)) {
                let kept = drain.frames(at).filter(|&frame| self.is_worth_moving(frame)).count();
                if attempt == 0 && kept > 0 {
                    // For pages that move: of those that reclaim would take next, whosever they
                    // are. Some are in the extent itself.
                    self.reclaim_any(For::All, kept);
                }
                if cost == Cost::Unused && self.frames.available() < kept {
                    continue;
                }
                self.evict_all(drain.frames(at));
                given += usize::from(drain.finish(at));
                if given == wanted {
                    return given;
                }
            }
        }
        given
    }

    /// Evicts the pages in these frames whatever the policy thinks of them, as far as they are on a
    /// list and not pinned.
    fn evict_all(&self, frames: impl Iterator<Item = FrameId>) {
        let (mut of_files, mut anonymous) = (Batch::<BATCH_MAX>::new(), Batch::<BATCH_MAX>::new());
        for isolated in frames.filter_map(|frame| self.frames.isolate(frame)) {
            let pages = if self.is_anonymous(&isolated) { &mut anonymous } else { &mut of_files };
            pages.push(isolated);
            if anonymous.is_full() {
                self.evict_anonymous(std::mem::take(&mut anonymous));
            }
            if of_files.is_full() {
                self.evict_of_files(std::mem::take(&mut of_files));
            }
        }
        self.evict_anonymous(anonymous);
        self.evict_of_files(of_files);
    }

    /// Whether the page in a frame, if there is one, could leave memory now, by what can be seen
    /// from outside.
    fn may_leave(&self, frame: FrameId, slots_are_free: bool) -> bool {
        if !self.frames.is_in_use(frame) {
            return true;
        }
        let has_somewhere = match self.frames.owner(frame) {
            // Such a page counts as clean until it is written to again.
            ANONYMOUS => slots_are_free || self.swaps() && self.frames.kept_slot(frame).is_some(),
            _ => !self.frames.has_unclean(frame),
        };
        has_somewhere && !self.frames.has_pinned(frame)
    }

    /// Has pages of files leave memory that are where memory is to be given back: those of a group
    /// together.
    fn evict_of_files(&self, mut pages: Batch<BATCH_MAX>) {
        while let Some(first) = pages.first() {
            let number = self.frames.group(first.id());
            let alike = |page: &IsolatedFrame| self.frames.group(page.id()) == number;
            let (own, others) = pages.into_iter().partition::<Batch<BATCH_MAX>, _>(alike);
            pages = others;
            let Some(group) = self.groups.get(number) else { continue };
            let own: Batch<BATCH_MAX> = own.into_iter().filter_map(|page| self.move_listed(&group, page)).collect();
            let ids: ArrayVec<FrameId, BATCH_MAX> = own.iter().map(IsolatedFrame::id).collect();
            group.lists.unlink(&self.frames, &ids);
            let (mut evicted, mut leftovers) = (ArrayVec::<_, BATCH_MAX>::new(), Leftovers::default());
            for page in own {
                match self.evict(&group, page) {
                    Ok(frame) => evicted.push(frame),
                    Err(refused) => group.lists.put_back(&self.frames, refused.frame, &mut leftovers),
                }
            }
            self.count_evictions(&group, &evicted);
            self.release(&group, evicted);
            self.settle(&group, leftovers);
        }
    }

    /// Whether a page is in the frame that reclaim would let stay.
    fn is_worth_moving(&self, frame: FrameId) -> bool {
        let rank = Rank::of(&self.frames, frame);
        !rank.is_unlisted()
            && self.frames.is_in_use(frame)
            && (rank.level().index() > 0 || self.frames.is_referenced(frame))
    }

    /// Moves a page out of its frame, to another one that is free, if it is worth that: so room for
    /// page maps costs no group the pages that it uses. Returns the page if it is still where it
    /// was.
    fn move_listed(&self, group: &GroupState, page: IsolatedFrame) -> Option<IsolatedFrame> {
        if !self.is_worth_moving(page.id()) {
            return Some(page);
        }
        let Some(to) = self.frames.allocate() else { return Some(page) };
        let id = page.id();
        group.lists.unlink(&self.frames, &[id]);
        // Sometimes: a page moves to another frame.
        let mut leftovers = Leftovers::default();
        let moved = match self.frames.move_page(page, to) {
            Ok((page, _free)) => Ok(page),
            Err((page, _free)) => Err(page),
        };
        let (Ok(page) | Err(page)) = moved;
        // A page that couldn't move is in use, so it can't be evicted either.
        group.lists.put_back(&self.frames, page, &mut leftovers);
        self.settle(group, leftovers);
        None
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::{Advice, Builder, Group, Pagefold, Protection, SwapArea};
    use io::SimulatedDisk;

    const PAGE: u64 = 4096;

    /// What was beyond the new budget was given back by another thread between two looks at it.
    /// Then no extent was wanted, and a search for twice as many as none went on for ever.
    #[test]
    fn a_search_for_extents_of_no_bytes_ends() {
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 1 << 20);
        let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open("file").unwrap();
        file.read_at(&mut [0; 8], 0).unwrap();
        assert_eq!(mm.manager().drain_for_good(0), 1);
    }

    /// Memory that is mostly full of pages of a file, with one that `keep` makes among every fifty.
    /// Whether an extent could be drained without harm to pages that are used, and how many pages
    /// were evicted for that.
    fn drain_beside(group: &Group, mut keep: impl FnMut(u64)) -> (bool, u64) {
        let file = group.open("file").unwrap();
        file.advise(0..1, Advice::Random).unwrap();
        for number in 0..60 {
            (0..50).for_each(|page| file.read_at(&mut [0; 8], (50 * number + page) * PAGE).map(drop).unwrap());
            keep(number);
        }
        let evictions = || group.stats().evictions;
        let before = evictions();
        let is_drained = group.manager().drain_extent(Cost::Unused);
        (is_drained, evictions() - before)
    }

    fn group(builder: Builder) -> Group {
        builder.build().unwrap().group("tenant").build().unwrap()
    }

    fn builder() -> Builder {
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 64 << 20);
        // What wasn't there before can't be written, so it stays dirty.
        disk.set_capacity(0);
        Pagefold::builder().memory("16MiB").backend(disk)
    }

    /// To make room for a part of a page map, an extent's clean pages were evicted, also where
    /// another page in it couldn't leave memory: dirty, or without a place in swap. Nothing was
    /// gained by that, and the next extents were tried in the same way.
    #[test]
    fn no_page_is_evicted_for_an_extent_that_cannot_be_drained() {
        let (is_drained, evicted) = drain_beside(&group(builder()), |_| ());
        assert!(is_drained && evicted > 0, "{evicted} evictions where all pages can leave");

        let tenant = group(builder());
        let file = tenant.open_options().write(true).create(true).open("written").unwrap();
        let dirty = drain_beside(&tenant, |number| file.write_at(&[1], number * PAGE).map(drop).unwrap());
        assert_eq!(dirty, (false, 0), "dirty pages");

        let beside_anonymous = |tenant: &Group| {
            let space = tenant.space().unwrap();
            let area = space.map(1 << 20, Protection::ReadWrite).unwrap();
            drain_beside(tenant, |number| space.write_at(&[1], area.start + number * PAGE).unwrap())
        };
        assert_eq!(beside_anonymous(&group(builder())), (false, 0), "no swap");

        let mm = builder().swap_area(SwapArea::memory("128KiB")).build().unwrap();
        let filler = mm.group("filler").max("64KiB").build().unwrap().space().unwrap();
        let area = filler.map(1 << 20, Protection::ReadWrite).unwrap();
        let is_refused = (0..256).any(|page| filler.write_at(&[1], area.start + page * PAGE).is_err());
        assert!(is_refused && !mm.manager().swap.may_have_free_slots());
        assert_eq!(beside_anonymous(&mm.group("tenant").build().unwrap()), (false, 0), "swap is full");
    }
}
