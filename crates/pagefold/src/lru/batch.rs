//! Frames between two lists.

use arrayvec::ArrayVec;
use frames::{IsolatedFrame, OwnedFrame};

/// Frames that reclaim cuts off in one go, at most.
pub(crate) const BATCH_MAX: usize = 64;

/// Isolated frames on their way through reclaim.
pub(crate) type Batch<const N: usize> = ArrayVec<IsolatedFrame, N>;

/// Frames whose pages are gone, and that are still on their lists.
pub(crate) type Gone<'a> = ArrayVec<OwnedFrame<'a>, BATCH_MAX>;

/// What the lists' user has to see to afterwards: `Manager::settle`.
#[derive(Debug, Default)]
#[must_use = "frames are still charged, or isolated"]
pub(crate) struct Leftovers {
    /// Frames that were freed, as their page had been removed while they were isolated. They are
    /// still charged.
    pub(crate) orphans: u64,
    /// The owners of those orphans that had been read ahead and were never used.
    pub(crate) wasted: Vec<u32>,
    /// Frames that turned out to be on other lists, when they had been isolated. They are there
    /// still.
    pub(crate) misplaced: ArrayVec<IsolatedFrame, 8>,
}
