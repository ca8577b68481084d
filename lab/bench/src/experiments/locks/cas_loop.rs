//! One word, changed in a way for which there is no single instruction: a task loads it, computes
//! the next random number from it, and exchanges it by compare-and-swap. If another task has
//! changed the word meanwhile, the task repeats this.

use sync::atomic::{AtomicU64, Ordering};

use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "cas-loop",
    about: "one word; each operation changes it by compare-and-swap, in a loop",
    hidden: false,
    measure: |job| measure(job, new),
};

#[derive(Default)]
#[repr(align(64))]
struct Word(AtomicU64);

/// A word for any number of tasks.
pub(super) fn new(_: usize) -> impl Shared {
    Word::default()
}

/// The number after `number` (D. Knuth's linear congruential generator, MMIX).
fn after(number: u64) -> u64 {
    number.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407)
}

impl Shared for Word {
    fn operate(&self, _: usize, _: u64) {
        // Relaxed, here and below: the word orders nothing.
        let mut number = self.0.load(Ordering::Relaxed);
        let exchange =
            |number| self.0.compare_exchange_weak(number, after(number), Ordering::Relaxed, Ordering::Relaxed);
        while let Err(now) = exchange(number) {
            number = now;
        }
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        // Relaxed: all tasks have ended.
        assert_eq!(self.0.load(Ordering::Relaxed), (0..uses).fold(0, |number, _| after(number)));
    }
}
