//! Swap readahead (*reading along*): when a fault brings a page back from swap, pages in the slots
//! next to that page's slot come back with it.
//!
//! Slots are allocated in the order in which pages leave memory. That is roughly the order in which
//! the pages were last used. So if a thread uses the pages in the same order again, it faults on
//! consecutive slots, whatever the pages' addresses are.
//!
//! The policy is the one for files (`read_ahead`), with slots in place of pages; each space has its
//! own streams. As for files, a stream is *believed* once two faults have continued it: from then
//! on, pages are read along. If the pages that were read along are used, the next fault reads more
//! pages along, up to 256 KiB. If they are evicted unused, the next fault reads fewer.
//!
//! The pages read along are in the same region as the wanted page, and in the slots next to its
//! slot, without gaps. So one request reads them all. Only pages that left memory at about the same
//! time as the wanted page are read along (`Shadow::left_with`). Pages in neighbouring slots may
//! have left at other times: a page keeps its slot when it comes back unchanged, and may leave
//! again at any time. Nothing is read along if a read from swap only copies memory, or if pages
//! have to be decompressed: then one request for several pages gains nothing.
//!
//! - A1. Memory for the neighbours is charged and taken, with reclaim if need be, before the first
//!   word is put in *loading*. The thread may then find that another thread is loading the wanted
//!   page, or that there is no room for the page's word. In both cases the thread gives the memory
//!   back before it waits.
//! - A2. A neighbour is treated as if it were faulted on. Its word is put in *loading*, without
//!   waiting for any thread, and its entry is looked at after that (S1). The run ends at the first
//!   neighbour that another thread is using, that isn't in its slot any more, or that may not be
//!   read.
//! - A3. A neighbour keeps its slot, however few slots are free. So if the neighbour isn't used, it
//!   is evicted again without a write, and the number of free slots stays the same. But the
//!   neighbour may displace another page from memory. If that page has been written to, it needs a
//!   new slot, and the neighbour, which keeps its own slot, has freed none. So if fewer than about
//!   half of the area's slots are free, a write fault reads no neighbours along.
//! - A4. If the request fails, or the wanted page's checksum is wrong, the wanted page is read
//!   again alone, and no error is reported for the neighbours. A neighbour whose checksum is wrong
//!   stays in its slot. The thread that wants this neighbour later gets the error.

use arrayvec::ArrayVec;
use frames::{Ahead, BeginLoad, FrameId, Loading, OwnedFrame, PageState};
use swap::{Owner, PageEntry, SlotId, SlotState};
use sync::atomic::{Ordering, fence_after_update};

use super::SpaceState;
use super::fault_types::{Fault, Memory, Past};
use super::region::{REGION_PAGES, Region};
use crate::manager::Manager;
use crate::memory::charges::ChargedFrame;
use crate::read_ahead::advice::Advice;
use crate::read_ahead::shares::Share;
use crate::read_ahead::{Bounds, Eagerness};
use crate::stats::Counters;

/// The limits for the pages that come along with one fault: their number, and their bytes.
const ALONG_MAX: usize = 64;
const ALONG_BYTES: u64 = 256 << 10;
/// The neighbours of one fault are at most 1 / `LIMIT_SHARE` of the pages that the group may hold.
const LIMIT_SHARE: u64 = 16;
/// A position in a stream has the area's number from this bit on. Below it is the slot's number in
/// the area, which has fewer bits.
const AREA_SHIFT: u32 = 32;

/// Neighbours of a page that may come along with it, and memory for them.
pub(super) struct Along<'a> {
    region: &'a Region,
    /// The wanted page's slot.
    slot: SlotId,
    /// The nearest one first. All are after the wanted page's slot, or all before it.
    neighbours: Vec<Neighbour>,
    frames: Vec<ChargedFrame<'a>>,
}

/// A page in a slot.
#[derive(Clone, Copy)]
struct Neighbour {
    local: u64,
    slot: SlotId,
    owner: Owner,
}

/// A neighbour whose word is in *loading*.
struct Coming<'a> {
    slot: SlotId,
    owner: Owner,
    loading: Loading<'a>,
    frame: ChargedFrame<'a>,
}

