//! How many loads of a file are in flight (`read::flight`), and how its last handle waits for them.
//!
//! A load that has landed lets go of the file before it is counted out, and the last handle of a
//! file waits for the count to be 0, or for another handle: that one is the last then, and waits.
//! So no file, and nothing that it keeps alive, ends in a thread of the device's; and closing a
//! file doesn't wait for what later readers load:
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
    /// The count is 0, or the file has a handle again.
    changed: Condvar,
}

/// One of them, until it is dropped.
#[derive(Debug)]
pub(crate) struct Flying(Arc<InFlight>);

impl InFlight {
    pub(crate) fn take_off(self: &Arc<Self>) -> Flying {
        // Relaxed: the thread that takes off has a handle, so it has counted before the last handle
        // waits.
        self.count.fetch_add(1, Ordering::Relaxed);
        Flying(Arc::clone(self))
    }

    /// Whether there are none, for the last handle.
    pub(crate) fn is_empty(&self) -> bool {
        // Acquire as in `wait_for_none`.
        self.count.load(Ordering::Acquire) == 0
    }

    /// The file has a handle again: what is in flight is for that handle's closing to wait for.
    pub(crate) fn reopened(&self) {
        *self.openings.lock() += 1;
        self.changed.notify_all();
    }

    /// Waits until there are none, or until the file `is_open` again: then new ones are begun, and
    /// another handle is the last.
    pub(crate) fn wait_for_none(&self, is_open: impl Fn() -> bool) {
        let mut openings = self.openings.lock();
        let before = *openings;
        // Acquire pairs with the Release below: a landed load has let go of the file.
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
