//! A file's timeout: how long calls wait for its device.

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::lock::OnceCell;
use sync::time::Duration;
use sync::{Arc, Weak};

use crate::dirty::device::Device;

/// The timeout state of a file, if a timeout is set.
pub(crate) struct Watch<F> {
    pub(crate) time: Duration,
    pub(crate) device: Arc<Device>,
    pub(crate) file: Weak<F>,
    /// The last time at which the device answered a request for this file, made by an errand or the
    /// flusher, or at which an errand waited for something else than the device.
    pub(crate) answered_ms: AtomicU64,
    /// How often holders of `extension` have begun to wait for memory, and stopped. So the number
    /// is odd during such a wait. Only the holder changes it.
    pub(crate) memory_waits: AtomicU64,
    /// The number of errands that their callers left and that haven't ended.
    pub(crate) left: Arc<AtomicUsize>,
}

/// A file's cell for its [`Watch`].
pub(crate) type WatchCell<F> = OnceCell<Box<Watch<F>>>;

impl<F> Watch<F> {
    pub(crate) fn new(time: Duration, device: Arc<Device>, file: &Arc<F>) -> Self {
        let (answered_ms, memory_waits) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { time, device, file: Arc::downgrade(file), answered_ms, memory_waits, left: Arc::default() }
    }

    /// Returns the number of [`memory_waits`](Self::memory_waits). Relaxed: it only excuses time.
    pub(crate) fn memory_waits(&self) -> u64 {
        self.memory_waits.load(Ordering::Relaxed)
    }

    /// Returns whether a holder of `extension` waits for memory, or has waited since `seen` was
    /// read, which this call updates.
    pub(crate) fn has_waited_for_memory(&self, seen: &mut u64) -> bool {
        let before = std::mem::replace(seen, self.memory_waits());
        *seen != before || *seen % 2 == 1
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.device.is_silent()
    }
}
