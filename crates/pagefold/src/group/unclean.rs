//! A counter of dirty pages.

use sync::atomic::{AtomicU64, Ordering};

/// The number of dirty pages of a group, of a part, or in total. It may be negative for a moment,
/// because a page may be subtracted before it was added.
#[derive(Debug, Default)]
pub(crate) struct UncleanCount(AtomicU64);

impl UncleanCount {
    pub(crate) fn get(&self) -> u64 {
        let pages = self.exact();
        if pages > u64::MAX / 2 { 0 } else { pages }
    }

    /// Returns the count as it is, even if negative. SeqCst: see PART-2 of `dirty::device`.
    pub(crate) fn exact(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Adds a page. Returns whether it is the first.
    pub(crate) fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) == 0
    }

    pub(crate) fn remove(&self, pages: u64) {
        self.0.fetch_sub(pages, Ordering::Relaxed);
    }
}
