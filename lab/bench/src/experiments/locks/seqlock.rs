//! A sequence lock: readers write nothing, and read again if a writer has written meanwhile.

use sync::atomic::{AtomicU64, Ordering, fence, spin_hint};

use super::{Shared, is_rare, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "seqlock",
    about: "a sequence lock; each 16th operation of a task changes both words, the others read them",
    hidden: false,
    measure: |job| measure(job, new),
};

/// All on one line, as they are used together.
#[derive(Default)]
#[repr(align(64))]
struct Sequence {
    /// Odd while a writer writes.
    number: AtomicU64,
    words: [AtomicU64; 2],
}

/// A lock for any number of tasks.
pub(super) fn new(_: usize) -> impl Shared {
    Sequence::default()
}

impl Shared for Sequence {
    fn operate(&self, _: usize, turn: u64) {
        if is_rare(turn) { self.write() } else { self.read() }
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        self.read();
        // Relaxed: all tasks have ended.
        assert_eq!(self.words[0].load(Ordering::Relaxed), uses / super::RARE);
    }
}

impl Sequence {
    fn write(&self) {
        loop {
            // Relaxed: the exchange decides.
            let number = self.number.load(Ordering::Relaxed);
            // Acquire pairs with the Release of the writer before.
            let exchange = |to| self.number.compare_exchange(number, to, Ordering::Acquire, Ordering::Relaxed);
            if number.is_multiple_of(2) && exchange(number + 1).is_ok() {
                // Release pairs with the Acquire fence of readers: a reader that has seen a new
                // word also sees the odd number, or a later one, and retries.
                fence(Ordering::Release);
                for word in &self.words {
                    // Relaxed: the only writer; readers look at the number again.
                    word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
                }
                // Release pairs with the Acquire of readers.
                self.number.store(number + 2, Ordering::Release);
                return;
            }
            spin_hint();
        }
    }

    fn read(&self) {
        loop {
            // Acquire pairs with the writer's last Release.
            let before = self.number.load(Ordering::Acquire);
            // Relaxed: the fence orders them before the second look.
            let [first, second] = [0, 1].map(|at: usize| self.words[at].load(Ordering::Relaxed));
            // Acquire pairs with the Release fence of writers.
            fence(Ordering::Acquire);
            // Relaxed: as above.
            if before.is_multiple_of(2) && self.number.load(Ordering::Relaxed) == before {
                assert_eq!(first, second, "words of different age");
                return;
            }
            spin_hint();
        }
    }
}
