//! What takes memory back from pages (`reclaim::room`): how much in one go, at what cost, and
//! whether the budget is being lowered.

use sync::atomic::AtomicBool;
use sync::lock::Mutex;

/// Parts of page maps that are given back in one go.
pub(crate) const MAPS_BATCH: usize = 64;

/// What giving an extent back may cost.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Cost {
    /// Pages that reclaim would take next.
    Unused,
    /// Also pages that are in use, where there are no frames to move them to.
    Any,
}

/// A budget that is being lowered.
#[derive(Debug, Default)]
pub(crate) struct Lowering {
    /// One at a time.
    pub(crate) turn: Mutex<()>,
    /// Extents are being given back just now.
    pub(crate) drains: AtomicBool,
}
