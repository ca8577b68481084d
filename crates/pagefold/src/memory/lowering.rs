//! What `reclaim::room` and `reclaim::drain` share: how many parts of page maps are given back at a
//! time, which pages may be evicted to give an extent back ([`Cost`]), and the state of lowering
//! the budget.

use sync::atomic::AtomicBool;
use sync::lock::Mutex;

/// Parts of page maps that are given back at a time.
pub(crate) const MAPS_BATCH: usize = 64;

/// Which pages may be evicted to give an extent back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// Only pages that reclaim would evict next.
    Unused,
    /// Also pages in use, if there are no frames to move them to.
    Any,
}

/// The state of lowering the budget.
#[derive(Debug, Default)]
pub(crate) struct Lowering {
    /// Held while the budget is lowered: one call at a time.
    pub(crate) turn: Mutex<()>,
    /// Whether extents are being given back now.
    pub(crate) drains: AtomicBool,
}
