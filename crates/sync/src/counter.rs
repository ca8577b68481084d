//! Counters that many threads add to without sharing a line.
//!
//! Every thread has a block of numbers, one for each counter that has a *place*, and adds to its
//! own: a load, an add and a store. A counter's sum is taken over all blocks. It is exact: a block
//! has one writer at a time, and when its thread ends, the next thread goes on with it.
//!
//! Places are a common good of the process, and one costs 8 bytes for each thread that adds there.
//! So a counter gets its place only once it was added to `ADDS_SHARED` times: until then all
//! threads add to one number, which few of them can be waiting for. No more than `BUSY_MAX`
//! counters have such a place at a time, and fewer if there are more than 8 CPUs
//! (`BUSY_BYTES_MAX`); the others go on sharing. If as many are busy at once, the threads are
//! spread over so many numbers that they seldom meet. A counter of something that happens on the
//! way of a hit has its place from the beginning ([`ThreadCounter::at_hand`]), as long as such
//! counters are few (`AT_HAND_BYTES_MAX`); its owner accounts for the memory
//! ([`CounterPlace::bytes`]).

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// Places. Blocks are this long, but only the parts of them that are used take memory.
#[cfg(not(pagefold_loom))]
const PLACES: usize = 1 << 21;
/// Places for counters that were made without one: so many, and no more than take so many bytes.
#[cfg(not(pagefold_loom))]
const BUSY_MAX: usize = 1 << 15;
#[cfg(not(pagefold_loom))]
const BUSY_BYTES_MAX: u64 = 2 << 20;
/// Places that counters have from the beginning take no more.
#[cfg(not(pagefold_loom))]
const AT_HAND_BYTES_MAX: u64 = 16 << 20;
/// Times that a counter is added to before it gets a place.
const ADDS_SHARED: u32 = 64;

/// A block's numbers, one for each place.
type Block = [AtomicU64];

/// Where a counter is in every block: a number below `PLACES`; 0 is no counter's.
///
/// Code that counts in a hot loop should keep a copy, so that the place needn't be fetched from
/// where the counter is.
#[derive(Clone, Copy, Debug)]
pub struct CounterPlace(usize);

impl CounterPlace {
    /// Of a counter that has none.
    const NONE: Self = Self(0);

    /// Bytes that the place takes, if a thread on each CPU counts there.
    #[must_use]
    pub fn bytes(self) -> u64 {
        if self.is_none() { 0 } else { bytes_of_one() }
    }

    fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// Adds `n` to the counter that has the place; it is alive. False, and nothing is added, if
    /// there is no place, the thread is ending, or there is no memory for its block: then
    /// [`ThreadCounter::add`] does it.
    #[inline]
    #[must_use]
    pub fn try_add(self, n: u64) -> bool {
        !self.is_none() && registry::with_block(|block| bump(at(block, self), n))
    }
}

/// Bytes of a place.
fn bytes_of_one() -> u64 {
    size_of::<u64>() as u64 * crate::cpu::count() as u64
}

/// How many counters have their place from the beginning, at most: as many as leave the busy ones
/// theirs.
#[cfg(not(pagefold_loom))]
fn at_hand_max() -> usize {
    ((AT_HAND_BYTES_MAX / bytes_of_one()) as usize).min(PLACES - 1 - BUSY_MAX)
}

/// One counter.
#[derive(Debug)]
pub struct ThreadCounter {
    /// The place; 0 as long as there is none. Never changes again.
    place: AtomicU32,
    /// Times that it was added to without a place; [`AT_HAND`].
    adds: AtomicU32,
    /// What was added without a place, or by threads that were ending, or had no block.
    shared: AtomicU64,
}

/// The counter was made with its place, which is none of [`BUSY_MAX`].
const AT_HAND: u32 = u32::MAX;

impl Default for ThreadCounter {
    fn default() -> Self {
        Self { place: AtomicU32::new(0), adds: AtomicU32::new(0), shared: AtomicU64::new(0) }
    }
}

