//! Drains extents. An extent (a large block of frames) is given back to the system only as a whole.
//! So an extent with a page that can't leave memory isn't drained: draining it would evict all its
//! other pages and gain nothing.
//!
//! While the budget is being lowered, all extents that have to be given back are drained together.
//! So one scan of all free frames finds the free frames in each of these extents.

use std::time::Duration;

use arrayvec::ArrayVec;
use frames::{FrameId, IsolatedFrame};
use swap::Need;
use sync::atomic::Ordering;
use sync::thread::sleep;

use crate::lru::batch::{self, BATCH_MAX, Batch, Leftovers};
use crate::lru::rank::Rank;
use crate::manager::Manager;
use crate::memory::lowering::Cost;
use crate::memory::ranking::For;
use crate::swapping::swap_out::SwappedOut;

/// The number of extents that are looked at to find one that can be drained.
const EXTENTS_LOOKED_AT: usize = 16;
/// How often a drain tries to evict the pages of its extents. A page that was pinned may be
/// evictable moments later.
const DRAIN_ATTEMPTS: u32 = 3;
/// How long a drain waits for frames of its extents that other threads *hold*, because they are
/// loading or evicting the frames' pages. `BEGUN_WAIT` is for a drain that has evicted pages, but
/// given back no extent yet.
const HELD_WAIT: Duration = Duration::from_millis(1);
const BEGUN_WAIT: Duration = Duration::from_secs(1);
/// The shortest and the longest pause between two attempts. Within these bounds, a pause is half of
/// the time that the drain has waited so far.
const DRAIN_PAUSE: Duration = Duration::from_micros(50);
const DRAIN_PAUSE_MAX: Duration = Duration::from_millis(10);

/// What a drain has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Drained {
    /// The number of extents given back.
    pub(super) given: usize,
    /// Whether another thread held a frame of an extent in the drain's last attempt. If so, the
    /// extent may be drainable moments later.
    pub(super) is_held: bool,
}

impl Manager {
    /// Gives back enough extents to free `bytes` bytes, but at least one extent, as far as extents
    /// can be drained.
    pub(super) fn drain_for_good(&self, bytes: u64) -> Drained {
        let wanted = bytes.div_ceil(self.memory.frames.extent_bytes()).max(1) as usize;
        self.memory.lowering.drains.store(true, Ordering::Relaxed);
        let (mut drained, mut candidates) = (Drained::default(), wanted);
        // An extent can't be drained while one of its pages is being loaded, and the candidates are
        // chosen without a check for such pages. So if no candidate can be drained, the number of
        // candidates is doubled, and so on until one of them is an extent without such a page.
        while drained.given == 0 && candidates < 2 * self.memory.frames.extents() {
            drained = self.drain(wanted, candidates, usize::MAX, Cost::Any);
            candidates *= 2;
        }
        self.memory.lowering.drains.store(false, Ordering::Relaxed);
        drained
    }

    /// Gives one extent of frames back to the system. Returns false if no extent can be drained now
    /// by evicting only the pages that `cost` permits.
    pub(crate) fn drain_extent(&self, cost: Cost) -> bool {
        // While the budget is being lowered, only the lowering thread drains extents.
        !self.memory.lowers() && self.drain(1, 1, EXTENTS_LOOKED_AT, cost).given > 0
    }

    /// Gives up to `wanted` extents back to the system. Looks at the next `looks` extents, chooses
    /// up to `candidates` of them with the fewest pages in memory, and drains these.
    fn drain(&self, wanted: usize, candidates: usize, looks: usize, cost: Cost) -> Drained {
        self.drain_pausing(wanted, candidates, looks, cost, &mut sleep)
    }

