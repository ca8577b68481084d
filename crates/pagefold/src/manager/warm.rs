//! Estimates whether the next frame's bytes are still in this CPU's caches. Frames are reused last
//! in, first out.

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};

/// The most frames whose bytes the CPU that freed them still has in its caches.
const WARM_MAX: u64 = 32;

/// The number of warm frames of each CPU. An estimate: updated by a `Relaxed` load and a `Relaxed`
/// store, so updates may be lost.
#[derive(Debug)]
pub(crate) struct WarmFrames(PerCpu<AtomicU64>);

impl WarmFrames {
    pub(crate) fn new() -> Self {
        Self(PerCpu::new(AtomicU64::default))
    }

    /// Counts a taken frame. Returns whether the frame is probably warm.
    pub(crate) fn take(&self) -> bool {
        let warm = self.0.here();
        let left = warm.load(Ordering::Relaxed).checked_sub(1);
        if let Some(left) = left {
            warm.store(left, Ordering::Relaxed);
        }
        left.is_some()
    }

    /// Notes that this CPU has just freed `frames` frames.
    pub(crate) fn freed(&self, frames: u64) {
        self.0.here().store(frames.min(WARM_MAX), Ordering::Relaxed);
    }
}
