//! Counting hits without a shared write.
//!
//! Each thread counts on a line of its own, made when it first has something to count: one load, one add, one store.
//! The sum is exact, because a thread's index is its own while it lives, and the next thread that gets it goes on
//! from there.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::OnceCell;
use sync::thread::{INDEXES, SHARED_INDEX, index};

const LINES: usize = 64;

/// One thread's count.
#[derive(Debug, Default)]
#[repr(align(64))]
struct Line(AtomicU64);

type Block = [OnceCell<Box<Line>>; LINES];

/// A sum over all threads.
#[derive(Debug)]
pub(crate) struct HitCounters {
    blocks: Box<[OnceCell<Box<Block>>]>,
}

impl HitCounters {
    pub(crate) fn new() -> Self {
        Self { blocks: (0..INDEXES / LINES).map(|_| OnceCell::new()).collect() }
    }

    /// Adds `n`, which this thread counted.
    #[inline]
    pub(crate) fn add(&self, n: u64) {
        let index = index();
        match self.blocks[index / LINES].get().and_then(|block| block[index % LINES].get()) {
            // Relaxed: a statistic; only this thread writes the line.
            Some(line) if index != SHARED_INDEX => line.0.store(line.0.load(Ordering::Relaxed) + n, Ordering::Relaxed),
            _ => self.add_slowly(index, n),
        }
    }

    /// For a thread's first count, and for threads that have no index of their own.
    #[cold]
    fn add_slowly(&self, index: usize, n: u64) {
        let block = self.blocks[index / LINES].get_or_init(|| Box::new([const { OnceCell::new() }; LINES]));
        block[index % LINES].get_or_init(Box::default).0.fetch_add(n, Ordering::Relaxed);
    }

    /// What all threads counted so far.
    pub(crate) fn sum(&self) -> u64 {
        let lines =
            self.blocks.iter().filter_map(OnceCell::get).flat_map(|block| block.iter().filter_map(OnceCell::get));
        lines.map(|line| line.0.load(Ordering::Relaxed)).sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use sync::Arc;

    #[test]
    fn no_count_is_lost() {
        let counters = Arc::new(HitCounters::new());
        for _ in 0..3 {
            let threads: Vec<_> = (0..4)
                .map(|_| {
                    let counters = Arc::clone(&counters);
                    sync::thread::spawn("count", move || (0..1000).for_each(|_| counters.add(2))).unwrap()
                })
                .collect();
            threads.into_iter().for_each(|thread| thread.join().unwrap());
        }
        assert_eq!(counters.sum(), 3 * 4 * 1000 * 2);
    }
}
