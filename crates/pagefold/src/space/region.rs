//! The record of a region of a space. It has the page words of the region's own memory (anonymous
//! memory, which belongs to no file).
//!
//! A *region* is an aligned part of a space, 2^18 pages. It gets a record when a page in it is
//! first written, or when entries are changed in a range that begins or ends inside it. A region
//! that is mapped as a whole, and was never written, needs no record.
//!
//! A record has the same page map for as long as the space exists, and serves one region after
//! another. The record's *stay* identifies its current use: the region, and a count of how often
//! the record was used. A stay never repeats.
//!
//! - REGION-1. A record passes to another region only when no thread is using one of the record's
//!   words. A word is in use while it is in *loading*, or resident in a frame that a thread has
//!   frozen or pinned. A thread first gets hold of a word, which is in use from then on, and then
//!   looks at the stay. If the stay names the thread's region, the record belongs to that region
//!   until the thread releases the word. So the entries that the thread finds in the record are
//!   those of that region. Each side has a fence, as in S1:
//!   ```text
//!     toucher: word = loading                thread that frees the region: stay = none
//!              fence                                                        fence
//!              stay: my region? then entry                                  a word in use? not yet another one's
//!   ```
//!   A thread that frees a region first removes the link to the record, and then ends the record's
//!   stay. So another thread may check the link in place of the stay: if it finds the link still
//!   there after its fence (`Way::is_still`), the record still belongs to that region.
//! - REGION-2. A thread may get hold of a word after the record has passed to another region. The
//!   thread finds that out when it looks at the stay, and releases the word. Until then, users of
//!   the other region wait for it, as they wait for a thread that finds its page unmapped.
//! - REGION-3. A new record belongs to its region only once a thread has found the link to the
//!   record. Two threads may each make a record for the same region. Only one thread can store its
//!   link; the other thread's record is given back. Without this rule, a third thread could use the
//!   record that is given back, if it knows that record from an earlier time, when the record
//!   belonged to the same region:
//!   ```text
//!     late toucher, of an earlier time       this record's maker              the other maker
//!     has found this record: it was the region's
//!                                            entries, stay: my region?        link to another record
//!     word = loading, stay, entry: fine      link: too late; stay = none
//!     publishes a page here, where no thread finds it
//!   ```
//!   So the stay is *pending* until a thread finds the link. That thread first clears the *pending*
//!   mark (`linked`), and only then looks at anything else in the record.

use frames::{MapInWord, MapNumber, NUMBER_SHIFT, PageMap, PageMaps, PageState};
use swap::PageEntry;
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering, fence};

use super::entry::Entry;
use super::tree::{COUNT_MAX, count_of, look_in_region, region_link};
use crate::error::Error;
use crate::manager::Manager;
use crate::manager::page_owners::SEGMENT_SHIFT;

/// Pages in a region, as a power of two: one segment of page words.
pub(super) use super::tree::REGION_SHIFT;
pub(super) const REGION_PAGES: u64 = 1 << REGION_SHIFT;
const _: () = assert!(REGION_SHIFT == SEGMENT_SHIFT, "a region has one segment");

/// Bytes that a record takes, rounded up.
pub(super) const RECORD_BYTES: u64 = 256;
/// Bits of the count in a stay. Above them is the region's number plus 1, or 0 if there is no
/// region.
const COUNT_BITS: u32 = COUNT_MAX.count_ones();
/// Set in a stay while no thread has found a link to the record yet (REGION-3).
const PENDING: u64 = 1 << 63;

/// See the module's head.
pub(super) struct Region {
    stay: AtomicU64,
    pub(super) map: PageMap,
    in_word: MapInWord,
    /// Kept at hand for lookups of entries.
    maps: PageMaps,
}

impl Region {
    /// Creates a record that belongs to no region yet.
    pub(super) fn new(manager: &Manager) -> Result<Self, Error> {
        let map = PageMap::new(Arc::clone(&manager.memory.frames), REGION_PAGES).map_err(Error::no_memory)?;
        manager.memory.frames.tables().open_of_map(map.number()).map_err(Error::no_memory)?;
        let maps = PageMaps::new(Arc::clone(&manager.memory.frames));
        Ok(Self { stay: AtomicU64::new(0), in_word: MapInWord(map.number().bits() << NUMBER_SHIFT), map, maps })
    }