impl ThreadCounter {
    /// A counter at zero, and its place, which it has at once unless there are many such counters.
    #[must_use]
    pub fn at_hand() -> (Self, CounterPlace) {
        let Some(place) = registry::take_place_at_hand() else { return (Self::default(), CounterPlace::NONE) };
        let (number, adds) = (AtomicU32::new(place.0 as u32), AtomicU32::new(AT_HAND));
        (Self { place: number, adds, shared: AtomicU64::new(0) }, place)
    }

    fn is_at_hand(&self) -> bool {
        self.adds.load(Ordering::Relaxed) == AT_HAND
    }

    /// Adds `n`.
    #[inline]
    pub fn add(&self, n: u64) {
        if !self.place().is_some_and(|place| place.try_add(n)) {
            self.add_shared(n);
        }
    }

    #[cold]
    fn add_shared(&self, n: u64) {
        // Relaxed: statistics. One thread alone comes to the number that is waited for.
        self.shared.fetch_add(n, Ordering::Relaxed);
        if self.place().is_none() && self.adds.fetch_add(1, Ordering::Relaxed) == ADDS_SHARED {
            let Some(place) = registry::take_busy_place() else { return };
            // Release pairs with the Acquire of `place`: a thread that adds there finds its number
            // at zero.
            self.place.store(place.0 as u32, Ordering::Release);
        }
    }

    /// Where the counter is, if it has a place.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Option<CounterPlace> {
        Some(CounterPlace(self.place.load(Ordering::Acquire) as usize)).filter(|place| !place.is_none())
    }

    /// What all threads added so far.
    #[must_use]
    pub fn sum(&self) -> u64 {
        self.place().map_or(0, registry::sum) + self.shared.load(Ordering::Relaxed)
    }
}