    /// Does the work of [`drain`](Self::drain). `pause` waits for other threads.
    ///
    /// While another thread holds a frame of an extent, no page of this extent is evicted. The
    /// reason: if the thread keeps the frame, the extent can't be given back, and the evictions
    /// gain nothing. Evictions to an area of compressed pages would even use up the stock of memory
    /// that later drains need.
    ///
    /// The same applies while a thread changes a page of an extent, or keeps a guard for changing
    /// it. But a user may keep such a guard for ever, so the drain doesn't wait long: for at most
    /// `HELD_WAIT` if it has evicted nothing yet, otherwise until it has made `DRAIN_ATTEMPTS`
    /// attempts. An extent with such a page is chosen last.
    fn drain_pausing(
        &self,
        wanted: usize,
        candidates: usize,
        looks: usize,
        cost: Cost,
        pause: &mut dyn FnMut(Duration),
    ) -> Drained {
        let slots_are_free = self.memory.swaps() && self.swapping.areas.may_have_free_slots();
        let may_leave = |frame| self.memory.may_leave(frame, slots_are_free);
        self.memory.drain_entries();
        let Some(drain) = self.memory.frames.begin_drain(candidates, looks, may_leave) else {
            return Drained::default();
        };
        let mut drained = Drained::default();
        let (mut is_begun, mut attempts, mut waited) = (false, 0, Duration::ZERO);
        loop {
            let mut is_refused = false;
            drained.is_held = false;
            for at in (0..drain.len()).filter(|&at| !drain.is_finished(at)) {
                if drain.has_held(at) {
                    drained.is_held = true;
                    continue;
                }
                if drain.is_being_changed(at) {
                    is_refused |= is_begun;
                    continue;
                }
                let kept = drain.frames(at).filter(|&frame| self.memory.is_worth_moving(frame)).count();
                let missing = kept.saturating_sub(self.memory.frames.available());
                if missing > 0 {
                    // Frees frames that this extent's pages can move to. Reclaim takes the coldest
                    // pages of any group, and some of them may lie in the extent itself.
                    self.reclaim_any(For::All, missing);
                }
                if cost == Cost::Unused && self.memory.frames.available() < kept {
                    is_refused = true;
                    continue;
                }
                self.evict_all(drain.frames(at));
                if drain.finish(at) {
                    drained.given += 1;
                } else {
                    is_begun = true;
                    let is_held = drain.has_held(at);
                    drained.is_held |= is_held;
                    is_refused |= !is_held;
                }
                if drained.given == wanted {
                    return drained;
                }
            }
            if (0..drain.len()).all(|at| drain.is_finished(at)) {
                return drained;
            }
            attempts += u32::from(is_refused);
            // A drain that has evicted pages, but given back no extent yet, may wait longer.
            let longest = if is_begun && drained.given == 0 { BEGUN_WAIT } else { HELD_WAIT };
            if attempts == DRAIN_ATTEMPTS || waited >= longest {
                return drained;
            }
            let next = (waited / 2).clamp(DRAIN_PAUSE, DRAIN_PAUSE_MAX);
            pause(next);
            waited += next;
            drain.sift();
            self.memory.drain_entries();
        }
    }

    /// Evicts the pages in these frames regardless of the policy, if they are on a list and not
    /// pinned.
    pub(super) fn evict_all(&self, frames: impl Iterator<Item = FrameId>) {
        let (mut of_files, mut anonymous) = (Batch::<BATCH_MAX>::new(), Batch::<BATCH_MAX>::new());
        for isolated in frames.filter_map(|frame| self.memory.frames.isolate(frame)) {
            let pages = if self.memory.is_anonymous(&isolated) { &mut anonymous } else { &mut of_files };
            pages.push(isolated);
            if anonymous.is_full() {
                self.evict_anonymous(std::mem::take(&mut anonymous));
            }
            if of_files.is_full() {
                self.memory.evict_of_files(std::mem::take(&mut of_files));
            }
        }
        self.evict_anonymous(anonymous);
        self.memory.evict_of_files(of_files);
    }