    /// Returns where a page is in swap, if it is there.
    pub(super) fn swapped_to(&self, page: u64) -> Option<PageEntry> {
        match self.map.state(page % REGION_PAGES) {
            PageState::Swapped { entry } => PageEntry::from_bits(entry),
            _ => None,
        }
    }

    pub(super) fn map_number(&self) -> MapNumber {
        self.in_word.number()
    }

    /// Returns the number of the region's first page in the space. If the record belongs to no
    /// region, or its stay is pending, returns a number past the end of the space.
    pub(super) fn first(&self) -> u64 {
        (self.stay.load(Ordering::Acquire) >> COUNT_BITS).wrapping_sub(1) << REGION_SHIFT
    }

    /// Makes this the record of the region `number`, with a pending stay. Returns the link to the
    /// record, which the caller stores in the index. The record belongs to the region as soon as a
    /// thread has found that link ([`linked`](Self::linked)). The caller must be the record's only
    /// owner.
    pub(super) fn begin(&self, number: u64) -> u64 {
        let count = (self.stay.load(Ordering::Relaxed) & COUNT_MAX) + 1;
        self.stay.store(PENDING | (number + 1) << COUNT_BITS | count, Ordering::Release);
        region_link(self.map_number(), count)
    }

    /// Clears the *pending* mark (REGION-3). The caller has found `link`, which leads to this
    /// record, or led to it in an earlier stay. If the link is from an earlier stay, nothing
    /// changes.
    #[inline]
    pub(super) fn linked(&self, link: u64) {
        // Relaxed: `begin` stored the stay before the link was stored (Release), and the caller has
        // loaded the link (Acquire).
        let stay = self.stay.load(Ordering::Relaxed);
        if stay & PENDING != 0 && stay & COUNT_MAX == count_of(link) {
            // Release, as in `begin`. The exchange fails if another thread has done it.
            let _ = self.stay.compare_exchange(stay, stay & !PENDING, Ordering::Release, Ordering::Relaxed);
        }
    }

    /// Ends the record's stay, so that the record belongs to no region. Returns whether the record
    /// can be used again, which is so until its count is used up.
    pub(super) fn end(&self) -> bool {
        let count = self.stay.load(Ordering::Relaxed) & COUNT_MAX;
        self.stay.store(count, Ordering::Release);
        count < COUNT_MAX
    }

    /// Returns whether a word is in use (REGION-1). The caller has a fence between
    /// [`end`](Self::end) and this call.
    pub(super) fn is_in_use(&self) -> bool {
        self.map.pages_in_memory(0..REGION_PAGES).next().is_some()
    }

    /// Returns the entry of a page of the space. Returns no entry if the record doesn't belong to
    /// that page's region.
    #[inline]
    pub(super) fn entry(&self, page: u64) -> Entry {
        loop {
            let stay = self.stay.load(Ordering::Acquire);
            if stay >> COUNT_BITS != (page >> REGION_SHIFT) + 1 {
                return Entry::NONE;
            }
            let (entry, ..) = look_in_region(&self.maps, self.in_word, page, page + 1);
            fence(Ordering::Acquire); // The look at the entry comes before the next load.
            if self.stay.load(Ordering::Relaxed) == stay {
                return Entry(entry);
            }
        }
    }

    /// Returns whether a page of the space has that entry.
    pub(super) fn has_entry(&self, page: u64, entry: Entry) -> bool {
        self.entry(page) == entry
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use crate::space::entry::Entry;
    use test_disks::SimulatedDisk;

    /// Regression: threads A and B each made a record for one region, in which something had just
    /// been mapped again. B stored its link first, so no link led to A's record. Thread C still
    /// knew A's record from an earlier time, when the record had also belonged to this region. C
    /// put a word of A's record in *loading*, saw the region's number in the stay, and wrote a
    /// page. No thread found the page again, so its frame and the record were lost.
    #[test]
    fn a_record_is_its_regions_only_when_a_link_leads_to_it() {
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let manager = mm.manager();
        let region = Region::new(manager).unwrap();
        let entry = |number: u64| Entry(number << 6 | 7);
        let fill = |entry: Entry| {
            let word = |at| manager.memory.frames.tables().word_of_map(region.map_number(), at);
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
            region.linked(late); // By a late thread.
        }
        region.linked(link);
        region.linked(link);
        assert!(region.has_entry(page, entry(2)) && region.first() == number << REGION_SHIFT);
    }
}
