//! What the locks protect: two words that belong together.

use sync::atomic::{AtomicU64, Ordering};

/// On a line of their own.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct Words([AtomicU64; 2]);

impl Words {
    /// Adds 1 to both. The caller holds the lock alone.
    pub(super) fn change(&self) {
        for word in &self.0 {
            // Relaxed: under the lock.
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }

    /// Returns the value of both words, which must be equal. No task may change them meanwhile.
    pub(super) fn read(&self) -> u64 {
        // Relaxed: as above.
        let [first, second] = [0, 1].map(|at: usize| self.0[at].load(Ordering::Relaxed));
        assert_eq!(first, second, "words of different age");
        first
    }

    /// Sets both. No other task uses them.
    pub(super) fn set(&self, value: u64) {
        // Relaxed: the caller publishes them.
        self.0.iter().for_each(|word| word.store(value, Ordering::Relaxed));
    }
}
