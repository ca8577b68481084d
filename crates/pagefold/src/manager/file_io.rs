//! How files are read and written: the backend, the threads that wait for devices, and the count of
//! dirty pages.

use std::time::Duration;

use io::{Backend, Workers};
use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::OnceCell;

use crate::dirty::device::{Devices, DirtyPart, Flusher};
use crate::error::Error;
use crate::group::unclean::UncleanCount;
use crate::manager::mailbox::Mailboxes;
use crate::timers::Timers;

/// The most workers for one device. They are started on demand.
pub(crate) const WORKERS_MAX: usize = 64;

/// How files are read and written, and by which threads.
pub(crate) struct FileIo {
    pub(crate) backend: Box<dyn Backend>,
    /// How long a call waits for a device; `None` for no limit. With a limit, `workers` wait in the
    /// caller's place (`watchdog`).
    pub(crate) io_timeout: Option<Duration>,
    pub(crate) workers: OnceCell<Workers>,
    /// The mailboxes of loads that futures wait for.
    pub(crate) mailboxes: Mailboxes,
    pub(crate) timers: Timers,
    pub(crate) flusher: Arc<Flusher>,
    pub(crate) devices: Devices,
    pub(crate) unclean: UncleanCount,
    /// Pages that have become clean so far.
    pub(crate) cleaned: AtomicU64,
}

impl FileIo {
    pub(crate) fn new(backend: Box<dyn Backend>, io_timeout: Option<Duration>) -> Self {
        let flusher = Arc::default();
        Self {
            backend,
            io_timeout,
            workers: OnceCell::new(),
            mailboxes: Default::default(),
            timers: Default::default(),
            devices: Devices::new(&flusher),
            flusher,
            unclean: Default::default(),
            cleaned: Default::default(),
        }
    }

    /// Returns the worker threads for errands.
    ///
    /// # Errors
    /// The system's, if the threads can't be started.
    pub(crate) fn workers(&self) -> Result<&Workers, Error> {
        self.workers.get_or_try_init(|| Workers::new(WORKERS_MAX)).map_err(Error::no_threads)
    }

    /// Counts pages of a part that have become clean.
    pub(crate) fn became_clean(&self, part: &DirtyPart, pages: u64) {
        self.cleaned.fetch_add(pages, Ordering::Relaxed); // First, as in `DirtyPart::became_clean`.
        part.became_clean(&self.unclean, pages);
    }
}
