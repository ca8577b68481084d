//! Counters that many threads add to without sharing a cache line.
//!
//! Each thread has a block of numbers. A counter's *place* is an index into every block: a thread
//! adds to its own number at that index, by a load, an add and a store. The counter's sum is taken
//! over all blocks.
//!
//! No addition is lost. Only the thread that owns a block adds to its numbers. After this thread
//! has ended, the block keeps its numbers, and the block's next owner adds to them.
//!
//! The number of places is limited, and each place costs 8 bytes for each thread that adds to the
//! counter. So a counter gets a place only after `ADDS_SHARED` additions. These first additions go
//! to the counter's *shared number*. Threads contend for the shared number, but only until the
//! counter has its place.
//!
//! At most `BUSY_MAX` counters have a place that they got after these additions, and fewer on a
//! machine with more than 8 CPUs (`BUSY_BYTES_MAX`). When all of these places are taken, every
//! other counter keeps using its shared number. Contention stays rare even then: with so many busy
//! counters in the process, few threads are likely to add to the same one at once.
//!
//! A counter on the hit path gets its place when it is created ([`ThreadCounter::at_hand`]), unless
//! too many such counters exist already (`AT_HAND_BYTES_MAX`). The counter's owner is responsible
//! for charging the place's memory ([`CounterPlace::bytes`]).

use crate::atomic::{AtomicU32, AtomicU64, Ordering};

/// The number of places. Blocks have this length, but only the used parts take memory.
#[cfg(not(pagefold_loom))]
const PLACES: usize = 1 << 21;
/// The most places for counters that were created without one, by number and by size.
#[cfg(not(pagefold_loom))]
const BUSY_MAX: usize = 1 << 15;
#[cfg(not(pagefold_loom))]
const BUSY_BYTES_MAX: u64 = 2 << 20;
/// The most bytes of places that counters have from the beginning.
#[cfg(not(pagefold_loom))]
const AT_HAND_BYTES_MAX: u64 = 16 << 20;
/// The number of additions after which a counter gets a place.
const ADDS_SHARED: u32 = 64;

/// A block's numbers, one for each place.
type Block = [AtomicU64];

/// A counter's index in every block: a number below `PLACES`; 0 means that it has no place.
///
/// Code that counts in a hot loop should keep a copy, so that it needn't load the place from the
/// counter.
#[derive(Clone, Copy, Debug)]
pub struct CounterPlace(usize);

impl CounterPlace {
    /// The place of a counter that has none.
    const NONE: Self = Self(0);

    /// Returns the number of bytes that the place takes if a thread on each CPU counts there.
    #[must_use]
    pub fn bytes(self) -> u64 {
        if self.is_none() { 0 } else { bytes_of_one() }
    }

    fn is_none(self) -> bool {
        self.0 == Self::NONE.0
    }

    /// Adds `n` to the counter that owns this place. The counter must be alive. Returns false and
    /// adds nothing if the counter has no place, if the thread is ending, or if there is no memory
    /// for the thread's block. Then the caller must use [`ThreadCounter::add`].
    #[inline]
    #[must_use]
    pub fn try_add(self, n: u64) -> bool {
        !self.is_none() && registry::with_block(|block| bump(at(block, self), n))
    }
}

/// Returns the number of bytes of a place.
fn bytes_of_one() -> u64 {
    size_of::<u64>() as u64 * crate::cpu::count() as u64
}

/// Returns the maximum number of counters that have a place from the beginning. This leaves
/// `BUSY_MAX` places for busy counters.
#[cfg(not(pagefold_loom))]
fn at_hand_max() -> usize {
    ((AT_HAND_BYTES_MAX / bytes_of_one()) as usize).min(PLACES - 1 - BUSY_MAX)
}

/// A counter.
#[derive(Debug)]
pub struct ThreadCounter {
    /// The place; 0 while there is none. Changes at most once.
    place: AtomicU32,
    /// The number of additions without a place; or [`AT_HAND`].
    adds: AtomicU32,
    /// The sum of what was added without a place, or by threads that were ending or had no block.
    shared: AtomicU64,
}

/// Marks a counter that was created with its place, which doesn't count towards [`BUSY_MAX`].
const AT_HAND: u32 = u32::MAX;

