//! A counter with a shard for each task: counting is cheap, but reading the count loads a cache
//! line of each task.

use sync::atomic::{AtomicU64, Ordering};

use super::{Shared, is_rare, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "sharded",
    about: "a counter with a shard for each task; each operation adds to it, and each 16th of a task sums it up",
    hidden: false,
    measure: |job| measure(job, new),
};

#[derive(Default)]
#[repr(align(64))]
struct Shard(AtomicU64);

struct Sharded(Box<[Shard]>);

/// A counter for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    Sharded((0..tasks).map(|_| Shard::default()).collect())
}

impl Sharded {
    fn sum(&self) -> u64 {
        // Relaxed: a sum orders nothing, and may miss what is added meanwhile.
        self.0.iter().map(|shard| shard.0.load(Ordering::Relaxed)).sum()
    }
}

impl Shared for Sharded {
    fn operate(&self, task: usize, turn: u64) {
        // Relaxed: the count orders nothing.
        let before = self.0[task].0.fetch_add(1, Ordering::Relaxed);
        if is_rare(turn) {
            assert!(self.sum() > before, "the sum has less than this task's shard");
        }
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.sum(), uses);
    }
}
