//! Whether the bytes of the next frame are likely to be in this CPU's caches: frames freed last are
//! taken first.

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};

/// Frames whose bytes are still in the caches of the CPU that freed them, at most.
const WARM_MAX: u64 = 32;

/// How many such frames each CPU has. A guess, not kept exactly: `Relaxed`, and a load and a store.
#[derive(Debug)]
pub(crate) struct WarmFrames(PerCpu<AtomicU64>);

impl WarmFrames {
    pub(crate) fn new() -> Self {
        Self(PerCpu::new(AtomicU64::default))
    }

    /// A frame is taken. Says whether it is warm.
    pub(crate) fn take(&self) -> bool {
        let warm = self.0.here();
        let left = warm.load(Ordering::Relaxed).checked_sub(1);
        if let Some(left) = left {
            warm.store(left, Ordering::Relaxed);
        }
        left.is_some()
    }

    /// Frames were freed here.
    pub(crate) fn freed(&self, frames: u64) {
        self.0.here().store(frames.min(WARM_MAX), Ordering::Relaxed);
    }
}
