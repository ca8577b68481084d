//! A counter of unclean pages: those that are dirty, held or unstable.

use sync::atomic::{AtomicU64, Ordering};

/// The number of unclean pages of a group, of a `DirtyPart`, or of all groups. The stored value can
/// be negative for a moment, because one thread may subtract a page before another has added it;
/// [`get`](Self::get) then returns 0.
#[derive(Debug, Default)]
pub(crate) struct UncleanCount(AtomicU64);

impl UncleanCount {
    pub(crate) fn get(&self) -> u64 {
        let pages = self.exact();
        if pages > u64::MAX / 2 { 0 } else { pages }
    }

    /// Returns the count as it is, even if negative. SeqCst: see PART-2 of `dirty::device`. A
    /// SeqCst load is also an Acquire, which `clean_wait` needs.
    pub(crate) fn exact(&self) -> u64 {
        self.0.load(Ordering::SeqCst)
    }

    /// Adds a page. Returns whether it is the first.
    pub(crate) fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::SeqCst) == 0
    }

    /// Subtracts pages. Release pairs with the Acquire in `exact`, for `clean_wait`.
    pub(crate) fn remove(&self, pages: u64) {
        self.0.fetch_sub(pages, Ordering::Release);
    }
}
