//! A sequence lock: readers write nothing, and read again if a writer wrote meanwhile.

use sync::atomic::{AtomicU64, Ordering, fence, spin_hint};

use super::{Pair, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "seqlock",
    about: "a sequence lock; each 16th operation of a task changes both words, the others read them",
    hidden: false,
    measure: |job| measure(job, Sequence::default),
};

/// All on one line, as they are used together.
#[derive(Default)]
#[repr(align(64))]
struct Sequence {
    /// Odd while a writer writes.
    number: AtomicU64,
    words: [AtomicU64; 2],
}

impl Pair for Sequence {
    fn operate(&self, turn: u64) {
        if turn.is_multiple_of(16) { self.write() } else { self.read() }
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
