//! The length of an object, such as a file, in bytes and in pages. A page is *near* if its word is
//! in the run (consecutive words) that the object's map got when it was made (L3 of `lookup`). Hits
//! read only near pages that are *whole*: all bytes of a whole page belong to the object.
//!
//! Lengths lie in one reserved array, like page words. A map's number is the index of its object's
//! length. The array lives as long as the frames, so a lookup's reference to a length stays valid
//! even after the map is dropped.

use sync::atomic::{AtomicU64, Ordering};

use crate::region::ZeroedAtomics;

/// The length of one object. It has cache lines of its own, because hits read it.
///
/// `bytes` and `whole_pages` are stored with Release and loaded with Acquire. Before a greater
/// length is stored, the page at the object's old end is removed from memory, or its bytes past the
/// old end are corrected. So a reader that sees the new length doesn't find stale bytes there.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Length {
    bytes: AtomicU64,
    /// The number of whole pages among the near ones. A hit checks only this number. A last page
    /// that isn't whole, and far pages, are read on a slower path.
    whole_pages: AtomicU64,
    /// The number of near pages. It never changes while the map lives.
    near_pages: AtomicU64,
}

// SAFETY: all fields are atomics, for which zeros are valid.
unsafe impl ZeroedAtomics for Length {}

impl Length {
    #[inline]
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }

    #[inline]
    pub(crate) fn whole_pages(&self) -> u64 {
        self.whole_pages.load(Ordering::Acquire)
    }

    /// Returns the number of near pages. Relaxed: the number is set only while the map is being
    /// made, so every thread that has the map, or a clone of it, sees the number.
    #[inline]
    pub(crate) fn near_pages(&self) -> u64 {
        self.near_pages.load(Ordering::Relaxed)
    }

    /// Sets the number of near pages. Only for a map that is being made.
    pub(crate) fn set_near_pages(&self, pages: u64) {
        self.near_pages.store(pages, Ordering::Relaxed);
    }

    /// Sets the length. The caller must be the only thread that changes it.
    pub(crate) fn set(&self, bytes: u64, page_size: usize) {
        self.bytes.store(bytes, Ordering::Release);
        self.whole_pages.store((bytes / page_size as u64).min(self.near_pages()), Ordering::Release);
    }
}
