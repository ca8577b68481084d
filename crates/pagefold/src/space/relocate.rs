//! Growing memory where it is, and moving it elsewhere.
//!
//! A page moves together with its frame from one page word to another. (If the frame has used up
//! its generations, it can't be given to another word, so the page's bytes are copied to a new
//! frame.) During the move both ranges are locked, and their entries make every access wait. So no
//! thread sees some of the pages moved and others not.
//!
//! A move can't fail half-way. All steps that can fail come before the first page leaves its old
//! place: all pages are brought into memory, their frames are isolated, and their words in the new
//! place are put in *loading*. A page can't move while it is in swap, because the checksum of its
//! slot covers the number of its page word, and the move changes that number.
//!
//! The parts of page maps with the new words are charged to the group (`manager::parts`) before any
//! access has to wait, because a charge may take reclaim. They are charged beside the parts with
//! the old words, which become idle only when the pages have moved.

use std::ops::Range;

use frames::{BeginLoad, Detach, IsolatedFrame, Loading, OwnedFrame, PageState, Unpaid};
use swap::SlotId;
use sync::atomic::Backoff;

use super::address::Pages;
use super::entry::Entry;
use super::fault_types::Fault;
use super::region::{REGION_PAGES, Region};
use super::{Space, SpaceState};
use crate::error::Error;
use crate::lru::admission::{Arrival, History};
use crate::lru::rank::Rank;
use crate::manager::parts::PartCharge;
use crate::reclaim::room::RoomsMade;

/// No mapping may grow past this byte of its file. So offsets in files fit into 64 bits, however
/// often mappings are moved and grown.
const FILE_END: u64 = 1 << 63;

/// A page that is about to move: its old place, its frame, and its new word.
struct Moving<'a> {
    from: (&'a Region, u64),
    /// Isolated, and on no list.
    frame: IsolatedFrame,
    to: Loading<'a>,
}

/// What a move needs in memory at once.
#[derive(Default)]
struct Need {
    pages: u64,
    /// Parts of page maps at the new place.
    parts: u64,
    /// The first page that isn't in memory, or that needs such a part. Without one, the move takes
    /// no memory.
    first: Option<u64>,
}

impl Space {
    /// Extends the memory in `range` to `len` bytes, at the same address. Every page of the range
    /// must be mapped. If the last page is a file's, the new part maps the pages of the file that
    /// follow it; otherwise the new part is zeros. Returns the new range.
    ///
    /// # Errors
    /// [`Error::BadAddress`], also if `len` isn't longer than the range; [`Error::NotMapped`];
    /// [`Error::Mapped`] if something is mapped in the new part; no room in the budget for the
    /// index. Nothing is changed then.
    pub fn grow(&self, range: Range<u64>, len: u64) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        let count = state.count(len)?;
        if count <= pages.count() {
            return Err(Error::BadAddress { address: range.start, len, why: "not longer than it is" });
        }
        let all = state.bytes(Pages { first: pages.first, end: pages.first + count });
        let all_pages = state.pages(&all)?;
        let more = Pages { first: pages.end, end: all_pages.end };
        state.manager().refuse_child()?;
        let _guard = state.lock(all_pages);
        state.check_mapped(pages)?;
        if !state.is_free(more) {
            return Err(Error::Mapped { range: state.bytes(more) });
        }
        let entry = state.index.entry(pages.end - 1);
        let mapped = entry.file().and_then(|number| state.mapped(number));
        if mapped.is_some_and(|mapped| mapped.page_of(more.end) > FILE_END >> state.page_shift) {
            return Err(Error::BadAddress { address: range.start, len, why: "past the end of any file" });
        }
        state.prepare(more)?;
        let entry = match entry.file() {
            Some(number) => {
                state.files.added(number, more.count());
                entry
            }
            None => entry.with_number(state.manager().spaces.numbers.fresh()),
        };
        state.change_entries(more, |_| entry);
        Ok(all)
    }

    /// Moves the memory in `range` to addresses from `to` on. Every page of the range must be
    /// mapped, and nothing may be mapped at the new addresses. The memory keeps its bytes,
    /// protections and advice. Accesses to the old and the new addresses wait during the move.
    ///
    /// All pages of the range that are in swap are brought into memory before the first page moves.
    /// So all anonymous pages of the range that were written to must fit into memory at once,
    /// together with their words at the new addresses. With system pages of 4 KiB, the words take
    /// 4 KiB for each 512 pages that hold such a page. Move large ranges in steps.
    ///
    /// # Errors
    /// [`Error::BadAddress`], also if the two ranges overlap; [`Error::NotMapped`];
    /// [`Error::Mapped`]; [`Error::AddressBusy`] if a page is pinned; no room in the budget for the
    /// index; [`Error::LimitReached`], with the address, if the group has no room for what was
    /// swapped out, or for the words of pages at the new addresses; errors of swap, with the
    /// address. Nothing is changed then.
    pub fn move_to(&self, range: Range<u64>, to: u64) -> Result<(), Error> {
        let state = &*self.state;
        let old = state.pages(&range)?;
        let len = range.end - range.start;
        let end =
            to.checked_add(len).ok_or(Error::BadAddress { address: to, len, why: "past the end of the space" })?;
        let new = state.pages(&(to..end))?;
        state.move_between(old, new)
    }

    /// Moves everything in `range` to addresses that the space chooses. Returns the new range. See
    /// also [`move_to`](Self::move_to).
    ///
    /// # Errors
    /// Those of [`move_to`](Self::move_to); [`Error::NoAddresses`].
    pub fn move_anywhere(&self, range: Range<u64>) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        let old = state.pages(&range)?;
        state.manager().refuse_child()?;
        state.addresses.prepare(state.index.account(), state.payer())?;
        loop {
            let len = range.end - range.start;
            let new = state.take_addresses(old.count()).ok_or(Error::NoAddresses { len })?;
            match state.move_between(old, new) {
                Ok(()) => return Ok(state.bytes(new)),
                Err(Error::Mapped { .. }) => {} // Something, at an address of a caller's choice.
                Err(error) => return Err(error),
            }
        }
    }
}

