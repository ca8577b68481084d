//! A reader/writer lock around the tree, as in Linux 2.6.12: readers count themselves in one word.

use sync::atomic::{AtomicU32, Ordering, spin_hint};

use super::locked::{Locked, ReadLock};
use super::measure;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "rwlock",
    about: "a spinning reader/writer lock around the tree; the page is counted under it",
    hidden: false,
    measure: |job| measure(job, Locked::<CountingLock>::new),
};

/// Set while a writer has the lock; below it, the number of readers.
const WRITER: u32 = 1 << 31;

/// On a line of its own.
#[derive(Default)]
#[repr(align(64))]
struct CountingLock(AtomicU32);

impl ReadLock for CountingLock {
    #[inline]
    fn lock(&self) {
        // Acquire pairs with a writer's Release.
        while self.0.fetch_add(1, Ordering::Acquire) & WRITER != 0 {
            // Relaxed: nothing was read under the lock.
            self.0.fetch_sub(1, Ordering::Relaxed);
            // Relaxed: only the addition decides.
            while self.0.load(Ordering::Relaxed) & WRITER != 0 {
                spin_hint();
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        // Release pairs with a writer's Acquire: it writes when readers have read.
        self.0.fetch_sub(1, Ordering::Release);
    }

    fn lock_alone(&self) {
        // Acquire pairs with the Release in `unlock` and `unlock_alone`.
        while self.0.compare_exchange(0, WRITER, Ordering::Acquire, Ordering::Relaxed).is_err() {
            while self.0.load(Ordering::Relaxed) != 0 {
                spin_hint();
            }
        }
    }

    fn unlock_alone(&self) {
        // Release pairs with the Acquire in `lock`.
        self.0.fetch_sub(WRITER, Ordering::Release);
    }
}
