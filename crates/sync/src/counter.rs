//! Counters that many threads add to without sharing a line.
//!
//! Every thread has a block of numbers, one for each counter of the process, and adds to its own: a load, an add and a
//! store. A counter's sum is taken over all blocks. It is exact: a block has one writer at a time, and when its thread
//! ends, the next thread goes on with it.

use crate::atomic::{AtomicU64, Ordering};

/// Counters that there can be at a time. Blocks are this long, but only the parts of them that are used take memory.
#[cfg(not(pagefold_loom))]
const PLACES: usize = 1 << 18;

/// A block's numbers, one for each place.
type Block = [AtomicU64];

/// Where a counter is in every block: a number below `PLACES`.
///
/// Worth a copy for whoever counts in a hot loop, so that it needn't be fetched from where the counter is.
#[derive(Clone, Copy, Debug)]
pub struct CounterPlace(usize);

impl CounterPlace {
    /// Adds `n` to the counter that has the place; it is alive. False, and nothing is added, if the thread is ending:
    /// then [`ThreadCounter::add`] does it.
    #[inline]
    #[must_use]
    pub fn try_add(self, n: u64) -> bool {
        registry::with_block(|block| bump(at(block, self), n))
    }
}

/// One counter.
#[derive(Debug)]
pub struct ThreadCounter {
    place: CounterPlace,
    /// What was added by threads that were ending.
    shared: AtomicU64,
}

impl ThreadCounter {
    /// A counter at zero; `None` if there are a quarter of a million already.
    #[must_use]
    pub fn new() -> Option<Self> {
        registry::take_place().map(|place| Self { place, shared: AtomicU64::new(0) })
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        if !self.place.try_add(n) {
            // Relaxed: a statistic.
            self.shared.fetch_add(n, Ordering::Relaxed);
        }
    }

    /// Where the counter is.
    #[must_use]
    pub fn place(&self) -> CounterPlace {
        self.place
    }

    /// What all threads added so far.
    #[must_use]
    pub fn sum(&self) -> u64 {
        registry::sum(self.place) + self.shared.load(Ordering::Relaxed)
    }
}

impl Drop for ThreadCounter {
    fn drop(&mut self) {
        registry::give_place(self.place);
    }
}

#[inline]
fn at(block: &Block, CounterPlace(place): CounterPlace) -> &AtomicU64 {
    debug_assert!(place < block.len());
    // SAFETY: places are below `PLACES`, which is the length of every block.
    unsafe { block.get_unchecked(place) }
}

#[inline]
fn bump(number: &AtomicU64, n: u64) {
    // Relaxed, and not one operation: only this thread writes it.
    number.store(number.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

#[cfg(not(pagefold_loom))]
mod registry {
    use super::{AtomicU64, Block, CounterPlace, Ordering, PLACES, at};
    use crate::lock::Mutex;
    use std::alloc::{Layout, alloc_zeroed, handle_alloc_error};
    use std::cell::Cell;

    /// How often a lock that is held for microseconds is tried.
    const PATIENCE: usize = 10_000;

    struct Registry {
        /// All blocks that were ever made.
        blocks: Vec<&'static Block>,
        /// Those of threads that have ended.
        idle: Vec<&'static Block>,
        /// Places given back, and the lowest one never given out.
        places: (Vec<CounterPlace>, usize),
    }

    static REGISTRY: Mutex<Registry> =
        Mutex::new(Registry { blocks: Vec::new(), idle: Vec::new(), places: (Vec::new(), 0) });

    #[cfg(not(pagefold_manycore))]
    thread_local! {
        static MINE: Cell<Option<&'static Block>> = const { Cell::new(None) };
        static RETURN: Return = const { Return };
    }
    #[cfg(pagefold_manycore)]
    manycore::thread_local! {
        static MINE: Cell<Option<&'static Block>> = Cell::new(None);
        static RETURN: Return = Return;
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

    /// Calls `f` with the thread's block. False if the thread is ending.
    #[inline]
    pub(super) fn with_block(f: impl FnOnce(&Block)) -> bool {
        let block = MINE.get().or_else(join);
        block.map(f).is_some()
    }

    #[cold]
    fn join() -> Option<&'static Block> {
        RETURN.try_with(|_| ()).ok()?;
        let mut registry = REGISTRY.lock();
        let block = registry.idle.pop().unwrap_or_else(|| {
            let block = new_block();
            registry.blocks.push(block);
            block
        });
        MINE.set(Some(block));
        Some(block)
    }

    /// A block of zeros, large enough that the system gives memory for a part of it only when that is written. Never
    /// freed: there are as many as threads were alive at once.
    fn new_block() -> &'static Block {
        let layout = Layout::new::<[AtomicU64; PLACES]>();
        // SAFETY: the layout isn't empty.
        let start = unsafe { alloc_zeroed(layout) };
        if start.is_null() {
            handle_alloc_error(layout);
        }
        // SAFETY: the allocation is of this layout, zero is a value of an atomic, and nobody frees it.
        unsafe { core::slice::from_raw_parts(start.cast(), PLACES) }
    }

    pub(super) fn take_place() -> Option<CounterPlace> {
        let mut registry = REGISTRY.lock();
        let fresh = registry.places.1;
        registry.places.0.pop().or_else(|| {
            registry.places.1 += usize::from(fresh < PLACES);
            (fresh < PLACES).then_some(CounterPlace(fresh))
        })
    }

    /// The counter is being dropped, so nobody adds to it.
    pub(super) fn give_place(place: CounterPlace) {
        // A forked child may have inherited the lock taken, for good: rather lose a place.
        let locked = (0..PATIENCE).find_map(|_| {
            REGISTRY.try_lock().or_else(|| {
                crate::thread::yield_now();
                None
            })
        });
        let Some(mut registry) = locked else { return };
        for number in registry.blocks.iter().map(|block| at(block, place)) {
            // Relaxed, and only where there is something: a place that was never used takes no memory.
            if number.load(Ordering::Relaxed) != 0 {
                number.store(0, Ordering::Relaxed);
            }
        }
        registry.places.0.push(place);
    }

    pub(super) fn sum(place: CounterPlace) -> u64 {
        let registry = REGISTRY.lock();
        let numbers = registry.blocks.iter().map(|block| at(block, place));
        numbers.map(|number| number.load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// A model's threads are few and short: they share.
#[cfg(pagefold_loom)]
mod registry {
    use super::{Block, CounterPlace};

    pub(super) fn with_block(_: impl FnOnce(&Block)) -> bool {
        false
    }

    pub(super) fn take_place() -> Option<CounterPlace> {
        Some(CounterPlace(0))
    }

    pub(super) fn give_place(_: CounterPlace) {}

    pub(super) fn sum(_: CounterPlace) -> u64 {
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
            let counter = Arc::new(ThreadCounter::new().unwrap());
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
    fn counters_are_many_but_not_without_end() {
        let counters: Vec<_> = std::iter::from_fn(ThreadCounter::new).collect();
        assert!(counters.len() > PLACES / 2);
        counters[counters.len() - 1].add(3);
        assert_eq!(counters[counters.len() - 1].sum(), 3);
        assert_eq!(counters[counters.len() - 2].sum(), 0);
        drop(counters);
        assert!(ThreadCounter::new().is_some());
    }
}