impl SpaceState {
    /// Takes memory for the neighbours that should be read along with a page that this thread is
    /// about to bring in. The caller must hold no page word.
    pub(super) fn look_along<'a>(
        &'a self,
        region: &'a Region,
        local: u64,
        fault: Fault<'_>,
        memory: &Memory<'_>,
    ) -> Option<Along<'a>> {
        let manager = &**self.manager();
        let PageState::Swapped { entry } = region.map.state(local) else { return None };
        let Some(PageEntry::Slot(slot)) = PageEntry::from_bits(entry) else { return None };
        if !fault.reads_slot(1 << self.page_shift) || memory.is_last() || !manager.swapping.areas.may_read_along(slot) {
            return None;
        }
        if fault.writes() && !manager.swapping.areas.may_keep(slot) {
            return None; // A3
        }
        let eagerness = match region.entry(region.first() + local).advice() {
            Advice::Random => return None,
            Advice::Sequential => Eagerness::Sequential,
            _ => Eagerness::Normal,
        };
        let neighbours = self.neighbours(manager, region, slot, eagerness);
        if neighbours.is_empty() {
            return None;
        }
        let mut frames = Vec::with_capacity(neighbours.len());
        manager.spare_frames(self.group.state(), neighbours.len(), &mut frames); // A1
        // Taking memory may have taken long.
        let is_there = matches!(region.map.state(local), PageState::Swapped { entry: now } if now == entry);
        is_there.then(|| Along { region, slot, neighbours: neighbours.to_vec(), frames })
    }

    /// Returns the pages in neighbouring slots that a thread is expected to need next after its
    /// fault on `slot`.
    fn neighbours(
        &self,
        manager: &Manager,
        region: &Region,
        slot: SlotId,
        eagerness: Eagerness,
    ) -> ArrayVec<Neighbour, ALONG_MAX> {
        let at = u64::from(slot.area()) << AREA_SHIFT | u64::from(slot.number());
        let is_used =
            |position: u64| match manager.swapping.areas.neighbour(slot, position.wrapping_sub(at).cast_signed())?.0 {
                SlotState::Cached { frame } => Some(!manager.memory.frames.is_unused_ahead(FrameId::new(frame))),
                _ => None,
            };
        let group = self.group.state();
        let limit = group.max().min(manager.memory.frames.budget().max() >> self.page_shift);
        // Relaxed: statistics.
        let bounds = Bounds {
            pages: 1 << (2 * AREA_SHIFT - 2),
            window: (ALONG_BYTES >> self.page_shift).min(ALONG_MAX as u64).min(limit / LIMIT_SHARE),
            eagerness,
            read: group.swapped.along.load(Ordering::Relaxed),
            wasted: group.swapped.along_wasted.load(Ordering::Relaxed),
            // Windows are so small that their pages can wait on any list.
            evicted: 0,
            waiting: 0,
        };
        let Ok(note) = manager.swapping.areas.note(slot) else { return ArrayVec::new() };
        let neighbour = |distance: i64| {
            let (SlotState::Swapped { owner }, slot) = manager.swapping.areas.neighbour(slot, distance)? else {
                return None;
            };
            if !group.left_together([note, manager.swapping.areas.note(slot).ok()?]) {
                return None;
            }
            let local = owner.number().checked_sub(region.map.first_word()).filter(|&local| local < REGION_PAGES)?;
            Some(Neighbour { local, slot, owner })
        };
        let missed = |share: &mut Share| {
            let window = share.streams.missed(at..at + 1, at, &is_used, &bounds)?;
            let (after, before) = window.next_to(at);
            let distances = (1..=after.cast_signed()).chain((1..=before.cast_signed()).map(|distance| -distance));
            let run: ArrayVec<_, ALONG_MAX> = distances.map_while(neighbour).take(ALONG_MAX).collect();
            share.streams.ends_early(after + before - run.len() as u64);
            Some(run)
        };
        let may_charge = |bytes| self.index.account().try_charge(self.payer(), bytes);
        self.read_ahead.here(may_charge, missed).flatten().unwrap_or_default()
    }

    /// Reads the page in the slot `wanted` into `frame`, and the pages of `along` into frames of
    /// their own, with as few requests as possible. Returns false if `frame` wasn't filled. Then
    /// the caller reads the wanted page alone.
    pub(super) fn read_along(&self, along: Along<'_>, wanted: (SlotId, Owner), frame: &OwnedFrame<'_>) -> bool {
        let (manager, group) = (&**self.manager(), self.group.state());
        if along.slot != wanted.0 {
            return false; // The page was in memory meanwhile.
        }
        let mut coming = self.begin_along(along);
        if coming.is_empty() {
            return false;
        }
        coming.sort_unstable_by_key(|page| page.slot);
        let at = coming.partition_point(|page| page.slot < wanted.0);
        let mut run: Vec<_> = coming.iter().map(|page| (page.slot, page.owner)).collect();
        run.insert(at, wanted);
        let mut frames: Vec<&OwnedFrame<'_>> = coming.iter().map(|page| &*page.frame).collect();
        frames.insert(at, frame);
        let mut good = vec![false; run.len()];
        let read = OwnedFrame::fill_all(frames, |into| {
            manager.swapping.areas.swap_in_run(&run, into, |at, is_good| good[at] = is_good)
        });
        let is_there = good.remove(at);
        if read.is_err() {
            return false; // A4
        }
        let mut came = 0;
        for (page, _) in coming.into_iter().zip(good).filter(|(_, is_good)| *is_good) {
            self.publish_along(page);
            came += 1;
        }
        group.swapped.read.add(came + u64::from(is_there));
        group.swapped.ins.add(came);
        Counters::add(&group.swapped.along, came);
        is_there
    }

    /// Puts the words of neighbours in *loading* (A2), as far as there is memory.
    fn begin_along<'a>(&self, along: Along<'a>) -> Vec<Coming<'a>> {
        let Along { region, neighbours, frames, .. } = along;
        let first = region.first();
        let begin = |(Neighbour { local, slot, owner }, frame)| {
            // If the page has left swap, and its part of the page map is gone, this makes no new
            // part.
            let Ok(BeginLoad::Begun(loading)) = region.map.begin_load_in_part(local) else { return None };
            fence_after_update(); // S1
            let is_there = loading.swapped() == Some(PageEntry::Slot(slot).bits());
            let is_permitted = Fault::Read.is_permitted(region.entry(first + local));
            if !is_there || !is_permitted {
                drop(loading);
                self.note_if_idle(region, local);
                return None;
            }
            Some(Coming { slot, owner, loading, frame })
        };
        neighbours.into_iter().zip(frames).map_while(begin).collect()
    }

    fn publish_along(&self, Coming { slot, loading, frame, .. }: Coming<'_>) {
        let (manager, group) = (&**self.manager(), self.group.state());
        // If the area is being removed by now, the page can't keep its slot.
        let may_keep = manager.swapping.areas.may_read_along(slot); // A3
        let keeps = may_keep && manager.swapping.areas.set_cached(slot, frame.id().number()).is_ok();
        let history =
            manager.swapping.areas.note(slot).map_or_else(|_| Default::default(), |note| group.history_of_note(note));
        let past = Past { unused: (!keeps).then_some(slot), kept: keeps.then_some(slot), history };
        self.publish(loading, frame, true, &past, Ahead::Yes);
        manager.swapping.free_slots(&manager.memory, group, past.unused);
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::super::for_tests::{PAGE, Tenant};
    use super::*;
    use crate::{Pagefold, SwapArea};
    use test_disks::SimulatedDisk;

    /// Regression: a page that had been read along, and left in an exchange before it was used,
    /// didn't count as wasted readahead.
    #[test]
    fn a_page_that_leaves_in_an_exchange_unused_counts_as_wasted() {
        const PAGES: u64 = 500;
        let disk = SimulatedDisk::default();
        disk.add_bytes("/swap", vec![0; 2001 * PAGE as usize]);
        let area = SwapArea::path("/swap").overwrite(true);
        let it = Tenant::new(Pagefold::builder().backend(disk).swap_area(area), 128, PAGES);
        (0..PAGES).for_each(|page| it.write(page).unwrap());
        let comes_along = |page: u64| {
            let before = it.group.stats().swap_read_along;
            it.space.read_at(&mut [0; 8], Tenant::at(page)).unwrap();
            it.group.stats().swap_read_along >= before + 4
        };
        (0..3).flat_map(|_| 0..PAGES).find(|&page| comes_along(page)).expect("pages come along with one");
        let (manager, region) = (it.manager(), it.region());
        manager.memory.drain_entries();
        // The pages that came along are the only ones that can leave.
        let is_used = |&page: &u64| {
            let PageState::Resident { frame } = it.page(page) else { return false };
            !manager.memory.frames.is_unused_ahead(frame)
        };
        let _pins: Vec<_> =
            (0..PAGES).filter(is_used).map(|page| it.space.page_at(Tenant::at(page)).unwrap()).collect();
        let swapped = Tenant::at(it.swapped(0)) / PAGE;
        let Some(PageEntry::Slot(slot)) = region.swapped_to(swapped) else { panic!() };
        let before = it.group.stats().swap_read_along_wasted;
        assert!(manager.swapping.exchange(&manager.memory, it.group_state(), slot, &|| true).is_some());
        assert_eq!(it.group.stats().swap_read_along_wasted, before + 1);
    }
}