impl Default for ThreadCounter {
    fn default() -> Self {
        Self { place: AtomicU32::new(0), adds: AtomicU32::new(0), shared: AtomicU64::new(0) }
    }
}

impl ThreadCounter {
    /// Creates a counter at zero that has a place from the beginning. Returns the counter and its
    /// place. If too many counters have been created with a place already, the counter begins
    /// without one, and the returned place is 0 (no place).
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
        // Relaxed: statistics. Only one thread sees the count at which the counter gets a place.
        self.shared.fetch_add(n, Ordering::Relaxed);
        if self.place().is_none() && self.adds.fetch_add(1, Ordering::Relaxed) == ADDS_SHARED {
            let Some(place) = registry::take_busy_place() else { return };
            // Release pairs with the Acquire of `place`: a thread that loads the place finds its
            // own number at that index zeroed.
            self.place.store(place.0 as u32, Ordering::Release);
        }
    }

    /// Returns the counter's place, if it has one.
    #[inline]
    #[must_use]
    pub fn place(&self) -> Option<CounterPlace> {
        Some(CounterPlace(self.place.load(Ordering::Acquire) as usize)).filter(|place| !place.is_none())
    }

    /// Returns the sum of what all threads have added so far.
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
    // Relaxed, and not one atomic operation: only this thread writes the number.
    number.store(number.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

/// All blocks, and the places in use. The registry has no lock. If it had one, and a thread held it
/// while another thread forked, the child would inherit the lock locked, but not the thread that
/// could release it.
#[cfg(not(pagefold_loom))]
mod registry {
    use super::{
        AtomicU64, BUSY_BYTES_MAX, BUSY_MAX, Block, CounterPlace, Ordering, PLACES, at, at_hand_max, bytes_of_one,
    };
    use crate::atomic::{AtomicBool, AtomicPtr, AtomicU32, AtomicUsize};
    use std::alloc::{Layout, alloc_zeroed};
    use std::cell::Cell;

    /// A block in the list of all blocks. Blocks are never freed: there are at most as many as
    /// threads were ever alive at the same time.
    struct Node {
        block: &'static Block,
        /// A thread uses the block.
        is_taken: AtomicBool,
        next: Option<&'static Node>,
    }

    /// The newest node.
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

    /// Makes the thread's block available to another thread.
    struct Return(Cell<Option<&'static Node>>);

    impl Drop for Return {
        fn drop(&mut self) {
            MINE.set(None);
            if let Some(node) = self.0.take() {
                // Release pairs with the Acquire in `take`: the next thread adds to the numbers
                // that this one has left.
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
        // SAFETY: a pointer in `NODES` is null or points to a leaked node.
        std::iter::successors(unsafe { last.as_ref::<'static>() }, |node| node.next)
    }

    /// Calls `f` with the thread's block. Returns false if the thread is ending, or if there is no
    /// memory for a block.
    #[inline]
    pub(super) fn with_block(f: impl FnOnce(&Block)) -> bool {
        // `Cell::get` is passed directly, which avoids a call.
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

    /// Creates a node that belongs to the caller. `None` if there is no memory for it.
    fn new_node() -> Option<&'static Node> {
        let block = new_block()?;
        let node = Box::leak(Box::new(Node { block, is_taken: AtomicBool::new(true), next: None }));
        // Relaxed: this thread doesn't read the contents of the last node.
        let mut last = NODES.load(Ordering::Relaxed);
        loop {
            // SAFETY: as in `nodes`.
            node.next = unsafe { last.as_ref::<'static>() };
            // Release pairs with the Acquire in `nodes`. All exchanges of `NODES` form one release
            // sequence, so a thread that has loaded the pointer to a node also sees the contents of
            // all older nodes.
            match NODES.compare_exchange(last, node, Ordering::Release, Ordering::Acquire) {
                Ok(_) => return Some(node),
                Err(other) => last = other,
            }
        }
    }

    /// Creates a block of zeros, which is so large that the system allocates memory for its parts
    /// only when they are written.
    fn new_block() -> Option<&'static Block> {
        // SAFETY: the layout isn't empty.
        let start = unsafe { alloc_zeroed(Layout::new::<[AtomicU64; PLACES]>()) };
        // SAFETY: the allocation, if there is one, has this layout; zero is valid for an atomic; it
        // is never freed.
        (!start.is_null()).then(|| unsafe { core::slice::from_raw_parts(start.cast(), PLACES) })
    }

    /// The stack of places that were given back. The lower half is the topmost place plus one, or 0
    /// if the stack is empty. The upper half counts changes of the stack. Without this count, the
    /// same place could be on top again after other threads have changed the stack, and a
    /// compare-exchange would succeed although it must fail (ABA).
    static FREE: AtomicU64 = AtomicU64::new(0);
    /// For each place given back, the place below it plus one, or 0.
    static BELOW: [AtomicU32; PLACES] = [const { AtomicU32::new(0) }; PLACES];
    /// The lowest place never used.
    static FRESH: AtomicUsize = AtomicUsize::new(1);

    fn change(top: u64, place: u32) -> u64 {
        (top >> 32).wrapping_add(1) << 32 | u64::from(place)
    }

    pub(super) fn take_place() -> Option<CounterPlace> {
        // Acquire, both times, pairs with the Release in `give_place`: the zeros that it stored are
        // visible.
        let mut top = FREE.load(Ordering::Acquire);
        while let Some(place) = (top as u32).checked_sub(1) {
            // Relaxed: if another thread has taken the place meanwhile, `FREE` has changed, and the
            // exchange fails.
            let below = BELOW[place as usize].load(Ordering::Relaxed);
            match FREE.compare_exchange_weak(top, change(top, below), Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(CounterPlace(place as usize)),
                Err(other) => top = other,
            }
        }
        // Relaxed: the numbers only have to differ.
        let fresh = |fresh: usize| (fresh < PLACES).then_some(fresh + 1);
        FRESH.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fresh).ok().map(CounterPlace)
    }

    /// The number of places of counters that were created without one. Relaxed: only a number.
    static BUSY: AtomicUsize = AtomicUsize::new(0);

    /// The number of places of counters that have theirs from the beginning.
    static HAVE_AT_HAND: AtomicUsize = AtomicUsize::new(0);

    /// Takes a place for a counter that was created without one.
    pub(super) fn take_busy_place() -> Option<CounterPlace> {
        take_one_of(&BUSY, BUSY_MAX.min((BUSY_BYTES_MAX / bytes_of_one()) as usize))
    }

    /// Records that a place from [`take_busy_place`] was given back.
    pub(super) fn give_busy() {
        BUSY.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a place for a counter that has one from the beginning.
    pub(super) fn take_place_at_hand() -> Option<CounterPlace> {
        take_one_of(&HAVE_AT_HAND, at_hand_max())
    }

    /// Records that a place from [`take_place_at_hand`] was given back.
    pub(super) fn give_at_hand() {
        HAVE_AT_HAND.fetch_sub(1, Ordering::Relaxed);
    }

    /// Takes a place, unless `taken` has reached `max`.
    fn take_one_of(taken: &AtomicUsize, max: usize) -> Option<CounterPlace> {
        let more = |taken: usize| (taken < max).then_some(taken + 1);
        taken.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).ok()?;
        take_place().or_else(|| {
            taken.fetch_sub(1, Ordering::Relaxed);
            None
        })
    }

    /// Gives back the place of a counter that is being dropped, so no thread adds to it.
    pub(super) fn give_place(place: CounterPlace) {
        for number in nodes().map(|node| at(node.block, place)) {
            // Relaxed: the Release of the exchange below publishes the zeros. Stores only where the
            // number isn't zero, because a number that was never written takes no memory.
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

/// A model has few threads, which don't live long, so they all add to the shared number.
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

    /// Serializes the tests, because one of them uses all places.
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

    /// Regression: a tenant that opened 52,000 files, or one file 262,000 times, used up all
    /// counters, so other tenants couldn't open any file. Now a counter gets a place only if it is
    /// busy.
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

    /// Regression: each open file had a counter with a place from the beginning, however many there
    /// were. With 100,000 files and 256 CPUs, the places took 200 MiB. Now such places take at most
    /// `AT_HAND_BYTES_MAX`; all further counters begin without a place.
    #[test]
    fn counters_at_hand_are_few_enough_and_the_others_count_too() {
        let _turn = TURNS.lock();
        let most = at_hand_max();
        let counters: Vec<_> = (0..most).map(|_| ThreadCounter::at_hand()).collect();
        let bytes: u64 = counters.iter().map(|(_, place)| place.bytes()).sum();
        // Other tests of this process may use some.
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
