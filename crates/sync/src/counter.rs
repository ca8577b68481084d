//! Counters that many threads add to without sharing a line.
//!
//! Every thread has a block of numbers, one for each counter of the process, and adds to its own: a load, an add and a
//! store. A counter's sum is taken over all blocks. It is exact: a block has one writer at a time, and when its thread
//! ends, the next thread goes on with it.

use crate::atomic::{AtomicU64, Ordering};

/// Counters that have a place in the blocks. Those beyond share an ordinary atomic.
const PLACES: usize = 4096;

/// A block's numbers.
type Block = [AtomicU64; PLACES];

/// One counter.
#[derive(Debug)]
pub struct ThreadCounter {
    place: usize,
    /// What was added by threads without a block, or to a counter without a place.
    shared: AtomicU64,
}

/// [`ThreadCounter::place`] of a counter that has none: past the end of every block.
const NO_PLACE: usize = usize::MAX;

impl ThreadCounter {
    /// A counter at zero.
    #[must_use]
    pub fn new() -> Self {
        Self { place: registry::take_place(), shared: AtomicU64::new(0) }
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        match registry::with_block(|block| block.get(self.place).map(|number| bump(number, n))) {
            Some(Some(())) => {}
            _ => self.add_shared(n),
        }
    }

    #[cold]
    fn add_shared(&self, n: u64) {
        // Relaxed: a statistic.
        self.shared.fetch_add(n, Ordering::Relaxed);
    }

    /// What all threads added so far.
    #[must_use]
    pub fn sum(&self) -> u64 {
        registry::sum(self.place) + self.shared.load(Ordering::Relaxed)
    }
}

impl Default for ThreadCounter {
    fn default() -> Self {
        Self::new()
    }
}

impl Drop for ThreadCounter {
    fn drop(&mut self) {
        registry::give_place(self.place);
    }
}

#[inline]
fn bump(number: &AtomicU64, n: u64) {
    // Relaxed, and not one operation: only this thread writes it.
    number.store(number.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[cfg(not(pagefold_loom))]
mod registry {
    use super::{AtomicU64, Block, NO_PLACE, Ordering, PLACES};
    use crate::lock::Mutex;
    use std::cell::Cell;

    struct Registry {
        /// All blocks that were ever made.
        blocks: Vec<&'static Block>,
        /// Those of threads that have ended.
        idle: Vec<&'static Block>,
        /// Places given back, and the lowest one never given out.
        places: (Vec<usize>, usize),
    }

    static REGISTRY: Mutex<Registry> =
        Mutex::new(Registry { blocks: Vec::new(), idle: Vec::new(), places: (Vec::new(), 0) });

    thread_local! {
        static MINE: Cell<Option<&'static Block>> = const { Cell::new(None) };
        static RETURN: Return = const { Return };
    }

    /// Gives the thread's block to the next thread.
    struct Return;

    impl Drop for Return {
        fn drop(&mut self) {
            if let Some(block) = MINE.take() {
                REGISTRY.lock().idle.push(block);
            }
        }
    }

    /// Calls `f` with the thread's block; `None` if the thread is ending.
    #[inline]
    pub(super) fn with_block<T>(f: impl FnOnce(&Block) -> T) -> Option<T> {
        match MINE.get() {
            Some(block) => Some(f(block)),
            None => join().map(f),
        }
    }

    #[cold]
    fn join() -> Option<&'static Block> {
        RETURN.try_with(|_| ()).ok()?;
        let mut registry = REGISTRY.lock();
        let block = registry.idle.pop().unwrap_or_else(|| {
            // Never freed: there are as many as threads were alive at once.
            let numbers: Vec<AtomicU64> = (0..PLACES).map(|_| AtomicU64::new(0)).collect();
            let block: Box<Block> = numbers.into_boxed_slice().try_into().unwrap_or_else(|_| unreachable!("PLACES"));
            let block = Box::leak(block);
            registry.blocks.push(block);
            block
        });
        MINE.set(Some(block));
        Some(block)
    }

    pub(super) fn take_place() -> usize {
        let mut registry = REGISTRY.lock();
        let fresh = registry.places.1;
        registry.places.0.pop().unwrap_or_else(|| {
            if fresh == PLACES {
                return NO_PLACE;
            }
            registry.places.1 += 1;
            fresh
        })
    }

    /// The counter is being dropped, so nobody adds to it.
    pub(super) fn give_place(place: usize) {
        if place == NO_PLACE {
            return;
        }
        let mut registry = REGISTRY.lock();
        for block in &registry.blocks {
            block[place].store(0, Ordering::Relaxed);
        }
        registry.places.0.push(place);
    }

    pub(super) fn sum(place: usize) -> u64 {
        let registry = REGISTRY.lock();
        let numbers = registry.blocks.iter().filter_map(|block| block.get(place));
        numbers.map(|number| number.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// A model's threads are few and short: they share.
#[cfg(pagefold_loom)]
mod registry {
    use super::{Block, NO_PLACE};

    pub(super) fn with_block<T>(_: impl FnOnce(&Block) -> T) -> Option<T> {
        None
    }

    pub(super) fn take_place() -> usize {
        NO_PLACE
    }

    pub(super) fn give_place(_: usize) {}

    pub(super) fn sum(_: usize) -> u64 {
        0
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::Arc;

    #[test]
    fn no_count_is_lost_and_none_is_inherited() {
        for _ in 0..3 {
            let counter = Arc::new(ThreadCounter::new());
            for _ in 0..3 {
                let threads: Vec<_> = (0..4)
                    .map(|_| {
                        let counter = Arc::clone(&counter);
                        crate::thread::spawn("count", move || (0..1000).for_each(|_| counter.add(2))).unwrap()
                    })
                    .collect();
                threads.into_iter().for_each(|thread| thread.join().unwrap());
            }
            assert_eq!(counter.sum(), 3 * 4 * 1000 * 2);
        }
    }

    #[test]
    fn more_counters_than_places_still_count() {
        let counters: Vec<_> = (0..PLACES + 10).map(|_| ThreadCounter::new()).collect();
        counters.iter().for_each(|counter| counter.add(3));
        assert!(counters.iter().all(|counter| counter.sum() == 3));
    }
}