impl Drop for ThreadCounter {
    fn drop(&mut self) {
        if let Some(place) = self.place() {
            registry::give_place(place);
            if self.is_at_hand() { registry::give_at_hand() } else { registry::give_busy() }
        }
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

/// All blocks, and the places given out: without a lock, so that a forked child has none to inherit
/// from a thread that isn't there.
#[cfg(not(pagefold_loom))]
mod registry {
    use super::{
        AtomicU64, BUSY_BYTES_MAX, BUSY_MAX, Block, CounterPlace, Ordering, PLACES, at, at_hand_max, bytes_of_one,
    };
    use crate::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
    use std::alloc::{Layout, alloc_zeroed};
    use std::cell::Cell;

    /// A block among all others. None is ever freed: there are as many as threads were alive at
    /// once.
    struct Node {
        block: &'static Block,
        /// A thread has it.
        is_taken: AtomicBool,
        next: Option<&'static Node>,
    }

    /// The node made last.
    static NODES: AtomicPtr<Node> = AtomicPtr::new(std::ptr::null_mut());

    #[cfg(not(pagefold_manycore))]
    thread_local! {
        static MINE: Cell<Option<&'static Block>> = const { Cell::new(None) };
        static RETURN: Return = const { Return(Cell::new(None)) };
    }
    #[cfg(pagefold_manycore)]
    manycore::thread_local! {
        static MINE: Cell<Option<&'static Block>> = Cell::new(None);
        static RETURN: Return = Return(Cell::new(None));
    }

    /// Gives the thread's block to the next thread.
    struct Return(Cell<Option<&'static Node>>);

    impl Drop for Return {
        fn drop(&mut self) {
            MINE.set(None);
            if let Some(node) = self.0.take() {
                // Release pairs with the Acquire in `take`: the next thread adds to what this one
                // has left.
                node.is_taken.store(false, Ordering::Release);
            }
        }
    }

    impl Node {
        fn take(&self) -> bool {
            !self.is_taken.load(Ordering::Relaxed) && !self.is_taken.swap(true, Ordering::Acquire)
        }
    }

    fn nodes() -> impl Iterator<Item = &'static Node> {
        // Acquire pairs with the Release in `new_node`.
        let last = NODES.load(Ordering::Acquire);
        // SAFETY: a pointer in `NODES` is null or of a node that was leaked.
        std::iter::successors(unsafe { last.as_ref::<'static>() }, |node| node.next)
    }

    /// Calls `f` with the thread's block. False if the thread is ending, or no memory can be had
    /// for a block.
    #[inline]
    pub(super) fn with_block(f: impl FnOnce(&Block)) -> bool {
        // Not by `get`, which is a call.
        match MINE.try_with(Cell::get) {
            Ok(Some(block)) => {
                f(block);
                true
            }
            _ => join().map(f).is_some(),
        }
    }

    #[cold]
    fn join() -> Option<&'static Block> {
        RETURN
            .try_with(|mine| {
                let node = nodes().find(|node| node.take()).or_else(new_node)?;
                mine.0.set(Some(node));
                MINE.set(Some(node.block));
                Some(node.block)
            })
            .ok()?
    }

    /// A node that the caller has, if there is memory for it.
    fn new_node() -> Option<&'static Node> {
        let block = new_block()?;
        let node = Box::leak(Box::new(Node { block, is_taken: AtomicBool::new(true), next: None }));
        // Relaxed: what the last node says is read by threads that load the new one's pointer, with
        // Acquire.
        let mut last = NODES.load(Ordering::Relaxed);
        loop {
            // SAFETY: as in `nodes`.
            node.next = unsafe { last.as_ref::<'static>() };
            // Release pairs with the Acquire in `nodes`. Acquire on failure, and so from the second
            // turn on, for `next`.
            match NODES.compare_exchange(last, node, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Some(node),
                Err(other) => last = other,
            }
        }
    }

    /// A block of zeros, large enough that the system gives memory for a part of it only when that
    /// is written.
    fn new_block() -> Option<&'static Block> {
        // SAFETY: the layout isn't empty.
        let start = unsafe { alloc_zeroed(Layout::new::<[AtomicU64; PLACES]>()) };
        // SAFETY: the allocation, if there is one, is of this layout, zero is a value of an atomic,
        // and it is never freed.
        (!start.is_null()).then(|| unsafe { core::slice::from_raw_parts(start.cast(), PLACES) })
    }

    /// Places given back, a stack: the upper half counts changes, so that a value doesn't come back
    /// while a thread goes by it; the lower half is the topmost place plus one, or 0.
    static FREE: AtomicU64 = AtomicU64::new(0);
    /// For each place given back, the one below it, plus one, or 0.
    static BELOW: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];
    /// The lowest place never given out.
    static FRESH: AtomicUsize = AtomicUsize::new(1);

    fn change(top: u64, place: u32) -> u64 {
        (top >> 32).wrapping_add(1) << 32 | u64::from(place)
    }

    pub(super) fn take_place() -> Option<CounterPlace> {
        // Acquire, both times, pairs with the Release in `give_place`: its zeros come first.
        let mut top = FREE.load(Ordering::Acquire);
        while let Some(place) = (top as u32).checked_sub(1) {
            // Relaxed: if another thread has taken the place meanwhile, `FREE` has changed.
            let below = BELOW[place as usize].load(Ordering::Relaxed);
            match FREE.compare_exchange_weak(top, change(top, below), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(CounterPlace(place as usize)),
                Err(other) => top = other,
            }
        }
        // Relaxed: only that numbers differ counts.
        let fresh = |fresh: usize| (fresh < PLACES).then_some(fresh + 1);
        FRESH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fresh).ok().map(CounterPlace)
    }

    /// Places of counters that were made without one. Relaxed: a number.
    static BUSY: AtomicUsize = AtomicUsize::new(0);

    /// Places of counters that have theirs from the beginning.
    static HAVE_AT_HAND: AtomicUsize = AtomicUsize::new(0);

    /// A place for a counter that was made without one.
    pub(super) fn take_busy_place() -> Option<CounterPlace> {
        take_one_of(&BUSY, BUSY_MAX.min((BUSY_BYTES_MAX / bytes_of_one()) as usize))
    }

    /// Such a place was given back.
    pub(super) fn give_busy() {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }

    /// A place for a counter that is to have one from the beginning.
    pub(super) fn take_place_at_hand() -> Option<CounterPlace> {
        take_one_of(&HAVE_AT_HAND, at_hand_max())
    }

    /// Such a place was given back.
    pub(super) fn give_at_hand() {
        HAVE_AT_HAND.fetch_sub(1, Ordering::Relaxed);
    }

