//! One spinlock around the tree, as in Linux before 2.6.12, which had a reader/writer lock.

use sync::atomic::{AtomicBool, Ordering, spin_hint};

use super::locked::{Locked, ReadLock};
use super::measure;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "spinlock",
    about: "one spinlock around the tree; the page is counted under it",
    hidden: false,
    measure: |job| measure(job, Locked::<SpinLock>::new),
};

/// Test and test-and-set, on a line of its own.
#[derive(Default)]
#[repr(align(64))]
struct SpinLock(AtomicBool);

impl ReadLock for SpinLock {
    #[inline]
    fn lock(&self) {
        // Acquire pairs with the Release in `unlock`.
        while self.0.swap(true, Ordering::Acquire) {
            // Relaxed: only the swap decides.
            while self.0.load(Ordering::Relaxed) {
                spin_hint();
            }
        }
    }

    #[inline]
    fn unlock(&self) {
        // Release pairs with the Acquire in `lock`.
        self.0.store(false, Ordering::Release);
    }
}
