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
    /// Counts the waits of holders of `extension` for something else than the device. Rises by 1
    /// when a wait for memory begins and when it ends, so it is odd meanwhile, and by 2 for a wait
    /// for a page in use.
    pub(crate) other_waits: AtomicU64,
    /// The number of errands that their callers left and that haven't ended.
    pub(crate) left: Arc<AtomicUsize>,
}

/// A file's cell for its [`Watch`].
pub(crate) type WatchCell<F> = OnceCell<Box<Watch<F>>>;

impl<F> Watch<F> {
    pub(crate) fn new(time: Duration, device: Arc<Device>, file: &Arc<F>) -> Self {
        let (answered_ms, other_waits) = (AtomicU64::new(0), AtomicU64::new(0));
        Self { time, device, file: Arc::downgrade(file), answered_ms, other_waits, left: Arc::default() }
    }

    /// Relaxed: the count only excuses time.
    pub(crate) fn other_waits(&self) -> u64 {
        self.other_waits.load(Ordering::Relaxed)
    }

    /// Returns whether a holder of `extension` waits for something else than the device, or has
    /// waited for it since `seen` was read, which this call updates.
    pub(crate) fn has_waited_otherwise(&self, seen: &mut u64) -> bool {
        let before = std::mem::replace(seen, self.other_waits());
        *seen != before || *seen % 2 == 1
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.device.is_silent()
    }
}
