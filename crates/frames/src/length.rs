//! The length of an object, and the number of its whole *near* pages. Near pages are those whose
//! words lie in the map's first run of page words (L3 of `lookup`).
//!
//! Lengths lie in one reserved array, like page words, indexed by the number of the map. So a
//! length that a lookup points to stays valid as long as the frames, even after the map is dropped.

use sync::atomic::{AtomicU64, Ordering};

use crate::region::ZeroedAtomics;

/// The length of one object. It has cache lines of its own, because hits read it.
///
/// Both numbers are stored with Release and loaded with Acquire: a reader that sees that an object
/// has grown also sees that the page at the object's old end was taken out of memory before.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Length {
    bytes: AtomicU64,
    /// The number of whole pages among the near ones. A hit checks only this number. A last page
    /// that isn't whole, and far pages, are read on a slower path.
    whole_pages: AtomicU64,
    /// The number of pages whose words are the map's first run. It never changes while the map
    /// lives.
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

    /// Returns the number of near pages. Relaxed: it is set while the map is being made, so every
    /// owner of the map or of a clone sees it.
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