    /// A place, one of at most `max` that `taken` counts.
    fn take_one_of(taken: &AtomicUsize, max: usize) -> Option<CounterPlace> {
        let more = |taken: usize| (taken < max).then_some(taken + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        take_place().or_else(|| {
            taken.fetch_sub(1, Ordering::Relaxed);
            None
        })
    }

    /// The counter is being dropped, so no thread adds to it.
    pub(super) fn give_place(place: CounterPlace) {
        for number in nodes().map(|node| at(node.block, place)) {
            // Relaxed, and only where there is something: a place that was never used takes no
            // memory.
            if number.load(Ordering::Relaxed) != 0 {
                number.store(0, Ordering::Relaxed);
            }
        }
        let mut top = FREE.load(Ordering::Relaxed);
        loop {
            BELOW[place.0].store(top as u32, Ordering::Relaxed);
            let new = change(top, place.0 as u32 + 1);
            match FREE.compare_exchange_weak(top, new, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(other) => top = other,
            }
        }
    }

    pub(super) fn sum(place: CounterPlace) -> u64 {
        nodes().map(|node| at(node.block, place).load(Ordering::Relaxed)).fold(0, u64::wrapping_add)
    }
}

/// A model's threads are few and short: they share.
#[cfg(pagefold_loom)]
mod registry {
    use super::{Block, CounterPlace};

    pub(super) fn with_block(_: impl FnOnce(&Block)) -> bool {
        false
    }

    pub(super) fn take_busy_place() -> Option<CounterPlace> {
        None
    }

    pub(super) fn give_busy() {}

    pub(super) fn take_place_at_hand() -> Option<CounterPlace> {
        Some(CounterPlace(1))
    }

    pub(super) fn give_at_hand() {}

    pub(super) fn give_place(_: CounterPlace) {}

    pub(super) fn sum(_: CounterPlace) -> u64 {
        0
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::Arc;
    use crate::lock::Mutex;

    /// One test at a time uses up all places.
    static TURNS: Mutex<()> = Mutex::new(());

    #[test]
    fn no_count_is_lost_and_none_is_inherited() {
        let _turn = TURNS.lock();
        for make in [ThreadCounter::default, || ThreadCounter::at_hand().0].into_iter().cycle().take(6) {
            let counter = Arc::new(make());
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

    /// A tenant that opened 52,000 files, or one file 262,000 times, left no counters for others:
    /// they could open none.
    #[test]
    fn counters_that_are_seldom_added_to_take_no_place() {
        let _turn = TURNS.lock();
        let idle: Vec<_> = (0..1 << 19).map(|_| ThreadCounter::default()).collect();
        idle.iter().for_each(|counter| counter.add(2));
        assert!(idle.iter().all(|counter| counter.place().is_none() && counter.sum() == 2));
        let busy = &idle[7];
        (0..200).for_each(|_| busy.add(1));
        assert!(busy.place().is_some());
        assert_eq!((busy.sum(), idle[8].sum()), (202, 2));
    }

    /// Each open file had one, whatever it took: 200 MiB for 100,000 files and 256 CPUs.
    #[test]
    fn counters_at_hand_are_few_enough_and_the_others_count_too() {
        let _turn = TURNS.lock();
        let most = at_hand_max();
        let counters: Vec<_> = (0..most).map(|_| ThreadCounter::at_hand()).collect();
        let bytes: u64 = counters.iter().map(|(_, place)| place.bytes()).sum();
        // Other tests of this process may have some.
        let all = most as u64 * bytes_of_one();
        assert!(all <= AT_HAND_BYTES_MAX && (all / 2..=all).contains(&bytes), "{bytes} of {all}");
        let (late, none) = ThreadCounter::at_hand();
        assert!(none.is_none() && none.bytes() == 0 && !none.try_add(1));
        (0..200).for_each(|_| late.add(1));
        assert_eq!((late.sum(), late.place().is_some()), (200, true), "it has a place when it is busy");
        assert!(counters[most / 2].1.try_add(3));
        assert_eq!((counters[most / 2].0.sum(), counters[most / 2 - 1].0.sum()), (3, 0));
        drop(counters);
        assert!(!ThreadCounter::at_hand().1.is_none());
    }
}
