//! A ticket lock, which behaves much like Linux's queued spinlock: first come, first served, and
//! waiters don't write while they wait.

use sync::atomic::{AtomicU32, Ordering, spin_hint};

/// On a line of its own.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct SpinLock {
    next: AtomicU32,
    serving: AtomicU32,
}

impl SpinLock {
    /// Does something under the lock.
    pub(crate) fn with<T>(&self, body: impl FnOnce() -> T) -> T {
        // Relaxed: `serving` orders.
        let ticket = self.next.fetch_add(1, Ordering::Relaxed);
        // Acquire pairs with the Release below.
        while self.serving.load(Ordering::Acquire) != ticket {
            spin_hint();
        }
        let value = body();
        self.serving.store(ticket.wrapping_add(1), Ordering::Release);
        value
    }
}
