//! Counts a file's loads in flight (`read::flight`), and lets the file's last handle wait for them.
//!
//! When a load completes, it drops its reference to the file before it subtracts itself from the
//! count. The last handle of a file waits until the count is 0, and only then drops its own
//! reference. So the thread that completes a load never drops the file's state, nor anything that
//! only this state keeps alive.
//!
//! The backend keeps its own file open until the completion closure of the last request has
//! returned. By that time the file's state may have been dropped. Even then, a thread that
//! completes the requests of a ring doesn't close the backend's file: a thread of the pool does
//! (`io`'s `ring`).
//!
//! If the file is opened again while its last handle waits, the wait ends early. The new handle is
//! then the file's last handle, and will wait when it is closed. So closing a file doesn't wait for
//! the loads of later readers:
//!
//! ```text
//! last handle A: handles 1 -> 0 ── waits for loads in flight ──────────────────── returns
//! another tenant:                   handles 0 -> 1, openings + 1 ── loads, loads … ┘
//! ```

use sync::Arc;
use sync::atomic::{AtomicUsize, Ordering};
use sync::lock::{Condvar, Mutex};

/// A file's loads in flight.
#[derive(Debug, Default)]
pub(crate) struct InFlight {
    count: AtomicUsize,
    /// How often the file got a handle when it had none.
    openings: Mutex<u64>,
    /// Signalled when the count reaches 0, or the file has a handle again.
    changed: Condvar,
}

/// A load in flight, counted until this is dropped.
#[derive(Debug)]
pub(crate) struct Flying(Arc<InFlight>);

impl InFlight {
    pub(crate) fn take_off(self: &Arc<Self>) -> Flying {
        // Relaxed: the thread that begins a load has a handle, and counts the load before it drops
        // the handle. Each handle, when it is dropped, subtracts itself from `FileState::handles`
        // with AcqRel. So the thread that subtracts the last handle, and then waits, sees this
        // count.
        self.count.fetch_add(1, Ordering::Relaxed);
        Flying(Arc::clone(self))
    }

    /// Returns whether no load is in flight. For the last handle.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire, for the same reason as in `wait_for_none`.
        self.count.load(Ordering::Acquire) == 0
    }

    /// Notes that the file has a handle again, whose closing then waits for the loads in flight.
    pub(crate) fn reopened(&self) {
        *self.openings.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until no load is in flight, or until the file `is_open` again. In the second case new
    /// loads may begin, and the last of the file's new handles waits for them.
    pub(crate) fn wait_for_none(&self, is_open: impl Fn() -> bool) {
        let mut openings = self.openings.lock();
        let before = *openings;
        // Acquire pairs with the Release in `drop`: a load that is no longer counted has dropped
        // its reference to the file.
        while self.count.load(Ordering::Acquire) > 0 && *openings == before && !is_open() {
            self.changed.wait(&mut openings);
        }
    }
}

impl Drop for Flying {
    fn drop(&mut self) {
        if self.0.count.fetch_sub(1, Ordering::Release) == 1 {
            let _openings = self.0.openings.lock();
            self.0.changed.notify_all();
        }
    }
}
