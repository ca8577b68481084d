//! A test-and-test-and-set lock with exponential backoff: a task that loses a race for the lock
//! pauses before it tries again, each time twice as long (T. Anderson, "The performance of spin
//! lock alternatives for shared-memory multiprocessors", TPDS 1990).

use sync::atomic::{AtomicBool, Ordering, spin_hint};

use super::words::Words;
use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "test-and-set",
    about: "a test-and-test-and-set lock with backoff; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, new),
};

/// The longest backoff, in pauses.
const PAUSES_MAX: u32 = 64;

#[derive(Default)]
#[repr(align(64))]
struct Taken(AtomicBool);

#[derive(Default)]
struct TestAndSet {
    taken: Taken,
    words: Words,
}

/// A lock for any number of tasks.
pub(super) fn new(_: usize) -> impl Shared {
    TestAndSet::default()
}

impl TestAndSet {
    fn lock(&self) {
        let mut pauses = 1;
        // Acquire pairs with the Release in `operate`.
        while self.taken.0.swap(true, Ordering::Acquire) {
            (0..pauses).for_each(|_| spin_hint());
            pauses = (2 * pauses).min(PAUSES_MAX);
            // Relaxed: only the swap decides.
            while self.taken.0.load(Ordering::Relaxed) {
                spin_hint();
            }
        }
    }
}

impl Shared for TestAndSet {
    fn operate(&self, _: usize, _: u64) {
        self.lock();
        self.words.change();
        // Release pairs with the Acquire in `lock`.
        self.taken.0.store(false, Ordering::Release);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.words.read(), uses);
    }
}
