//! A part of a space, aligned to its size: page words, and what is mapped.

use std::ops::Range;

use frames::PageMap;
use sync::Arc;
use sync::atomic::{AtomicU64, Backoff, Ordering};
use sync::lock::OnceCell;

use super::entry::Entry;
use crate::error::Error;
use crate::manager::Manager;

/// Pages in a region, as a power of two: a segment of page words.
pub(super) const REGION_SHIFT: u32 = 18;
pub(super) const REGION_PAGES: u64 = 1 << REGION_SHIFT;
/// Pages in a granule, which has one entry if all of its pages have the same.
const GRANULE_SHIFT: u32 = 9;
pub(super) const GRANULE_PAGES: u64 = 1 << GRANULE_SHIFT;
const GRANULES: usize = 1 << (REGION_SHIFT - GRANULE_SHIFT);

/// The granule's entry is being copied to its pages; it still holds.
const SPLITTING: u64 = 1 << 62;
/// The granule's pages have entries of their own.
const SPLIT: u64 = 1 << 63;

/// Entries of a granule's pages.
type Leaf = Box<[AtomicU64]>;

/// Bytes that a region takes, and the entries of a granule's pages; rounded up.
pub(super) const REGION_BYTES: u64 = 20 << 10;
pub(super) const LEAF_BYTES: u64 = 4 << 10;

/// Pages `0..REGION_PAGES` of a region.
pub(super) struct Region {
    /// Its first page's number in the space.
    pub(super) first: u64,
    pub(super) map: PageMap,
    granules: Box<[AtomicU64]>,
    leaves: Box<[OnceCell<Leaf>]>,
}

fn zeros(count: usize) -> Box<[AtomicU64]> {
    (0..count).map(|_| AtomicU64::new(0)).collect()
}

impl Region {
    pub(super) fn new(manager: &Manager, first: u64) -> Result<Self, Error> {
        let map = PageMap::new(Arc::clone(&manager.frames), REGION_PAGES)
            .map_err(|error| Error::System { what: "reserve page words", error: error.to_string() })?;
        Ok(Self { first, map, granules: zeros(GRANULES), leaves: (0..GRANULES).map(|_| OnceCell::new()).collect() })
    }

    /// What is mapped at a page.
    #[inline]
    pub(super) fn entry(&self, page: u64) -> Entry {
        self.entry_of_granule(page).0
    }

    /// The same, and whether it holds for the page's whole granule.
    #[inline]
    pub(super) fn entry_of_granule(&self, page: u64) -> (Entry, bool) {
        let granule = (page >> GRANULE_SHIFT) as usize;
        // Acquire pairs with the Release in `split`: the pages' entries are there.
        let word = self.granules[granule].load(Ordering::Acquire);
        if word & SPLIT == 0 {
            return (Entry(word & !SPLITTING), true);
        }
        match self.leaves[granule].get() {
            // Acquire: what the one who mapped it did before.
            Some(leaf) => (Entry(leaf[(page % GRANULE_PAGES) as usize].load(Ordering::Acquire)), false),
            None => (Entry::NONE, false),
        }
    }

    /// Has memory for the entries of a page's granule. Says whether it is new.
    pub(super) fn prepare_leaf(&self, page: u64) -> bool {
        let mut new = false;
        self.leaves[(page >> GRANULE_SHIFT) as usize].get_or_init(|| {
            new = true;
            zeros(GRANULE_PAGES as usize)
        });
        new
    }

    /// Whether a page's granule has memory for entries of its pages.
    pub(super) fn has_leaf(&self, page: u64) -> bool {
        self.leaves[(page >> GRANULE_SHIFT) as usize].get().is_some()
    }

    /// Changes the entries of pages within one granule, which the caller has locked; the leaf is prepared if it isn't
    /// all of them.
    ///
    /// Others may be changing other pages of the granule. So its entry is copied to its pages by one of them:
    /// ```text
    ///   A: granule = SPLITTING | e     B: granule is SPLITTING: waits
    ///      pages = e …
    ///      granule = SPLIT                goes on with its own pages, after A's copy
    /// ```
    pub(super) fn change(&self, pages: Range<u64>, to: Entry) {
        let granule = (pages.start >> GRANULE_SHIFT) as usize;
        if pages.end - pages.start == GRANULE_PAGES {
            // Release pairs with the Acquire in `entry`. Nobody else changes it: all of its pages are locked.
            return self.granules[granule].store(to.0, Ordering::Release);
        }
        self.split(granule);
        let Some(leaf) = self.leaves[granule].get() else { return };
        for page in pages {
            // Release pairs with the Acquire in `entry`.
            leaf[(page % GRANULE_PAGES) as usize].store(to.0, Ordering::Release);
        }
    }

    fn split(&self, granule: usize) {
        let word = &self.granules[granule];
        let Some(leaf) = self.leaves[granule].get() else { return };
        let mut backoff = Backoff::new();
        loop {
            // Acquire pairs with the Release below: another one's copy is made.
            let now = word.load(Ordering::Acquire);
            if now & SPLIT != 0 {
                return;
            }
            let mine = now & SPLITTING == 0
                && word.compare_exchange(now, now | SPLITTING, Ordering::Acquire, Ordering::Relaxed).is_ok();
            if mine {
                // Relaxed: published below.
                leaf.iter().for_each(|entry| entry.store(now, Ordering::Relaxed));
                return word.store(SPLIT, Ordering::Release);
            }
            backoff.wait();
        }
    }
}
