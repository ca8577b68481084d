//! Parts of page maps (chunks of `frames`): charging one with reclaim, and giving idle ones back.
//! `memory::part_charge` explains how parts are charged, and what becomes of the charges (P1, P2).
//!
//! - P3. A group lists those of its maps that may have idle parts (`group::parts`). While a map is
//!   listed, its place (`page_owners`) has a mark. The list and the mark change together, under the
//!   list's lock. A thread may find a part idle after it has freed pages of the part, or has ended
//!   a load without a page. It then lists the map, unless the map has the mark. A thread that is
//!   about to look for idle parts of a map first takes the map off the list, and clears the mark.
//!   So the first thread makes the part idle, and then reads the mark. The second thread clears the
//!   mark, and then reads the parts' counts. Both have a fence between their two steps. So if the
//!   first thread still sees the mark, the second thread finds the part idle:
//!   ```text
//!     frees the last page                    looks at the map
//!       the part's count = 0                   the place: not noted
//!       fence                                  fence
//!       the place: noted already?              the parts' counts
//!   ```
//!   Before the second thread looks, the map may be dropped, and its words may be reused for a map
//!   of another group. Then the thread gives back idle parts of the new map, and uncharges them
//!   from the new map's group. It leaves the list and the mark of that group alone.
//!
//!   A few idle parts aren't noted: a part that the system has refused to take back; a part that
//!   another thread was about to use when the part's last page left, but then didn't use; a part
//!   whose load ended with a panic of a backend; and, if a page is larger than a part, the parts
//!   that are left when a thread has given back enough parts for the pages that it wanted. A thread
//!   finds these parts when it looks at all maps. It does so when nothing else can be reclaimed,
//!   and again before a call fails.

use frames::{MapPart, PageMap};
use sync::atomic::{Ordering, fence};

use crate::error::Error;
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::memory::part_charge::PartCharge;

/// The most page maps that are looked at for idle parts before pages are evicted.
const MAPS_LOOKED_AT: usize = 64;