    /// Swaps out pages because the memory that they are in is to be given back, whether or not
    /// reclaim would choose these pages.
    pub(crate) fn evict_anonymous(&self, pages: Batch<BATCH_MAX>) {
        let kind_of = |frame: &IsolatedFrame| {
            (self.memory.frames.group(frame.id()), Rank::of(&self.memory.frames, frame.id()).is_unlisted())
        };
        batch::divide(pages, kind_of, |(number, is_unlisted), own| {
            let Some(group) = self.memory.groups.get(number) else { return };
            if !is_unlisted {
                let ids: ArrayVec<FrameId, BATCH_MAX> = own.iter().map(IsolatedFrame::id).collect();
                group.lists.unlink(&self.memory.frames, &ids);
            }
            let SwappedOut { gone, stay } = self.swap_out(&group, own, Need::Drain, group.now());
            self.memory.count_wasted(&gone, &group);
            self.memory.count_left(&group, &gone);
            if is_unlisted {
                self.memory.release_anonymous(&group, gone);
                stay.into_iter().for_each(|refused| self.memory.return_isolated(refused.frame));
            } else {
                self.memory.release(&group, gone);
                let mut leftovers = Leftovers::default();
                for refused in stay {
                    group.lists.put_back(&self.memory.frames, refused.frame, &mut leftovers);
                }
                self.memory.settle(&group, leftovers);
            }
        });
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
pub(super) mod tests {
    use super::*;
    use crate::{Advice, Builder, File, Group, Pagefold, Protection, SwapArea};
    use test_disks::SimulatedDisk;

    const PAGE: u64 = 4096;
    /// Fewer than the frames of an extent.
    const PAGES: u64 = 20;

    /// A regression: while a thread was lowering the budget, another thread uncharged all that was
    /// beyond the new budget. So the first thread wanted 0 extents. Its search doubled this number
    /// until it found an extent, and so never ended.
    #[test]
    fn a_search_for_extents_of_no_bytes_ends() {
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 1 << 20);
        let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open("file").unwrap();
        file.read_at(&mut [0; 8], 0).unwrap();
        assert_eq!(mm.manager().drain_for_good(0).given, 1);
    }

    /// Reads 3,000 pages of a file, and calls `keep` after every fifty. `keep` may add one page of
    /// another kind. Then tries to drain an extent at [`Cost::Unused`]. Returns whether that
    /// succeeded, and how many pages it evicted.
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

    /// A group with [`PAGES`] pages of a file in memory, all in one extent.
    pub(in crate::manager::reclaim) fn group_with_pages() -> (Group, File) {
        loop {
            let group = group(builder());
            let file = group.open("file").unwrap();
            file.advise(0..1, Advice::Random).unwrap();
            (0..PAGES).for_each(|page| file.read_at(&mut [0; 8], page * PAGE).map(drop).unwrap());
            group.manager().memory.drain_entries();
            // If this thread moved to another CPU meanwhile, that CPU may have taken a frame of
            // another extent.
            if group.manager().memory.frames.extents() == 1 {
                return (group, file);
            }
        }
    }

    /// Drains an extent. Calls `pause` in place of each pause, with the number of the pause,
    /// counted from 1. Returns the numbers of extents given back and of pages evicted.
    fn drain_with(group: &Group, mut pause: impl FnMut(u32)) -> (usize, u64) {
        let before = group.stats().evictions;
        let mut pauses = 0;
        let drained = group.manager().drain_pausing(1, 1, 1, Cost::Any, &mut |_| {
            pauses += 1;
            pause(pauses);
        });
        (drained.given, group.stats().evictions - before)
    }

    /// Isolates a page, as any thread does that is about to evict or move it.
    pub(in crate::manager::reclaim) fn isolate_one(manager: &Manager) -> IsolatedFrame {
        manager
            .memory
            .frames
            .populated()
            .find_map(|frame| manager.memory.frames.isolate(frame))
            .expect("a page on a list")
    }

    /// A regression: another thread had isolated one page of an extent. A drain evicted all other
    /// pages of the extent, and then couldn't give the extent back. If pages were swapped out to
    /// compressed memory, a few such drains left no memory for the next drain.
    #[test]
    fn a_drain_evicts_nothing_while_another_thread_has_a_frame_of_the_extent() {
        let (group, _file) = group_with_pages();
        let frames = &group.manager().memory.frames;
        let mut isolated = Some(isolate_one(group.manager()));
        let mut pauses = 0;
        assert_eq!(drain_with(&group, |number| pauses = number), (0, 0), "it stays isolated");
        assert!(pauses > 2, "{pauses}");
        let drained = drain_with(&group, |number| {
            if let Some(frame) = isolated.take_if(|_| number == 2) {
                frames.put_back(frame).unwrap();
            }
        });
        assert_eq!(drained, (1, PAGES), "another thread puts it back");
    }

    /// Here another thread isolates a page after the drain has begun to evict. The drain then waits
    /// longer.
    #[test]
    fn a_drain_that_has_begun_waits_for_a_page_that_another_thread_isolates() {
        let (group, file) = group_with_pages();
        let frames = &group.manager().memory.frames;
        let in_use = || frames.populated().filter(|&frame| frames.is_in_use(frame)).count();
        let mut isolated = Some(isolate_one(group.manager()));
        let (mut pinned, mut last) = (None, 0);
        let drained = drain_with(&group, |number| {
            last = number;
            if let Some(frame) = isolated.take_if(|_| [1, 20].contains(&number)) {
                frames.put_back(frame).unwrap();
            }
            if number == 1 {
                pinned = Some(file.page_at(0).unwrap());
            } else if pinned.take().is_some() {
                assert_eq!(in_use(), 1, "all others were evicted");
                isolated = Some(isolate_one(group.manager()));
            }
        });
        // The page that was pinned is worth keeping: it has moved to another extent.
        assert_eq!((drained, last), ((1, PAGES - 1), 20));
    }

    /// A regression: an extent with a guard for changing a page looked emptier than the other
    /// extents. So it was drained first, in vain.
    #[test]
    fn an_extent_with_a_page_that_is_being_changed_is_drained_last() {
        let tenant = group(builder());
        let file = tenant.open_options().write(true).open("file").unwrap();
        let mut guards = Vec::new();
        let (is_drained, _) = drain_beside(&tenant, |number| {
            // In the first extents only.
            guards.extend((number < 5).then(|| file.page_mut_at_owned(50 * number * PAGE).unwrap()));
        });
        assert!(is_drained, "an extent with such a page was chosen");
    }

    fn group(builder: Builder) -> Group {
        builder.build().unwrap().group("tenant").build().unwrap()
    }

    fn builder() -> Builder {
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 64 << 20);
        // Pages beyond the file's old end can't be written, so they stay dirty.
        disk.set_capacity(0);
        Pagefold::builder().memory("16MiB").backend(disk)
    }

