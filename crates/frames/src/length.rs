//! How long an object is, and how much of it lies in near pages: never more than its page map has a
//! run of words for (L3 of `lookup`).
//!
//! Lengths lie in one reserved array, as page words do, by the place of a map's first word: so what
//! a lookup points to stays while the frames do, even if the map doesn't.

use sync::atomic::{AtomicU64, Ordering};

use crate::region::ZeroedAtomics;

/// The length of one object. On lines of its own: hits read it.
///
/// Release and Acquire, for both numbers: a reader that sees that an object has grown also sees
/// that the page at its old end was taken out of memory.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Length {
    bytes: AtomicU64,
    /// Its whole pages among the near ones: all that a hit looks at. The last page, if it isn't
    /// whole, and pages that aren't near are read in a slower way.
    whole_pages: AtomicU64,
    /// Pages whose words are the map's first run. It stays as long as the map.
    near_pages: AtomicU64,
}

// SAFETY: all fields are atomics, and zeros a value of them.
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

    /// Relaxed: it is set while the map is being made, so every owner of the map or of a clone sees
    /// it.
    #[inline]
    pub(crate) fn near_pages(&self) -> u64 {
        self.near_pages.load(Ordering::Relaxed)
    }

    /// For a map that is being made.
    pub(crate) fn set_near_pages(&self, pages: u64) {
        self.near_pages.store(pages, Ordering::Relaxed);
    }

    /// The caller must be the only thread that changes it.
    pub(crate) fn set(&self, bytes: u64, page_size: usize) {
        self.bytes.store(bytes, Ordering::Release);
        self.whole_pages.store((bytes / page_size as u64).min(self.near_pages()), Ordering::Release);
    }
}
