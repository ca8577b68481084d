//! The record of a region: page words for a part of a space, aligned to its size, while something
//! is mapped there that isn't a run of whole regions, or a page of it was written.
//!
//! A record has the same page map for as long as the space, and is one region's after another's.
//! What it is now says its *stay*: which region, and how often the record has been one. That never
//! comes back.
//!
//! - REGION-1. A record becomes another region's only when none of its words is in use. A thread
//!   that has a word in use (in *loading*, or resident in a frame that it has frozen or pinned) and
//!   then finds the record to be its region's knows that it stays so until the thread lets go; and
//!   so the entries that it finds in it are that region's. A fence on each side, as in S1:
//!   ```text
//!     toucher: word = loading                thread that frees the region: stay = none
//!              fence                                                        fence
//!              stay: my region? then entry                                  a word in use? not yet another one's
//!   ```
//!   The link to the record goes before its stay ends, so a thread that finds the link in place
//!   after its fence (`Way::is_still`) knows the same.
//! - REGION-2. A thread that comes late may have a word in use for a moment although the record is
//!   another region's. It finds that out, and lets go: to that region's users it is one that found
//!   its page unmapped.
//! - REGION-3. A record that was made for a region is the region's only when a thread has found the
//!   link to it. Of two threads that make one each, one is too late:
//!   ```text
//!     late toucher, of an earlier time       this record's maker              the other maker
//!     has found this record: it was the region's
//!                                            entries, stay: my region?        link to another record
//!     word = loading, stay, entry: fine      link: too late; stay = none
//!     publishes a page here, where no thread finds it
//!   ```
//!   So the stay is *pending* until then. Threads that found the link end that, before they look at
//!   anything else here.

use frames::{MapInWord, MapNumber, NUMBER_SHIFT, PageMap, PageMaps, PageState};
use swap::PageEntry;
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering, fence};

use super::entry::Entry;
use super::tree::{COUNT_MAX, count_of, look_in_region, region_link};
use crate::error::Error;
use crate::manager::Manager;
use crate::manager::page_owners::SEGMENT_SHIFT;

/// Pages in a region, as a power of two: a segment of page words.
pub(super) use super::tree::REGION_SHIFT;
pub(super) const REGION_PAGES: u64 = 1 << REGION_SHIFT;
const _: () = assert!(REGION_SHIFT == SEGMENT_SHIFT, "a region has one segment");

/// Bytes that a record takes, rounded up.
pub(super) const RECORD_BYTES: u64 = 256;
/// Bits of the count in a stay; above them is the region's number plus 1, or 0.
const COUNT_BITS: u32 = COUNT_MAX.count_ones();
/// In a stay: no thread has found a link to it yet (REGION-3).
const PENDING: u64 = 1 << 63;

/// See the module's head.
pub(super) struct Region {
    stay: AtomicU64,
    pub(super) map: PageMap,
    in_word: MapInWord,
    /// At hand for entries.
    maps: PageMaps,
}

impl Region {
    /// No region's as yet.
    pub(super) fn new(manager: &Manager) -> Result<Self, Error> {
        let map = PageMap::new(Arc::clone(&manager.frames), REGION_PAGES).map_err(Error::no_memory)?;
        manager.frames.tables().open_of_map(map.number()).map_err(Error::no_memory)?;
        let maps = PageMaps::new(Arc::clone(&manager.frames));
        Ok(Self { stay: AtomicU64::new(0), in_word: MapInWord(map.number().bits() << NUMBER_SHIFT), map, maps })
    }

    /// Where a page is, if it is in swap.
    pub(super) fn swapped_to(&self, page: u64) -> Option<PageEntry> {
        match self.map.state(page % REGION_PAGES) {
            PageState::Swapped { entry } => PageEntry::from_bits(entry),
            _ => None,
        }
    }

    pub(super) fn map_number(&self) -> MapNumber {
        self.in_word.number()
    }