    /// A regression: to make room for a part of a page map, an extent's clean pages were evicted
    /// even if another page in the extent couldn't leave memory: it was dirty, or there was no
    /// place in swap for it. So the extent couldn't be given back, and the evictions gained
    /// nothing. Then the next extents were tried in the same way.
    #[test]
    fn no_page_is_evicted_for_an_extent_that_cannot_be_drained() {
        let (is_drained, evicted) = drain_beside(&group(builder()), |_| ());
        assert!(is_drained && evicted > 0, "{evicted} evictions where all pages can leave");

        let tenant = group(builder());
        let file = tenant.open_options().write(true).create(true).open("written").unwrap();
        let dirty = drain_beside(&tenant, |number| file.write_at(&[1], number * PAGE).map(drop).unwrap());
        assert_eq!(dirty, (false, 0), "dirty pages");

        let tenant = group(builder());
        let file = tenant.open_options().write(true).open("file").unwrap();
        let mut guards = Vec::new();
        let changed = drain_beside(&tenant, |number| {
            let pages = (50 * number..50 * number + 50).step_by(10);
            guards.extend(pages.map(|page| file.page_mut_at_owned(page * PAGE).unwrap()));
        });
        assert_eq!(changed, (false, 0), "pages that are being changed");

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
        assert!(is_refused && !mm.manager().swapping.areas.may_have_free_slots());
        assert_eq!(beside_anonymous(&mm.group("tenant").build().unwrap()), (false, 0), "swap is full");
    }
}
