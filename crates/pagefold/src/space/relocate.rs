//! Moving memory to other addresses.
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

mod need;

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
use crate::manager::reclaim::room::RoomsMade;
use crate::memory::part_charge::PartCharge;

/// A page that is about to move: its old place, its frame, and its new word.
struct Moving<'a> {
    from: (&'a Region, u64),
    /// Isolated, and on no list.
    frame: IsolatedFrame,
    to: Loading<'a>,
}

impl Space {
    /// Moves the memory in `range` to addresses from `to` on. Every page of the range must be
    /// mapped, and nothing may be mapped at the new addresses. The memory keeps its bytes,
    /// protections and advice. Accesses to the old and the new addresses wait during the move.
    ///
    /// All pages of the range that are in swap are brought into memory before the first page moves.
    /// So all anonymous pages of the range that were written to must fit into memory at once,
    /// together with their words at the new addresses. With system pages of 4 KiB, the words take
    /// 4 KiB for each aligned block of 512 pages that contains such a page. Move large ranges in
    /// steps.
    ///
    /// # Errors
    /// [`Error::BadAddress`], also if the two ranges overlap; [`Error::NotMapped`];
    /// [`Error::Mapped`]; [`Error::AddressBusy`] if a page is pinned; no room in the budget for the
    /// index; [`Error::LimitReached`], with the address, if the group has no room for the pages
    /// that are in swap, or for the words of pages at the new addresses; errors of swap, with the
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
        state.manager().memory.refuse_child()?;
        state.addresses.prepare(state.index.account(), state.payer())?;
        loop {
            let len = range.end - range.start;
            let new = state.take_addresses(old.count()).ok_or(Error::NoAddresses { len })?;
            match state.move_between(old, new) {
                Ok(()) => return Ok(state.bytes(new)),
                Err(Error::Mapped { .. }) => {} // Another caller has mapped something there.
                Err(error) => return Err(error),
            }
        }
    }
}

impl SpaceState {
    /// Moves pages. Then gives back the addresses at which nothing is mapped now: the old ones or,
    /// after an error, the new ones. The new addresses are given back even if a caller chose them.
    /// The reason is that they may have been mapped during the failed move. Then other threads may
    /// have removed them from the free addresses.
    fn move_between(&self, old: Pages, new: Pages) -> Result<(), Error> {
        self.manager().memory.refuse_child()?;
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
        // fails, all entries of `new` are removed. Without these tables, the removal could also
        // affect other threads' pages, in the granules at the ends of `new`.
        self.prepare(new)?;
        // Accesses to vacated pages wait, so the pages may be vacated only briefly. Therefore pages
        // in swap are brought back first.
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

    /// Copies the entries of the vacated pages `old` to the new place, with new mapping numbers.
    /// The copies are *vacated*, too: they permit no access.
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

    /// Returns the anonymous pages of a range that are in memory, in swap or being loaded, each as
    /// its region and its number in the region. May miss pages whose state changes meanwhile.
    fn own_pages(&self, pages: Pages) -> impl Iterator<Item = (&Region, u64)> {
        let own = self.index.runs(pages).filter(|(_, entry)| entry.is_own());
        let parts = own.flat_map(|(run, _)| self.index.regions(run));
        parts.flat_map(|(region, local)| region.map.pages_in_memory(local).map(move |page| (region, page)))
    }

    /// Makes the records of the regions that pages move to. This can't be left to
    /// [`reserve`](Self::reserve), which takes the pages off their lists: the charge for a record
    /// may need reclaim, and reclaim can't evict pages that are on no list.
    fn make_records(&self, old: Pages, by: u64) -> Result<(), Error> {
        let mut last = None;
        for (region, page) in self.own_pages(old) {
            let to = (region.first() + page).wrapping_add(by);
            if last.replace(to / REGION_PAGES) != Some(to / REGION_PAGES) {
                self.region_for_page(to)?;
            }
        }
        Ok(())
    }

    /// Brings those of `pages` that are in swap into memory. Some of them may be swapped out again
    /// before this returns.
    fn bring_in_swapped(&self, pages: Pages) -> Result<(), Error> {
        for (region, page) in self.own_pages(pages) {
            if matches!(region.map.state(page), PageState::Swapped { .. }) {
                let page = region.first() + page;
                self.fault(region, page, Fault::Move { isolated: 0 }).map_err(|error| self.at(page, error))?;
            }
        }
        Ok(())
    }

    /// Brings all pages that were written into memory, takes them off their lists, and puts their
    /// new words in *loading*. If that fails, undoes these steps, except that pages that came from
    /// swap stay in memory.
    fn reserve<'a>(&'a self, old: Pages, by: u64, parts: Vec<PartCharge<'a>>) -> Result<Vec<Moving<'a>>, Error> {
        let mut moving = Vec::new();
        let reserved = self.reserve_into(&mut moving, old, by, parts);
        match reserved {
            Ok(()) => Ok(moving),
            Err(error) => {
                moving.into_iter().for_each(|page| self.manager().memory.list_again(page.frame));
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
        for (region, page) in self.own_pages(old) {
            let Some(frame) = self.isolate(region, page, isolated)? else { continue };
            isolated += u64::from(!Rank::of(&self.manager().memory.frames, frame.id()).is_unlisted());
            match self.reserve_page((region.first() + page).wrapping_add(by), &mut parts, isolated) {
                Ok(to) => moving.push(Moving { from: (region, page), frame, to }),
                Err(error) => {
                    self.manager().memory.list_again(frame);
                    return Err(error);
                }
            }
        }
        Ok(())
    }

    /// Brings a page into memory if it is in swap, and takes it off its list. `isolated` is the
    /// number of pages that the caller has already taken off their lists. Returns `None` if the
    /// page is vacant.
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
                    if let Some(isolated) = manager.memory.frames.isolate(frame) {
                        if region.map.state(page) == (PageState::Resident { frame }) {
                            manager.memory.unlist(&isolated);
                            return Ok(Some(isolated));
                        }
                        manager.memory.return_isolated(isolated);
                    }
                }
            }
            // Perhaps the page is waiting for its list, or is being swapped out.
            manager.memory.drain_entries();
            backoff.wait();
        }
    }

    /// Puts the new word of a page in *loading*. If the part of the page map that contains the word
    /// isn't there, uses up one of the charges in `parts`. If `parts` is empty, makes a new charge.
    /// That happens only if another thread, after the call of [`charge_parts`](Self::charge_parts),
    /// has touched a further page, or has given back a part that had become idle.
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
            match manager.memory.begin_load_and_pay(group, &region.map, local, &mut part) {
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

    /// Moves a page's frame to the new word. If the frame has used up its generations, copies the
    /// page to another frame.
    fn move_page(&self, Moving { from: (region, page), frame, to }: Moving<'_>) {
        let rank = Rank::of(&self.manager().memory.frames, frame.id());
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
        self.manager().memory.admit_anonymous(group, to, frame, arrival, !rank.is_unlisted());
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
                    manager.swapping.free_slots(
                        &manager.memory,
                        self.group.state(),
                        SlotId::from_bits(slot).filter(|_| slot != 0),
                    );
                    return manager.memory.frames.put_back(isolated).err();
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
            match self.manager().memory.frames.allocate() {
                Some(frame) => return frame,
                None if self.manager().reclaim_any(self.manager().memory.page_for(self.group.state()), 1) == 0 => {
                    backoff.wait();
                }
                None => {}
            }
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests;