    /// The number of the region's first page in the space; of no page if it is none's.
    pub(super) fn first(&self) -> u64 {
        (self.stay.load(Ordering::Acquire) >> COUNT_BITS).wrapping_sub(1) << REGION_SHIFT
    }

    /// Makes this the region with that number as soon as a link leads here
    /// ([`linked`](Self::linked)): the one that is returned. By its only owner.
    pub(super) fn begin(&self, number: u64) -> u64 {
        let count = (self.stay.load(Ordering::Relaxed) & COUNT_MAX) + 1;
        self.stay.store(PENDING | (number + 1) << COUNT_BITS | count, Ordering::Release);
        region_link(self.map_number(), count)
    }

    /// The caller has found this link, which leads here; or led here once.
    #[inline]
    pub(super) fn linked(&self, link: u64) {
        // Relaxed: where the link was found, what `begin` stored before is seen.
        let stay = self.stay.load(Ordering::Relaxed);
        if stay & PENDING != 0 && stay & COUNT_MAX == count_of(link) {
            // Release, as in `begin`. It fails if another thread did it.
            let _ = self.stay.compare_exchange(stay, stay & !PENDING, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Makes this no region's any more. Returns whether it can ever be one again.
    pub(super) fn end(&self) -> bool {
        let count = self.stay.load(Ordering::Relaxed) & COUNT_MAX;
        self.stay.store(count, Ordering::Release);
        count < COUNT_MAX
    }

    /// Whether a word is in use (REGION-1). After the fence that follows [`end`](Self::end).
    pub(super) fn is_in_use(&self) -> bool {
        self.map.pages_in_memory(0..REGION_PAGES).next().is_some()
    }

    /// What is mapped at a page of the space. Nothing if the record isn't its region's.
    #[inline]
    pub(super) fn entry(&self, page: u64) -> Entry {
        loop {
            let stay = self.stay.load(Ordering::Acquire);
            if stay >> COUNT_BITS != (page >> REGION_SHIFT) + 1 {
                return Entry::NONE;
            }
            let (entry, ..) = look_in_region(&self.maps, self.in_word, page, page + 1);
            fence(Ordering::Acquire); // What was found there was found before.
            if self.stay.load(Ordering::Relaxed) == stay {
                return Entry(entry);
            }
        }
    }

    /// Whether that is mapped at a page.
    pub(super) fn has_entry(&self, page: u64, entry: Entry) -> bool {
        self.entry(page) == entry
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use crate::space::entry::Entry;
    use io::SimulatedDisk;

    /// Two threads made a record for one region, in which something had just been mapped again. A
    /// third thread had found the first one's record when that was the region's before. It took a
    /// word of it in use, and found that the record was its region's; then the link was the second
    /// thread's. The page that was written there was found by no thread, and kept its frame, and
    /// the record, for good.
    #[test]
    fn a_record_is_its_regions_only_when_a_link_leads_to_it() {
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let manager = mm.manager();
        let region = Region::new(manager).unwrap();
        let entry = |number: u64| Entry(number << 6 | 7);
        let fill = |entry: Entry| {
            let word = |at| manager.frames.tables().word_of_map(region.map_number(), at);
            (0..1 << super::super::tree::GRANULE_SHIFT).for_each(|at| word(at).store(entry.0, Ordering::Release));
        };
        let (number, page) = (5, (5 << REGION_SHIFT) + 77);
        fill(entry(1));
        let before = region.begin(number);
        region.linked(before);
        assert!(region.has_entry(page, entry(1)) && region.first() == number << REGION_SHIFT);
        region.end();
        fill(entry(2));
        let link = region.begin(number);
        for late in [before, link ^ 1 << 40] {
            assert_eq!((region.entry(page), region.first() >> 40 > 0), (Entry::NONE, true));
            region.linked(late); // By a thread that comes late.
        }
        region.linked(link);
        region.linked(link);
        assert!(region.has_entry(page, entry(2)) && region.first() == number << REGION_SHIFT);
    }
}