impl Manager {
    /// Charges a part to a group, and reclaims if need be, as for a page. The caller has taken
    /// `isolated` pages of the group off their lists. The caller must hold no page word, with one
    /// exception: while it moves pages, it holds the words at the pages' new addresses. Reclaim
    /// needs nothing from the threads that wait for these words, because they hold no memory and no
    /// other page word.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if nothing can be reclaimed, or once `is_needed` returns false.
    pub(crate) fn charge_part<'a>(
        &'a self,
        group: &'a GroupState,
        isolated: u64,
        is_needed: &dyn Fn() -> bool,
    ) -> Result<PartCharge<'a>, Error> {
        self.memory.charge_part_by(group, |pages| self.charge_pages_beside(group, pages, isolated, is_needed))
    }

    /// Uncharges a part that was paid for and is being given back. `word` is its first word.
    /// Returns how many pages this uncharges.
    fn part_returned(&self, word: u64) -> u64 {
        let group = self.spaces.group_of(word).and_then(|id| self.memory.groups.get(id));
        debug_assert!(group.is_some(), "a group that has a part is forgotten (P1)");
        group.map_or(0, |group| self.memory.uncharge_part(&group))
    }

    /// Gives back parts of page maps that have been idle for a while. See [`frames::Frames`].
    pub(crate) fn sweep_maps(&self, wanted: usize) -> usize {
        self.memory.frames.sweep_maps(wanted, |word| {
            self.part_returned(word);
        })
    }

    /// Gives back parts of page maps like [`sweep_maps`](Self::sweep_maps), but looks at a bounded
    /// number of maps.
    pub(crate) fn sweep_some_maps(&self, wanted: usize) -> usize {
        self.memory.frames.sweep_some_maps(wanted, |word| {
            self.part_returned(word);
        })
    }

    /// Gives back a part of a page map if it is idle. Returns whether it has.
    pub(crate) fn give_back_part(&self, part: MapPart) -> bool {
        self.memory.frames.give_back(part, |word| {
            self.part_returned(word);
        })
    }

    /// Gives back the idle parts of a space's page map.
    pub(crate) fn give_back_idle_parts(&self, map: &PageMap) {
        self.give_back_some_parts(map.first_word(), u64::MAX);
    }

    /// Gives back idle parts of a space's page map, given the map's first word, until `wanted`
    /// pages are uncharged. Returns the number of pages.
    fn give_back_some_parts(&self, first_word: u64, wanted: u64) -> u64 {
        let parts =
            wanted.saturating_mul(self.memory.frames.page_size() as u64).div_ceil(self.memory.frames.map_part_bytes());
        let mut pages = 0;
        self.memory.frames.give_back_idle_parts(first_word, parts as usize, |word| pages += self.part_returned(word));
        pages
    }

    /// Gives back all parts of a space's page map, whose pages no thread uses any more.
    pub(crate) fn give_back_parts(&self, map: &PageMap) {
        map.give_back_parts(|word| {
            self.part_returned(word);
        });
    }

    /// Gives back idle parts of a group's spaces until `wanted` pages are uncharged. Looks at a
    /// bounded number of maps, and only at maps that were noted. Returns the number of pages.
    pub(crate) fn reclaim_idle_parts(&self, group: &GroupState, wanted: u64) -> u64 {
        let mut pages = 0;
        for _ in 0..MAPS_LOOKED_AT {
            if pages >= wanted {
                break;
            }
            let unmark = |word| self.spaces.mark_idle(word, false);
            let Some(first_word) = group.parts.take_due(unmark) else { break };
            pages += self.give_back_noted_parts(group, first_word, wanted - pages);
        }
        pages
    }

    /// Gives back idle parts of a map that this thread has taken off the group's list (P3).
    fn give_back_noted_parts(&self, group: &GroupState, first_word: u64, wanted: u64) -> u64 {
        fence(Ordering::SeqCst); // P3
        let pages = self.give_back_some_parts(first_word, wanted);
        if pages >= wanted {
            self.spaces.add_due(group, first_word); // There may be more.
        }
        pages
    }

    /// Gives back idle parts like [`reclaim_idle_parts`](Self::reclaim_idle_parts), but looks at
    /// each of the group's maps once, even at those that weren't noted.
    pub(crate) fn reclaim_all_idle_parts(&self, group: &GroupState, wanted: u64) -> u64 {
        let (mut pages, mut from) = (0, 0);
        while pages < wanted
            && let Some(first_word) = group.parts.map_from(from)
        {
            pages += self.give_back_some_parts(first_word, wanted - pages);
            from = first_word + 1;
        }
        pages
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
        let mut charges: Vec<_> = (0..16).map(|_| manager.charge_part(state, 0, &|| true).unwrap()).collect();
        assert_eq!((group.charged(), state.parts.charged()), (7 * PAGE, 16));
        charges.push(manager.memory.try_charge_part(state).unwrap());
        assert_eq!((group.charged(), state.charged_for_pages()), (8 * PAGE, 6));
        charges.drain(..2); // Of both pages.
        assert_eq!((group.charged(), state.parts.charged()), (7 * PAGE, 15));
        charges.push(manager.charge_part(state, 0, &|| true).unwrap());
        taken.push(manager.take_frame(state).unwrap());
        assert!(manager.memory.try_charge_part(state).is_none());
        assert!(matches!(manager.charge_part(state, 0, &|| true), Err(Error::LimitReached { .. })));
        assert_eq!((group.charged(), state.parts.charged(), state.charged_for_pages()), (8 * PAGE, 16, 7));
        charges.clear();
        assert_eq!((group.charged(), state.parts.charged()), (7 * PAGE, 0));
        taken.clear();
        assert_eq!(group.charged(), 0);
    }

    /// Regression: a thread tried to charge a page for a part of a page map. Meanwhile another
    /// thread charged a page that had room for both threads' parts. When the first thread's charge
    /// was refused, the first thread's call failed, although its part fitted into the other
    /// thread's page.
    #[test]
    fn a_part_is_charged_if_it_fits_into_a_page_that_another_thread_has_charged() {
        let mm = Pagefold::builder().memory("16MiB").page_size(PAGE).backend(SimulatedDisk::default()).build().unwrap();
        let group = mm.group("small").max(4 * PAGE).build().unwrap();
        let (manager, state) = (group.manager(), group.state());
        let mut first = None;
        let second = manager.memory.charge_part_by(state, |pages| {
            first = manager.charge_part(state, 0, &|| true).ok();
            Err(pages)
        });
        assert!(second.is_ok() && first.is_some());
        assert_eq!((group.charged(), state.parts.charged()), (PAGE, 2));
        drop((first, second));
        assert_eq!((group.charged(), state.parts.charged()), (0, 0));
    }

    /// Two of the regions of a space have idle parts.
    #[test]
    fn idle_parts_are_given_back_as_far_as_they_are_wanted() {
        const PART: u64 = 512 * 4096;
        const GIB: u64 = 1 << 30;
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let group = mm.group("a").max("400KiB").build().unwrap();
        let (manager, state) = (group.manager(), group.state());
        let space = group.space().unwrap();
        space.map_at(GIB..3 * GIB, Protection::ReadWrite).unwrap();
        let parts = [0, 1, 2, 3, 600, 601].map(|part| GIB + part * PART);
        parts.iter().for_each(|at| (0..2).for_each(|page| space.write_at(&[1], at + page * 4096).unwrap()));
        parts.iter().for_each(|at| space.discard(*at..at + 4096).unwrap());
        assert_eq!(state.parts.take_due(|_| ()), None, "each part still has a page");
        assert_eq!((manager.reclaim_idle_parts(state, 9), manager.reclaim_all_idle_parts(state, 9)), (0, 0));
        let discard = |parts: &[u64]| parts.iter().for_each(|at| space.discard(*at..at + PART).unwrap());
        discard(&parts[1..]);
        assert_eq!(state.parts.charged(), 6);
        assert_eq!((manager.reclaim_all_idle_parts(state, 1), state.parts.charged()), (1, 5));
        assert_eq!((manager.reclaim_idle_parts(state, 1), state.parts.charged()), (1, 4));
        assert_eq!((manager.reclaim_idle_parts(state, 2), state.parts.charged()), (2, 2), "of both regions");
        assert_eq!((manager.reclaim_idle_parts(state, 9), state.parts.charged()), (1, 1));
        discard(&parts[..1]);
        assert_eq!((manager.reclaim_idle_parts(state, 9), state.parts.charged()), (1, 0), "noted again");
    }

    /// Regression: a thread was about to look at a map, and the map was dropped. Its words were
    /// reused for a map of another group, where the thread found idle parts. The thread marked the
    /// new map as noted, although no list had it. So from then on, no thread of the other group
    /// noted the map.
    #[test]
    fn a_look_at_a_map_that_is_another_groups_by_now_leaves_the_notes_of_that_group_alone() {
        const PART: u64 = 512 * 4096;
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let groups = ["a", "b"].map(|name| mm.group(name).max("400KiB").build().unwrap());
        let (manager, [a, b]) = (groups[0].manager(), groups.each_ref().map(Group::state));
        let space_of = |group: &Group| {
            let space = group.space().unwrap();
            let base = space.map(8 * PART, Protection::ReadWrite).unwrap().start;
            (0..4).for_each(|part| space.write_at(&[1], base + part * PART).unwrap());
            (space, base)
        };
        let unmark = |word| manager.spaces.mark_idle(word, false);
        let (space, base) = space_of(&groups[0]);
        space.discard(base..base + PART).unwrap();
        let word = a.parts.take_due(unmark).unwrap();
        drop(space);
        let (space, base) = space_of(&groups[1]);
        space.discard(base..base + 2 * PART).unwrap();
        assert_eq!(b.parts.take_due(unmark), Some(word), "it has the same words");
        assert_eq!((manager.give_back_noted_parts(a, word, 1), b.parts.charged()), (1, 3));
        space.discard(base + 2 * PART..base + 3 * PART).unwrap();
        assert_eq!((manager.reclaim_idle_parts(b, 9), b.parts.charged()), (2, 1));
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
