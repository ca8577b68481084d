//! Frames between two lists.

use arrayvec::ArrayVec;
use frames::{IsolatedFrame, OwnedFrame};

/// The most frames that reclaim cuts off a list at a time.
pub(crate) const BATCH_MAX: usize = 64;

/// Isolated frames on their way through reclaim.
pub(crate) type Batch<const N: usize> = ArrayVec<IsolatedFrame, N>;

/// Frames whose pages are gone, but that are still on their lists.
pub(crate) type Gone<'a> = ArrayVec<OwnedFrame<'a>, BATCH_MAX>;

/// Divides frames into parts for which `key` returns the same, and passes each part to `act`.
pub(crate) fn divide<K: PartialEq, const N: usize>(
    mut frames: Batch<N>,
    key: impl Fn(&IsolatedFrame) -> K,
    mut act: impl FnMut(K, Batch<N>),
) {
    while let Some(first) = frames.first() {
        let part = key(first);
        let is_own = |frame: &IsolatedFrame| key(frame) == part;
        if frames.iter().all(is_own) {
            return act(part, frames); // Most often.
        }
        let (own, others) = frames.into_iter().partition::<Batch<N>, _>(is_own);
        frames = others;
        act(part, own);
    }
}

/// What an operation on the lists leaves to its caller, which must pass it to `Memory::settle`.
#[derive(Debug, Default)]
#[must_use = "frames are still charged, or isolated"]
pub(crate) struct Leftovers {
    /// The number of frames that were freed because their pages were removed while the frames were
    /// isolated. The frames are still charged.
    pub(crate) orphans: u64,
    /// The owners of those orphans that were read ahead and never used.
    pub(crate) wasted: Vec<u32>,
    /// Isolated frames that turned out to be on another list. They are still on that list.
    pub(crate) misplaced: ArrayVec<IsolatedFrame, 8>,
}
