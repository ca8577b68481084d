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

/// On a line of its own. The tree doesn't change while it is measured, so there are no writers, but
/// readers look.
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
}
