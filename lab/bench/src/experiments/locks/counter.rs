//! One counter that all tasks add to.

use sync::atomic::{AtomicU64, Ordering};

use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "counter",
    about: "one counter; each operation adds to it",
    hidden: false,
    measure: |job| measure(job, new),
};

#[derive(Default)]
#[repr(align(64))]
struct Counter(AtomicU64);

/// A counter for any number of tasks.
pub(super) fn new(_: usize) -> impl Shared {
    Counter::default()
}

impl Shared for Counter {
    fn operate(&self, _: usize, _: u64) {
        // Relaxed: the count orders nothing.
        self.0.fetch_add(1, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        // Relaxed: all tasks have ended.
        assert_eq!(self.0.load(Ordering::Relaxed), uses);
    }
}
