//! How long an object is: never more than its page map has words for (L3 of `lookup`).
//!
//! Lengths lie in one reserved array, as page words do, by the place of a map's first word: so what a lookup points to stays
//! while the frames do, even if the map doesn't.

use sync::atomic::{AtomicU64, Ordering};

use crate::region::ZeroedAtomics;

/// The length of one object. On lines of its own: hits read it.
///
/// Release and Acquire, for both numbers: who sees an object that has grown also sees that the page at its old end was
/// taken out of memory.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Length {
    bytes: AtomicU64,
    /// Its whole pages: all that a hit looks at. The last page, if it isn't whole, is read in a slower way.
    whole_pages: AtomicU64,
}

// SAFETY: both fields are atomics, and zeros a value of them.
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

    /// For whoever alone changes it.
    pub(crate) fn set(&self, bytes: u64, page_size: usize) {
        self.bytes.store(bytes, Ordering::Release);
        self.whole_pages.store(bytes / page_size as u64, Ordering::Release);
    }
}
