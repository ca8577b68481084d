//! Charges parts of page maps to groups: the parts with the words of spaces' pages. They are also
//! charged to the budget, as those of files are. A group counts them as metadata (`charge_pages`).
//!
//! | | |
//! |---|---|
//! | a fault needs a part that isn't there | the part is charged to the group first, without a page word in *loading* (S2 of `space`); the load then makes the part and uses up the charge |
//! | the part is given back, by any thread | that thread finds the group by the part's first word (`page_owners`), and uncharges the part |
//! | the space is dropped | its parts are given back before its page maps are dropped |
//!
//! - P1. A group's count of parts (`group::parts`) is that of the parts that are paid for
//!   (`frames::Payment`), and of charges in the hands of threads. So a group that has a part isn't
//!   forgotten, and its number isn't reused.
//! - P2. The pages charged for the parts are those that the parts need together, rounded up. If a
//!   page is larger than a part, several parts share a page. A thread charges the page before it
//!   raises the count, and uncharges it after it has lowered the count.

use frames::{BeginLoad, MapPart, PageMap, Payment, Unpaid};

use crate::error::Error;
use crate::group::state::GroupState;
use crate::manager::Manager;

/// The most page maps that are looked at for idle parts before pages are evicted.
const MAPS_LOOKED_AT: usize = 64;

/// A charge for a part of a page map that isn't there yet. If it is dropped, it is uncharged.
pub(crate) struct PartCharge<'a> {
    manager: &'a Manager,
    group: &'a GroupState,
}

impl Drop for PartCharge<'_> {
    fn drop(&mut self) {
        self.manager.uncharge_part(self.group);
    }
}