impl SpaceState {
    /// Moves pages, and then gives the addresses back at which nothing is mapped any more: the old
    /// ones or, after an error, the new ones. The new ones are given back even if a caller chose
    /// them: while they were mapped, other threads may have removed them from the free addresses.
    fn move_between(&self, old: Pages, new: Pages) -> Result<(), Error> {
        self.manager().refuse_child()?;
        let moved = if old.first < new.end && new.first < old.end {
            let (address, len) = (new.first << self.page_shift, new.count() << self.page_shift);
            Err(Error::BadAddress { address, len, why: "overlaps what is to be moved there" })
        } else {
            self.move_pages(old, new)
        };
        match &moved {
            Ok(()) => self.addresses.give(old),
            Err(_) => self.pass_over(new),
        }
        moved
    }

    fn move_pages(&self, old: Pages, new: Pages) -> Result<(), Error> {
        let guards = self.lock_both(old, new);
        self.look_for_guards(old)?; // Before any step that takes long, or needs memory.
        if !self.is_free(new) {
            return Err(Error::Mapped { range: self.bytes(new) });
        }
        let by = new.first.wrapping_sub(old.first);
        let parts = self.charge_parts(old, by)?;
        // Makes the tables for the ends of `new` before any entry of `new` is changed. If the move
        // fails, all entries of `new` are removed. Without these tables, that could also remove
        // entries of other threads' pages, in the granules at the ends of `new`.
        self.prepare(new)?;
        // While the pages are vacated, accesses to them wait, so that time has to be short.
        // Therefore pages in swap are brought back before.
        let vacated = self.bring_in_swapped(old).and_then(|()| self.vacate(old));
        vacated.inspect_err(|_| self.note_in_vain(new))?;
        let entered = self.enter_new(old, by).and_then(|()| self.make_records(old, by));
        let moving = entered.and_then(|()| self.reserve(old, by, parts)).inspect_err(|_| {
            drop(self.forget_pages(new)); // The old mappings keep their files open.
            self.restore(old);
        })?;
        moving.into_iter().for_each(|page| self.move_page(page));
        self.restore(new);
        // The parts with the new words replace those with the old words.
        self.give_back_idle_parts(old);
        let (closed, many) = self.forget_pages(old);
        drop(guards);
        drop(closed);
        if many {
            self.tidy();
        }
        Ok(())
    }

