//! The entries of a region's pages: one word for a granule whose pages are all alike, else one for each of its pages.
//!
//! Looked up without a lock, and changed by those who have locked the pages: several at a time in one granule. A granule's word is
//! then copied to its pages by one of them:
//! ```text
//!   A: granule = SPLITTING | e     B: granule is SPLITTING: waits
//!      pages = e …
//!      granule = SPLIT                goes on with its own pages, after A's copy
//! ```
//! - E1. A granule becomes one word again only by whoever has locked all of it: nobody else changes it then.
//! - E2. Its pages' words are read only after `SPLIT` was seen, and are all there before it is (Release, Acquire). That may have been
//!   an earlier split's, so each of them is stored with Release, too: who reads it has seen what was before it.
//!
//! So two changes of disjoint pages leave what each of them stored, in whatever order they come, be it that they take one area
//! apart or put it together: there is nothing else that they could leave wrong.

use std::ops::Range;

use sync::atomic::{AtomicU64, Backoff, Ordering};
use sync::lock::OnceBox;

/// Pages in a granule, as a power of two. A model makes do with few.
pub(super) const GRANULE_SHIFT: u32 = if cfg!(pagefold_loom) { 1 } else { 9 };
pub(super) const GRANULE_PAGES: u64 = 1 << GRANULE_SHIFT;

/// The granule's entry is being copied to its pages; it still holds.
const SPLITTING: u64 = 1 << 62;
/// The granule's pages have entries of their own.
const SPLIT: u64 = 1 << 63;

/// Entries of a granule's pages.
type Leaf = [AtomicU64; GRANULE_PAGES as usize];

/// Entries of the pages of so many granules: any bits but the two uppermost.
pub(super) struct Entries<const GRANULES: usize> {
    granules: [AtomicU64; GRANULES],
    leaves: [OnceBox<Leaf>; GRANULES],
}

fn zeros<const N: usize>() -> [AtomicU64; N] {
    std::array::from_fn(|_| AtomicU64::new(0))
}

impl<const GRANULES: usize> Entries<GRANULES> {
    /// All 0.
    pub(super) fn new() -> Self {
        Self { granules: zeros(), leaves: std::array::from_fn(|_| OnceBox::new()) }
    }

    /// A page's entry, and whether it holds for the page's whole granule.
    #[inline]
    pub(super) fn get(&self, page: u64) -> (u64, bool) {
        let granule = (page >> GRANULE_SHIFT) as usize % GRANULES;
        // Acquire pairs with the Release in `split` (E2).
        let word = self.granules[granule].load(Ordering::Acquire);
        if word < SPLITTING {
            return (word, true);
        }
        self.get_marked(page, word)
    }

    #[inline]
    fn get_marked(&self, page: u64, word: u64) -> (u64, bool) {
        if word & SPLIT == 0 {
            return (word & !SPLITTING, true);
        }
        match self.leaves[(page >> GRANULE_SHIFT) as usize % GRANULES].get() {
            // Acquire: what the one who mapped it did before.
            Some(leaf) => (leaf[(page % GRANULE_PAGES) as usize].load(Ordering::Acquire), false),
            None => (0, false),
        }
    }

    /// Whether a page's entry is this.
    #[inline]
    pub(super) fn is(&self, page: u64, entry: u64) -> bool {
        // Acquire, as in `get`. Most often it is the granule's.
        let word = self.granules[(page >> GRANULE_SHIFT) as usize % GRANULES].load(Ordering::Acquire);
        word == entry || word >= SPLITTING && self.get_marked(page, word).0 == entry
    }

    /// Has memory for the entries of a page's granule. Says whether it is new.
    pub(super) fn prepare_leaf(&self, page: u64) -> bool {
        let leaf = &self.leaves[(page >> GRANULE_SHIFT) as usize];
        leaf.get().is_none() && leaf.set(Box::new(zeros())).is_ok()
    }

    /// Whether a page's granule has memory for entries of its pages.
    pub(super) fn has_leaf(&self, page: u64) -> bool {
        self.leaves[(page >> GRANULE_SHIFT) as usize].get().is_some()
    }

    /// Changes the entries of pages within one granule, which the caller has locked; the leaf is prepared if it isn't
    /// all of them.
    pub(super) fn change(&self, pages: Range<u64>, to: u64) {
        let granule = (pages.start >> GRANULE_SHIFT) as usize;
        if pages.end - pages.start == GRANULE_PAGES {
            // Release pairs with the Acquire in `get`. Nobody else changes it (E1).
            return self.granules[granule].store(to, Ordering::Release);
        }
        let leaf = self.leaves[granule].get().expect("a granule that is cut has a leaf");
        self.split(granule, leaf);
        for page in pages {
            // Release pairs with the Acquire in `get`.
            leaf[(page % GRANULE_PAGES) as usize].store(to, Ordering::Release);
        }
    }

    fn split(&self, granule: usize, leaf: &[AtomicU64]) {
        let word = &self.granules[granule];
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
                // Release, like the granule's word before: who reads one goes by what came before it, even if the split that he
                // has seen is an earlier one.
                leaf.iter().for_each(|entry| entry.store(now, Ordering::Release));
                return word.store(SPLIT, Ordering::Release);
            }
            backoff.wait();
        }
    }
}