impl Manager {
    /// Begins to load a page of a space of `group`. If this makes a part of the page map, uses up
    /// `charge`, or else charges the part to the group without reclaim.
    ///
    /// # Errors
    /// If that charge fails. The caller then charges a part by other means, and tries again.
    pub(crate) fn begin_load_of_space<'a, 'm>(
        &'a self,
        group: &'a GroupState,
        map: &'m PageMap,
        page: u64,
        charge: &mut Option<PartCharge<'a>>,
    ) -> Result<BeginLoad<'m>, Unpaid> {
        loop {
            let mut payment = if charge.is_some() { Payment::Made } else { Payment::Due };
            let begun = map.begin_paid_load(page, &mut payment);
            if payment == Payment::Due {
                charge.take().into_iter().for_each(std::mem::forget);
            }
            if begun.is_ok() {
                return begun;
            }
            *charge = Some(self.try_charge_part(group).ok_or(Unpaid)?);
        }
    }

    /// Charges a part to a group, and reclaims if need be, as for a page. The caller has taken
    /// `isolated` pages of the group off their lists, and holds no other page word.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(crate) fn charge_part<'a>(&'a self, group: &'a GroupState, isolated: u64) -> Result<PartCharge<'a>, Error> {
        self.charge_part_by(group, |pages| self.charge_pages_beside(group, pages, isolated))
    }

    fn try_charge_part<'a>(&'a self, group: &'a GroupState) -> Option<PartCharge<'a>> {
        self.charge_part_by(group, |pages| self.try_charge_pages(group, pages).then_some(()).ok_or(())).ok()
    }

    /// Charges a part, with `charge` for the pages that it needs beside those of the other parts.
    fn charge_part_by<'a, E>(
        &'a self,
        group: &'a GroupState,
        charge: impl Fn(u64) -> Result<(), E>,
    ) -> Result<PartCharge<'a>, E> {
        let mut pages = 0;
        loop {
            let parts = group.parts.charged();
            let needed = self.pages_of_parts(parts + 1) - self.pages_of_parts(parts);
            if needed > pages {
                charge(needed - pages).inspect_err(|_| self.uncharge_pages_of_parts(group, pages))?;
                group.add_metadata(needed - pages);
                pages = needed;
                continue; // That may have taken long.
            }
            if group.parts.change(parts, parts + 1) {
                self.uncharge_pages_of_parts(group, pages - needed);
                return Ok(PartCharge { manager: self, group });
            }
        }
    }

    /// Uncharges a part. Returns how many pages this uncharges.
    fn uncharge_part(&self, group: &GroupState) -> u64 {
        loop {
            let parts = group.parts.charged();
            if group.parts.change(parts, parts - 1) {
                let pages = self.pages_of_parts(parts) - self.pages_of_parts(parts - 1);
                self.uncharge_pages_of_parts(group, pages);
                return pages;
            }
        }
    }

    fn uncharge_pages_of_parts(&self, group: &GroupState, pages: u64) {
        if pages > 0 {
            group.subtract_metadata(pages);
            self.uncharge_pages(group, pages);
        }
    }

    fn pages_of_parts(&self, parts: u64) -> u64 {
        (parts * self.frames.map_part_bytes()).div_ceil(self.frames.page_size() as u64)
    }

    // ---- giving parts back

    /// Uncharges a part that was paid for and is being given back. `word` is its first word.
    /// Returns how many pages this uncharges.
    fn part_returned(&self, word: u64) -> u64 {
        let group = self.spaces.group_of(word).and_then(|id| self.groups.get(id));
        debug_assert!(group.is_some(), "a group that has a part is forgotten (P1)");
        group.map_or(0, |group| self.uncharge_part(&group))
    }

    /// Gives back parts of page maps that have been idle for a while. See [`frames::Frames`].
    pub(crate) fn sweep_maps(&self, wanted: usize) -> usize {
        self.frames.sweep_maps(wanted, |word| {
            self.part_returned(word);
        })
    }

    /// Gives back parts of page maps like [`sweep_maps`](Self::sweep_maps), but looks at a bounded
    /// number of maps.
    pub(crate) fn sweep_some_maps(&self, wanted: usize) -> usize {
        self.frames.sweep_some_maps(wanted, |word| {
            self.part_returned(word);
        })
    }

    /// Gives back a part of a page map if it is idle. Returns whether it has.
    pub(crate) fn give_back_part(&self, part: MapPart) -> bool {
        self.frames.give_back(part, |word| {
            self.part_returned(word);
        })
    }

    /// Gives back the idle parts of a space's page map, given the map's first word. Returns how
    /// many pages this uncharges.
    pub(crate) fn give_back_idle_parts(&self, first_word: u64) -> u64 {
        let mut pages = 0;
        self.frames.give_back_idle_parts(first_word, |word| pages += self.part_returned(word));
        pages
    }

    /// Gives back all parts of a space's page map, whose pages no thread uses any more.
    pub(crate) fn give_back_parts(&self, map: &PageMap) {
        map.give_back_parts(|word| {
            self.part_returned(word);
        });
    }

    /// Gives back idle parts of a group's spaces until that uncharges `wanted` pages. Looks at a
    /// bounded number of maps, and only if there may be idle parts. Returns the number of pages.
    pub(crate) fn reclaim_idle_parts(&self, group: &GroupState, wanted: u64) -> u64 {
        let mut pages = 0;
        for _ in 0..MAPS_LOOKED_AT {
            if pages >= wanted {
                break;
            }
            let Some(first_word) = group.parts.next_due() else { break };
            pages += self.give_back_idle_parts(first_word);
        }
        pages
    }

    /// Looks at all of a group's maps for idle parts. Returns how many pages this uncharges.
    pub(crate) fn reclaim_all_idle_parts(&self, group: &GroupState) -> u64 {
        group.parts.may_be_idle();
        let words = std::iter::from_fn(|| group.parts.next_due());
        words.map(|first_word| self.give_back_idle_parts(first_word)).sum()
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use crate::{Error, Group, Pagefold, Protection};
    use test_disks::SimulatedDisk;

    const PAGE: u64 = 64 << 10;

    /// A page has room for 16 parts.
    #[test]
    fn parts_share_pages_and_a_charge_that_fails_leaves_nothing_charged() {
        let mm = Pagefold::builder().memory("16MiB").page_size(PAGE).backend(SimulatedDisk::default()).build().unwrap();
        let group = mm.group("small").max(8 * PAGE).build().unwrap();
        let (manager, state) = (group.manager(), group.state());
        let mut taken: Vec<_> = (0..6).map(|_| manager.take_frame(state).unwrap()).collect();
        let mut charges: Vec<_> = (0..16).map(|_| manager.charge_part(state, 0).unwrap()).collect();
        assert_eq!((group.charged(), state.parts.charged()), (7 * PAGE, 16));
        charges.push(manager.try_charge_part(state).unwrap());
        assert_eq!((group.charged(), state.charged_for_pages()), (8 * PAGE, 6));
        charges.drain(..2); // Of both pages.
        assert_eq!((group.charged(), state.parts.charged()), (7 * PAGE, 15));
        charges.push(manager.charge_part(state, 0).unwrap());
        taken.push(manager.take_frame(state).unwrap());
        assert!(manager.try_charge_part(state).is_none());
        assert!(matches!(manager.charge_part(state, 0), Err(Error::LimitReached { .. })));
        assert_eq!((group.charged(), state.parts.charged(), state.charged_for_pages()), (8 * PAGE, 16, 7));
        charges.clear();
        assert_eq!((group.charged(), state.parts.charged()), (7 * PAGE, 0));
        taken.clear();
        assert_eq!(group.charged(), 0);
    }

    /// Any thread that needs memory may give the part back.
    #[test]
    fn a_part_that_was_swept_is_not_charged_any_more() {
        const PART: u64 = 512 * 4096;
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let groups = ["a", "b"].map(|name| mm.group(name).max("400KiB").build().unwrap());
        let spaces = groups.each_ref().map(|group| group.space().unwrap());
        let write = |which: usize, parts: u64| {
            let base = spaces[which].map(64 * PART, Protection::ReadWrite).unwrap().start;
            (0..parts).for_each(|part| spaces[which].write_at(&[1], base + part * PART).unwrap());
            base
        };
        let bases = [write(0, 5), write(1, 7)];
        let before = groups.each_ref().map(Group::charged);
        let parts = || groups.each_ref().map(|group| group.state().parts.charged());
        assert_eq!(parts(), [5, 7]);
        spaces[0].discard(bases[0]..bases[0] + 64 * PART).unwrap();
        spaces[1].discard(bases[1]..bases[1] + 4 * PART).unwrap();
        assert_eq!(parts(), [5, 7], "the words are kept for later");
        let manager = groups[0].manager();
        assert_eq!((manager.sweep_maps(usize::MAX), manager.sweep_maps(usize::MAX), parts()), (9, 0, [0, 3]));
        let after = groups.each_ref().map(Group::charged);
        assert_eq!([before[0] - after[0], before[1] - after[1]], [2 * 5 * 4096, 2 * 4 * 4096]);
        drop(spaces);
        assert_eq!(groups.each_ref().map(|group| group.charged()), [0, 0]);
    }
}