    /// Stores the entries of the vacated pages `old` at the new place, with new numbers. They are
    /// *vacated* there, too: they permit no access.
    fn enter_new(&self, old: Pages, by: u64) -> Result<(), Error> {
        let own = self.manager().spaces.numbers.fresh();
        // The last run's mapping: its old number and its new number. Successive runs of one
        // mapping, which differ in protection or advice, stay one mapping.
        let mut last = None;
        self.index.runs(old).try_for_each(|(run, entry)| {
            let new = run.moved(by);
            // The ends of a run may cut granules in the new place that aren't cut in the old one.
            self.prepare(new)?;
            let number = match entry.file().and_then(|number| Some((number, self.mapped(number)?))) {
                None => own,
                Some((before, mapped)) => {
                    let after = match last {
                        Some((of, after)) if of == before => after,
                        _ => self.files.add_moved(self.index.account(), self.payer(), &mapped, by.wrapping_neg())?,
                    };
                    last = Some((before, after));
                    self.files.added(after, run.count());
                    after
                }
            };
            self.change_entries(new, |_| entry.with_number(number));
            Ok(())
        })
    }

    /// Makes the records of the regions that pages move to. So [`reserve`](Self::reserve) charges
    /// no memory for records: it has taken pages off their lists by then, and reclaim couldn't
    /// evict them to make room.
    fn make_records(&self, old: Pages, by: u64) -> Result<(), Error> {
        let mut last = None;
        for (run, _) in self.index.runs(old).filter(|(_, entry)| entry.is_own()) {
            for (region, local) in self.index.regions(run) {
                for page in region.map.pages_in_memory(local) {
                    let to = (region.first() + page).wrapping_add(by);
                    if last != Some(to / REGION_PAGES) {
                        last = Some(to / REGION_PAGES);
                        self.region_for_page(to)?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Charges the parts of page maps that a move needs, and returns these charges. Fails at once
    /// if the group may not have all that the move needs in memory together.
    fn charge_parts(&self, old: Pages, by: u64) -> Result<Vec<PartCharge<'_>>, Error> {
        let (manager, group) = (&**self.manager(), self.group.state());
        let beyond = |need: &Need| {
            let room = group.room_for_pages(manager.budget_pages());
            (need.pages + manager.pages_for_parts(group, need.parts)).saturating_sub(room)
        };
        let mut need = self.need(old, by);
        let Some(page) = need.first else { return Ok(Vec::new()) };
        if beyond(&need) > 0 {
            // Idle parts, which are charged, too, leave the group less room.
            manager.reclaim_all_idle_parts(group, beyond(&need));
            need = self.need(old, by);
        }
        if beyond(&need) > 0 {
            return Err(self.at(page, manager.limit_reached(group)));
        }
        let charge = |_| manager.charge_part(group, 0, &|| true).map_err(|error| self.at(page, error));
        (0..need.parts).map(charge).collect()
    }

    /// Returns what must be in memory at once if the pages `old` move `by` pages up.
    fn need(&self, old: Pages, by: u64) -> Need {
        let part_pages = self.manager().frames.map_part_bytes() / size_of::<u64>() as u64;
        let (mut need, mut last_part) = (Need::default(), None);
        for (run, _) in self.index.runs(old).filter(|(_, entry)| entry.is_own()) {
            for (region, local) in self.index.regions(run) {
                for page in region.map.pages_in_memory(local) {
                    let (state, to) = (region.map.state(page), (region.first() + page).wrapping_add(by));
                    need.pages += u64::from(!matches!(state, PageState::Vacant { .. }));
                    let mut takes_memory = matches!(state, PageState::Swapped { .. });
                    if last_part.replace(to / part_pages) != Some(to / part_pages) {
                        // An idle part may be given back before the page moves there.
                        let is_used = |region: &Region| region.map.uses_part(to % REGION_PAGES);
                        let is_new = !self.index.look(to).1.is_some_and(is_used);
                        need.parts += u64::from(is_new);
                        takes_memory |= is_new;
                    }
                    if takes_memory {
                        need.first.get_or_insert(region.first() + page);
                    }
                }
            }
        }
        need
    }

    /// Brings those of `pages` that are in swap into memory. Some of them may be swapped out again
    /// before this returns.
    fn bring_in_swapped(&self, pages: Pages) -> Result<(), Error> {
        for (run, _) in self.index.runs(pages).filter(|(_, entry)| entry.is_own()) {
            for (region, local) in self.index.regions(run) {
                for page in region.map.pages_in_memory(local) {
                    if matches!(region.map.state(page), PageState::Swapped { .. }) {
                        let page = region.first() + page;
                        self.fault(region, page, Fault::Move { isolated: 0 }).map_err(|error| self.at(page, error))?;
                    }
                }
            }
        }
        Ok(())
    }

    /// Brings all pages that were written into memory, takes them off their lists, and puts their
    /// new words in *loading*. If that fails, gives all of
    /// it back, except that pages which came from swap stay in memory.
    fn reserve<'a>(&'a self, old: Pages, by: u64, parts: Vec<PartCharge<'a>>) -> Result<Vec<Moving<'a>>, Error> {
        let mut moving = Vec::new();
        let reserved = self.reserve_into(&mut moving, old, by, parts);
        match reserved {
            Ok(()) => Ok(moving),
            Err(error) => {
                moving.into_iter().for_each(|page| self.manager().list_again(page.frame));
                // No page has come to the parts that were made for the new words.
                self.give_back_idle_parts(old.moved(by));
                Err(error)
            }
        }
    }

    /// Gives back the idle parts of the page maps of the regions that contain `pages`.
    fn give_back_idle_parts(&self, pages: Pages) {
        for (region, _) in self.index.regions(pages) {
            self.manager().give_back_idle_parts(&region.map);
        }
    }

    fn reserve_into<'a>(
        &'a self,
        moving: &mut Vec<Moving<'a>>,
        old: Pages,
        by: u64,
        mut parts: Vec<PartCharge<'a>>,
    ) -> Result<(), Error> {
        let mut isolated = 0;
        for (run, _) in self.index.runs(old).filter(|(_, entry)| entry.is_own()) {
            for (region, local) in self.index.regions(run) {
                let first = region.first();
                for page in region.map.pages_in_memory(local) {
                    let Some(frame) = self.isolate(region, page, isolated)? else { continue };
                    isolated += u64::from(!Rank::of(&self.manager().frames, frame.id()).is_unlisted());
                    match self.reserve_page((first + page).wrapping_add(by), &mut parts, isolated) {
                        Ok(to) => moving.push(Moving { from: (region, page), frame, to }),
                        Err(error) => {
                            self.manager().list_again(frame);
                            return Err(error);
                        }
                    }
                }
            }
        }
        Ok(())
    }

    /// Brings a page into memory if it is in swap, and takes it off its list, as the caller has
    /// done with `isolated` pages before. Returns `None` if there is no page.
    fn isolate(&self, region: &Region, page: u64, isolated: u64) -> Result<Option<IsolatedFrame>, Error> {
        let manager = &**self.manager();
        let mut backoff = Backoff::new();
        loop {
            match region.map.state(page) {
                PageState::Vacant { .. } => return Ok(None),
                PageState::Swapped { .. } => {
                    let page = region.first() + page;
                    let fault = Fault::Move { isolated };
                    self.fault(region, page, fault).map_err(|error| self.at(page, error))?;
                    continue;
                }
                // A thread that found the page while it was still mapped is loading it.
                PageState::Loading => {
                    let _ = region.map.wait(page);
                    continue;
                }
                PageState::Resident { frame } => {
                    if let Some(isolated) = manager.frames.isolate(frame) {
                        if region.map.state(page) == (PageState::Resident { frame }) {
                            manager.unlist(&isolated);
                            return Ok(Some(isolated));
                        }
                        manager.return_isolated(isolated);
                    }
                }
            }
            // Perhaps the page is waiting for its list, or is being swapped out.
            manager.drain_entries();
            backoff.wait();
        }
    }

    /// Puts the new word of a page in *loading*. If the word's part of its page map isn't there,
    /// takes a charge from `parts`. There is none left only if things have changed since
    /// [`charge_parts`](Self::charge_parts): another thread was first to touch a page, or has given
    /// back a part that became idle meanwhile. Then the part is charged here.
    fn reserve_page<'a>(
        &'a self,
        page: u64,
        parts: &mut Vec<PartCharge<'a>>,
        isolated: u64,
    ) -> Result<Loading<'a>, Error> {
        let (manager, group) = (&**self.manager(), self.group.state());
        let Some(region) = self.region_for_page(page)? else { return Err(self.refuse(page, Entry::NONE)) };
        let local = page % REGION_PAGES;
        let (mut rooms_made, mut outrun) = (RoomsMade::default(), 0);
        let (mut backoff, mut part) = (Backoff::new(), parts.pop());
        loop {
            match manager.begin_load_and_pay(group, &region.map, local, &mut part) {
                Ok(BeginLoad::Begun(loading)) => {
                    parts.extend(part);
                    return Ok(loading);
                }
                // A thread that acts on an old entry has the word. It finds out that the entry has
                // changed, and releases the word.
                Ok(BeginLoad::Busy | BeginLoad::Resident) => backoff.wait(),
                // A region has a place for each of its pages.
                Ok(BeginLoad::NoRoom | BeginLoad::NoPlace) => {
                    let made = manager.make_room_for_word(group, &mut rooms_made);
                    made.map_err(|error| self.at(page, error))?;
                }
                Err(Unpaid) => {
                    part =
                        self.charge_part(region, local, isolated, &mut outrun).map_err(|error| self.at(page, error))?;
                }
            }
        }
    }

    /// Moves a page's frame to the new word. If the frame can't hold another page, copies its bytes
    /// to another frame.
    fn move_page(&self, Moving { from: (region, page), frame, to }: Moving<'_>) {
        let rank = Rank::of(&self.manager().frames, frame.id());
        let Some(mut frame) = self.take_away(region, page, frame) else { return };
        let mut left_over = None;
        if !frame.renew() {
            left_over = Some(std::mem::replace(&mut frame, self.another_frame()));
        }
        if let Some(old) = &left_over {
            frame.fill(|bytes| {
                let mut copy = vec![0; bytes.len()];
                old.copy_to(0, &mut copy);
                bytes.copy_from(0, &copy);
            });
        }
        let group = self.group.state();
        let arrival = Arrival::of_space(group.id, History::of_moved(rank));
        if rank.is_unlisted() {
            let id = frame.id();
            arrival.publish_unlisted(to, frame);
            self.manager().list_if_swapping(id);
        } else {
            self.manager().admit(group, to, frame, arrival, false);
        }
    }

    /// Takes a page out of its old word, and returns its frame, which isn't freed because the
    /// caller has isolated it. If the page kept a swap slot, frees the slot: its checksum covers
    /// the number of the old word, so the slot is useless in the page's new place.
    fn take_away<'a>(&'a self, region: &'a Region, page: u64, isolated: IsolatedFrame) -> Option<OwnedFrame<'a>> {
        let manager = &**self.manager();
        let mut backoff = Backoff::new();
        loop {
            match region.map.detach(page, 0, true) {
                Detach::Orphaned { slot, .. } => {
                    manager.free_slots(self.group.state(), SlotId::from_bits(slot).filter(|_| slot != 0));
                    return manager.frames.put_back(isolated).err();
                }
                Detach::Pinned | Detach::Busy | Detach::Loading | Detach::Unclean => backoff.wait(),
                // Impossible while this thread has the frame isolated.
                Detach::Listed { frame, .. } => return Some(frame),
                Detach::Vacant | Detach::Swapped { .. } => return None,
            }
        }
    }

    /// Returns a new frame for a page whose frame has used up its generations. Reclaims until there
    /// is a frame. The caller frees the old frame afterwards, so the number of frames in use stays
    /// the same.
    fn another_frame(&self) -> OwnedFrame<'_> {
        let mut backoff = Backoff::new();
        loop {
            match self.manager().frames.allocate() {
                Some(frame) => return frame,
                None if self.manager().reclaim_any(self.manager().page_for(self.group.state()), 1) == 0 => {
                    backoff.wait();
                }
                None => {}
            }
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::super::for_tests::{PAGE, Tenant};
    use super::*;
    use crate::{Pagefold, Protection, SwapArea};
    use test_disks::{Fault as DiskFault, FaultyBackend, Schedule, SimulatedDisk};

    const GIB: u64 = 1 << 30;

    /// A regression: a page that was moved away and back had the same entry as before. A reader
    /// loaded the entry before the first move, found the page's word vacant while the page was
    /// away, and loaded the same entry after the second move. From the equal entries, the reader
    /// concluded that the page had been mapped all the time and was never written, and returned
    /// zeros (ENTRY-1).
    #[test]
    fn memory_that_moved_away_and_back_has_another_entry() {
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let space = mm.group("tenant").build().unwrap().space().unwrap();
        let (here, there) = (GIB..GIB + 4 * PAGE, 3 * GIB..3 * GIB + 4 * PAGE);
        let mut seen = Vec::new();
        let mut look = |address: u64| {
            let entry = space.state.index.entry(address / PAGE);
            assert!(entry.may_read() && !seen.contains(&entry), "{entry:?} was there before");
            seen.push(entry);
        };
        for _ in 0..2 {
            space.map_at(here.clone(), Protection::ReadWrite).unwrap();
            space.write_at(&[7], here.start).unwrap();
            look(here.start);
            space.move_to(here.clone(), there.start).unwrap();
            space.move_to(there.clone(), here.start).unwrap();
            look(here.start);
            // The pages that memory grows by may have been somewhere else before, too.
            space.grow(here.clone(), 5 * PAGE).unwrap();
            look(here.end);
            space.unmap(here.start..here.end + PAGE).unwrap();
        }
    }

    /// The address of the page that a range of `pages` pages moves to, in the same table.
    fn beside(pages: u64) -> Pages {
        let first = Tenant::at(0) / PAGE + 512 - pages;
        Pages { first, end: first + pages }
    }

    /// Regression: pages that were being moved while the first swap area was added stayed off the
    /// lists, so they could never be swapped out. Likewise if the move failed.
    #[test]
    fn pages_that_move_while_the_first_swap_area_is_added_are_listed() {
        for succeeds in [true, false] {
            let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 100);
            it.space.map_at(Tenant::at(100)..Tenant::at(200), Protection::ReadWrite).unwrap();
            let written = (0..100).take_while(|&page| it.write(page).is_ok()).count() as u64;
            assert!(written > 20);
            let state = it.state();
            let old = state.pages(&(Tenant::at(0)..Tenant::at(100))).unwrap();
            let (new, by) = (beside(100), beside(100).first - old.first);
            let guards = state.lock_both(old, new);
            state.prepare(new).unwrap();
            state.vacate(old).unwrap();
            state.enter_new(old, by).unwrap();
            let moving = state.reserve(old, by, Vec::new()).unwrap();
            it.mm.add_swap(SwapArea::memory(801 * PAGE)).unwrap();
            let of = if succeeds {
                moving.into_iter().for_each(|page| state.move_page(page));
                state.restore(new);
                drop(state.forget_pages(old));
                by
            } else {
                moving.into_iter().for_each(|page| it.manager().list_again(page.frame));
                drop(state.forget_pages(new));
                state.restore(old);
                0
            };
            drop(guards);
            it.check_listed(of..of + written);
            (100..200).for_each(|page| it.write(page).unwrap());
        }
    }

    /// Returns a tenant with 200 pages, of which some are in swap. The others fill its memory.
    fn swapping() -> Tenant {
        let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
        let it = Tenant::new(mm, 64, 200);
        (0..200).for_each(|page| it.write(page).unwrap());
        it
    }

    /// Fails unless a move of the first `pages` pages fails, without waiting for memory for long,
    /// and changes nothing.
    fn fails_soon(it: &Tenant, pages: u64) {
        let before = it.direct_reclaims();
        let moved = it.space.move_to(Tenant::at(0)..Tenant::at(pages), beside(pages).first * PAGE);
        assert!(matches!(&moved, Err(error) if matches!(error.cause(), Error::LimitReached { .. })), "{moved:?}");
        let reclaims = it.direct_reclaims() - before;
        assert!(reclaims < 200, "{reclaims}, so it waited for its own pages");
        it.write(0).unwrap();
    }

    /// Regression: a move of more pages than may be in memory took as many of them as fit off the
    /// lists. Then it waited for these very pages to be evicted, for four seconds. Meanwhile
    /// accesses to the range failed.
    #[test]
    fn a_move_of_more_pages_than_may_be_in_memory_fails_at_once() {
        let it = swapping();
        fails_soon(&it, 200);
        let room = || it.group_state().room_for_pages(it.manager().budget_pages());
        let before = room();
        let there = (Tenant::at(0) + 2 * GIB)..(Tenant::at(200) + 2 * GIB);
        assert!(it.space.move_to(Tenant::at(0)..Tenant::at(200), there.start).is_err());
        assert_eq!(room(), before, "tables were made for the target");
    }

    /// Regression: a move to a region without a record took pages off the lists, and then needed
    /// memory for the record. It waited for its own pages to be evicted.
    #[test]
    fn a_move_to_another_region_makes_its_record_before_it_takes_pages_off_the_lists() {
        for less in 0..6 {
            let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
            let it = Tenant::new(mm, 64, 2 * REGION_PAGES);
            [0, REGION_PAGES].into_iter().for_each(|page| it.write(page).unwrap());
            let room = it.group_state().room_for_pages(it.manager().budget_pages());
            (0..room - less).for_each(|page| it.write(page).unwrap());
            let before = it.direct_reclaims();
            // When the page of the second region is moved, all others have been taken off the
            // lists.
            let _ = it.space.move_to(Tenant::at(0)..Tenant::at(2 * REGION_PAGES), Tenant::at(4 * REGION_PAGES));
            let reclaims = it.direct_reclaims() - before;
            assert!(reclaims < 200, "{reclaims}, so it waited for its own pages");
        }
    }

    /// As above, for pages that would fit into memory if others weren't pinned.
    #[test]
    fn a_move_that_gets_no_memory_beside_pinned_pages_fails_at_once() {
        let it = swapping();
        let pins: Vec<_> = (100..130).map(|page| it.space.page_at(Tenant::at(page)).unwrap()).collect();
        fails_soon(&it, 40);
        drop(pins);
        it.space.move_to(Tenant::at(0)..Tenant::at(40), beside(40).first * PAGE).unwrap();
        let by = beside(40).first - Tenant::at(0) / PAGE;
        for page in 0..40 {
            let mut bytes = vec![0; PAGE as usize];
            it.space.read_at(&mut bytes, Tenant::at(by + page)).unwrap();
            assert!(bytes == Tenant::contents(page), "page {page}");
        }
    }

    /// The pages whose words are in one part of a page map.
    const PART: u64 = 512;

    /// Returns a tenant with memory for the pages of 40 parts, whose pages can be swapped out.
    fn sparse() -> Tenant {
        let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
        Tenant::new(mm, 64, 40 * PART)
    }

    /// Regression: parts of page maps that no page needed counted as memory that the group couldn't
    /// have for the pages of a move. The move failed, although the parts could be given back.
    #[test]
    fn a_move_that_fits_once_idle_parts_are_given_back_succeeds() {
        let it = sparse();
        let pages = 40;
        it.space.unmap(Tenant::at(PART - pages)..Tenant::at(PART)).unwrap();
        (0..pages).for_each(|page| it.write(page).unwrap());
        drop(it.take_all());
        (1..27).for_each(|part| it.write(part * PART).unwrap());
        it.space.discard(Tenant::at(PART)..Tenant::at(40 * PART)).unwrap();
        assert!(it.group_state().room_for_pages(it.manager().budget_pages()) < pages);
        assert!((0..pages).all(|page| matches!(it.page(page), PageState::Swapped { .. })));
        it.space.move_to(Tenant::at(0)..Tenant::at(pages), beside(pages).first * PAGE).unwrap();
        let by = beside(pages).first - Tenant::at(0) / PAGE;
        for page in 0..pages {
            let mut bytes = vec![0; PAGE as usize];
            it.space.read_at(&mut bytes, Tenant::at(by + page)).unwrap();
            assert!(bytes == Tenant::contents(page), "page {page}");
        }
    }

    /// Regression: the words at the new place were left out. So the move first brought all pages
    /// into memory, and failed afterwards.
    #[test]
    fn a_move_whose_pages_fit_into_memory_but_not_with_their_new_words_fails_at_once() {
        let it = sparse();
        let parts = 24;
        (0..parts).for_each(|part| it.write(part * PART).unwrap());
        drop(it.take_all());
        let charged = it.group.charged();
        let swap_ins = it.group.stats().swap_ins;
        let moved = it.space.move_to(Tenant::at(0)..Tenant::at(parts * PART), Tenant::at(64 * PART));
        assert!(matches!(&moved, Err(error) if matches!(error.cause(), Error::LimitReached { .. })), "{moved:?}");
        assert_eq!((it.group.stats().swap_ins, it.group.charged()), (swap_ins, charged));
        let fewer = 16;
        it.space.move_to(Tenant::at(0)..Tenant::at(fewer * PART), Tenant::at(64 * PART)).unwrap();
        assert_eq!(it.group_state().parts.charged(), parts, "the new parts replace the old ones");
        for part in 0..parts {
            let mut bytes = vec![0; PAGE as usize];
            let to = if part < fewer { part + 64 } else { part };
            it.space.read_at(&mut bytes, Tenant::at(to * PART)).unwrap();
            assert!(bytes == Tenant::contents(part * PART), "part {part}");
        }
    }

    /// Regression: a move charged the parts for the new words after it had vacated the old place.
    /// While it waited for memory, so did all accesses to the old place.
    #[test]
    fn while_a_move_waits_for_memory_for_words_its_pages_are_where_they_were() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, PART);
        it.write(0).unwrap();
        let mut taken = it.take_all();
        let moved = it.while_it_waits(
            || it.space.move_to(Tenant::at(0)..Tenant::at(PART), Tenant::at(4 * PART)),
            || {
                assert!(it.state().index.entry(Tenant::at(0) / PAGE).may_read(), "vacated already");
                taken.clear();
            },
        );
        assert!(matches!(moved, (_, false) | (Ok(()), _)), "{moved:?}");
    }

    /// Regression: the parts for the new words stayed charged if a move failed after it had put
    /// some of the words in *loading*, here because a page that was swapped out meanwhile can't
    /// be read.
    #[test]
    fn a_move_that_fails_keeps_no_parts_at_the_new_place() {
        let disk = SimulatedDisk::default();
        disk.add_bytes("/swap", vec![0; 801 * PAGE as usize]);
        let backend = FaultyBackend::new(disk, Schedule::default());
        let area = SwapArea::path("/swap").overwrite(true);
        let it = Tenant::new(Pagefold::builder().backend(backend.clone()).swap_area(area), 64, 3 * PART);
        it.manager().doorbell.stop();
        it.write(2 * PART).unwrap();
        drop(it.take_all());
        [0, PART].into_iter().for_each(|page| it.write(page).unwrap());
        assert!(matches!(it.page(2 * PART), PageState::Swapped { .. }));
        let state = it.state();
        let old = state.pages(&(Tenant::at(0)..Tenant::at(3 * PART))).unwrap();
        let (new, by) = (old.moved(64 * PART), 64 * PART);
        let guards = state.lock_both(old, new);
        let parts = state.charge_parts(old, by).unwrap();
        assert_eq!((parts.len(), it.group_state().parts.charged()), (3, 6));
        state.prepare(new).unwrap();
        state.vacate(old).unwrap();
        state.enter_new(old, by).unwrap();
        state.make_records(old, by).unwrap();
        backend.set_schedule(Schedule::From(1, DiskFault::Errno(5)));
        let moving = state.reserve(old, by, parts);
        let error = moving.map(|pages| pages.len()).unwrap_err();
        assert!(matches!(error.cause(), Error::SwapReadFailed { .. }), "{error}");
        assert_eq!(it.group_state().parts.charged(), 3);
        drop(state.forget_pages(new));
        state.restore(old);
        drop(guards);
        backend.set_schedule(Schedule::Never);
        for page in [0, PART, 2 * PART] {
            let mut bytes = vec![0; PAGE as usize];
            it.space.read_at(&mut bytes, Tenant::at(page)).unwrap();
            assert!(bytes == Tenant::contents(page), "page {page}");
        }
    }

    /// A limit that was lowered below what the group has in memory, where nothing can be swapped
    /// out, doesn't prevent a move.
    #[test]
    fn pages_in_memory_move_even_above_a_lowered_limit() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 40);
        (0..40).for_each(|page| it.write(page).unwrap());
        let _ = it.group.set_max(20 * PAGE);
        it.space.move_to(Tenant::at(0)..Tenant::at(40), beside(40).first * PAGE).unwrap();
    }
}
