//! Charging pages to another group: isolate, recharge, put back.
//!
//! Room is made in the new group before the first page comes, and never for the sake of a page on
//! its way: reclaim would take the pages that came just before. For each page the new group is
//! charged first and the old group uncharged last, so both limits hold. In between, the page's
//! frame is
//! - *isolated*, so no other thread takes it off a list, or puts it on one, by the group that it
//!   names;
//! - *frozen* while the group in its record changes, so no other thread pins the page, writes to it
//!   or removes it by the old group;
//! - *clean*, or nothing is done: a dirty page is counted in its group, and counted out of that
//!   group once it was written back.
//!
//! A walk that comes upon the frame by an old link isolates it, finds that it is on another list,
//! and gives it back (`lru::list`).

use std::ops::Range;

use frames::{FrameId, PageState};

use crate::error::Error;
use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::lru::batch::{Batch, Leftovers};
use crate::manager::Manager;
use crate::manager::charges::Charge;

impl Manager {
    /// Makes room for `pages` pages in `to`, at the cost of those that it has: called before any of
    /// them comes, so that none of them goes again for the next. Nothing is evicted for pages that
    /// don't fit into the whole limit.
    pub(crate) fn make_place(&self, to: &GroupState, pages: u64) {
        self.drain_entries();
        let left = || to.max().saturating_sub(to.charged());
        if left() < pages {
            self.drain_charges(Some(to.id)); // What CPUs have in stock comes first.
        }
        let missing = pages.saturating_sub(left());
        if missing > 0 && pages <= to.max() {
            to.walk.forget();
            self.reclaim_group(to, missing as usize);
        }
    }

    /// How many of a file's `pages` [`recharge`](Self::recharge) would move, at most.
    pub(crate) fn movable(&self, file: &FileState, pages: Range<u64>, to: &GroupState) -> u64 {
        let is_movable = |&page: &u64| match file.map.state(page) {
            PageState::Resident { frame } => self.frames.group(frame) != to.id,
            _ => false,
        };
        file.map.pages_in_memory(pages).filter(is_movable).count() as u64
    }

    /// Charges to `to` those of a file's `pages` that are in memory, and charged to `from` if that
    /// is given; but for those in use at this moment, or not clean. Nothing is reclaimed for it:
    /// see [`make_place`](Self::make_place). Returns how many.
    ///
    /// # Errors
    /// [`Error::LimitReached`]; pages so far are charged to `to`.
    pub(crate) fn recharge(
        &self,
        file: &FileState,
        pages: Range<u64>,
        from: Option<u32>,
        to: &GroupState,
    ) -> Result<u64, Error> {
        self.drain_entries();
        let mut recharged = 0;
        for page in file.map.pages_in_memory(pages) {
            let PageState::Resident { frame } = file.map.state(page) else { continue };
            let group = self.frames.group(frame);
            if group == to.id || from.is_some_and(|from| from != group) {
                continue;
            }
            let charge = self.charge_one(to)?;
            if self.recharge_page(file, page, frame, to) {
                charge.hand_over();
                recharged += 1;
            }
        }
        Ok(recharged)
    }

    fn charge_one<'a>(&'a self, group: &'a GroupState) -> Result<Charge<'a>, Error> {
        let is_charged = || self.charge(group, 1).pages == 1;
        if is_charged() || self.drain_charges(Some(group.id)) > 0 && is_charged() {
            return Ok(Charge::new(self, group));
        }
        Err(self.limit_reached(group))
    }

    /// Moves a page for which `to` is charged.
    pub(crate) fn recharge_page(&self, file: &FileState, page: u64, frame: FrameId, to: &GroupState) -> bool {
        let Some(isolated) = self.frames.isolate(frame) else { return false };
        let mut leftovers = Leftovers::default();
        // Before it was isolated the frame may have gone to another page, or group; now it can't.
        let is_it = file.map.state(page) == PageState::Resident { frame };
        let from = self.groups.get(self.frames.group(frame)).filter(|from| is_it && from.id != to.id);
        let Some(from) = from else {
            leftovers.misplaced.push(isolated);
            self.settle(to, leftovers);
            return false;
        };
        from.lists.unlink(&self.frames, &[frame]);
        let moved = self.frames.set_group(&isolated, to.id);
        if moved {
            to.lists.enter(&self.frames, Batch::<1>::from([isolated]), &mut leftovers);
            self.settle(to, leftovers);
            self.uncharge(&from, 1);
        } else {
            from.lists.put_back(&self.frames, isolated, &mut leftovers);
            self.settle(&from, leftovers);
        }
        moved
    }
}
