//! A file's timeout: how long calls wait for its device.

use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize};
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
    /// flusher, or at which an errand or the holder of `extension` waited for something else than
    /// the device.
    pub(crate) answered_ms: AtomicU64,
    /// The holder of `extension` waits for memory.
    pub(crate) waits_for_memory: AtomicBool,
    /// The number of errands that their callers left and that haven't ended.
    pub(crate) left: Arc<AtomicUsize>,
}

/// A file's cell for its [`Watch`].
pub(crate) type WatchCell<F> = OnceCell<Box<Watch<F>>>;

impl<F> Watch<F> {
    pub(crate) fn new(time: Duration, device: Arc<Device>, file: &Arc<F>) -> Self {
        let (answered_ms, waits_for_memory) = (AtomicU64::new(0), AtomicBool::new(false));
        Self { time, device, file: Arc::downgrade(file), answered_ms, waits_for_memory, left: Arc::default() }
    }

    pub(crate) fn time(&self) -> Duration {
        self.time
    }

    pub(crate) fn is_silent(&self) -> bool {
        self.device.is_silent()
    }
}
