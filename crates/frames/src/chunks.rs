//! Chunks: the parts of page maps that come and go.
//!
//! A page map is 8 bytes for each page of a file, so a map of a file that is many times larger than the budget would
//! fill the budget by itself. Page words therefore lie in *chunks* of one system page, each charged when one of its
//! words is first used, and given back when none of them is in use and memory is short. What is lost then is shadows:
//! the policy forgets that it once saw these pages. Lookups don't look at chunks at all: a chunk that isn't there
//! reads as zeros, which say *vacant*.
//!
//! Each chunk has a state word:
//!
//! | state | meaning | next |
//! |---|---|---|
//! | 0 | absent: not charged, words are zero | → `LOCKED` by whoever needs it |
//! | `PRESENT` + n (+ w · `WRITTEN`) | n words are loading, resident or swapped, w of them written | `enter` +1, `leave` −1 |
//! | `PRESENT` (+ `AGED`) | idle: only shadows | `enter`; a sweep sets `AGED`, the next one → `LOCKED` |
//! | `LOCKED` | somebody is charging it or giving it back | that one: → `PRESENT` + 1, or 0 |
//!
//! - C1. A word is changed from *vacant* only between `enter` and `leave`, so not while its chunk is locked or absent.
//! - C2. Giving a chunk back needs a count of 0: no resident or swapped page's word is ever lost.
//! - C3. A word becomes written after the chunk's w went up, and w goes down after it isn't any more: whoever looks for
//!   written pages looks at chunks with w > 0 alone.
//!
//! One race is let be: a reader about to set the referenced bit of a page that has just been evicted, together with
//! all its neighbours, and whose chunk has just been given back, makes the system put a page of zeros there again
//! with its compare-and-swap that fails. That page is uncharged until the chunk is used or its map dropped. The
//! reader looks at the word immediately before, so the window is a few instructions wide.
//!
//! Orderings: `enter` is `Acquire` and pairs with the `Release` store that made the chunk present; locking for giving
//! back is `Acquire` and pairs with the `Release` of `leave`, so that the last eviction's shadow is discarded too,
//! rather than written into a chunk that is gone.

use core::ops::Range;

use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Backoff, Ordering};

use crate::budget::Budget;
use crate::page_word::{PageState, PageWord};
use crate::region::Region;

const PRESENT: u32 = 1 << 31;
const LOCKED: u32 = 1 << 30;
const AGED: u32 = 1 << 29;
/// One written word.
const WRITTEN: u32 = 1 << 14;
/// Words in use: a chunk has at most 8,192.
const COUNT: u32 = WRITTEN - 1;
const WRITTEN_COUNT: u32 = COUNT * WRITTEN;

const _: () = assert!(WRITTEN_COUNT & (AGED | LOCKED | PRESENT) == 0, "the counts have room");

/// The budget has no room for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// The states of all chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    states: Region<AtomicU32>,
    /// Words in a chunk, as a power of two.
    shift: u32,
    present: AtomicUsize,
    /// Where the next sweep starts.
    hand: AtomicUsize,
}

impl Chunks {
    pub(crate) fn new(states: Region<AtomicU32>, shift: u32) -> Self {
        Self { states, shift, present: AtomicUsize::new(0), hand: AtomicUsize::new(0) }
    }

    fn chunk_bytes(&self) -> u64 {
        (size_of::<u64>() as u64) << self.shift
    }

    fn words_of(&self, chunk: usize) -> Range<usize> {
        chunk << self.shift..(chunk + 1) << self.shift
    }

    /// Bytes charged for chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.present.load(Ordering::Relaxed) as u64 * self.chunk_bytes()
    }

    /// Before a word is changed from *vacant* (C1). A chunk that isn't there is charged first; `prepare` then makes
    /// its words writable.
    pub(crate) fn enter(
        &self,
        word: usize,
        budget: &Budget,
        prepare: impl Fn(usize) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let chunk = word >> self.shift;
        let state = &self.states[chunk];
        let mut backoff = Backoff::new();
        loop {
            let now = state.load(Ordering::Relaxed);
            if now & LOCKED != 0 {
                backoff.wait();
            } else if now & PRESENT != 0 {
                debug_assert!(now & COUNT < COUNT, "more words in use than a chunk has");
                // Acquire pairs with the Release stores of `add` and `give_back`. Relaxed on failure: we look again.
                if state.compare_exchange_weak(now, (now & !AGED) + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(());
                }
            } else if state.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                return self.add(chunk, budget, prepare);
            }
        }
    }

    fn add(&self, chunk: usize, budget: &Budget, prepare: impl Fn(usize) -> Result<(), NoRoom>) -> Result<(), NoRoom> {
        let state = &self.states[chunk];
        let charged = budget.try_charge(self.chunk_bytes());
        let result = if charged { prepare(chunk << self.shift) } else { Err(NoRoom) };
        match result {
            Ok(()) => {
                self.present.fetch_add(1, Ordering::Relaxed);
                state.store(PRESENT | 1, Ordering::Release);
            }
            Err(NoRoom) => {
                if charged {
                    budget.uncharge(self.chunk_bytes());
                }
                state.store(0, Ordering::Release);
            }
        }
        result
    }

    /// Before a word in use becomes written.
    pub(crate) fn add_written(&self, word: usize) {
        // Relaxed: whoever has to see the write that follows was told of it in some other way, which orders this too.
        self.states[word >> self.shift].fetch_add(WRITTEN, Ordering::Relaxed);
    }

    /// After a word in use isn't written any more.
    pub(crate) fn remove_written(&self, word: usize) {
        let before = self.states[word >> self.shift].fetch_sub(WRITTEN, Ordering::Relaxed);
        debug_assert!(before & WRITTEN_COUNT != 0, "fewer words written than counted");
    }

    /// After a word, which was written or not, has become *vacant* again.
    pub(crate) fn leave(&self, word: usize, was_written: bool) {
        let change = 1 + if was_written { WRITTEN } else { 0 };
        // Release pairs with the Acquire in `give_back`.
        let before = self.states[word >> self.shift].fetch_sub(change, Ordering::Release);
        debug_assert!(before & PRESENT != 0 && before & COUNT != 0, "left more often than entered");
        let after = before - change;
        debug_assert!((after & WRITTEN_COUNT) / WRITTEN <= after & COUNT, "more words written than in use");
    }

    /// Gives an idle chunk back. False if it isn't idle any more.
    fn give_back(&self, chunk: usize, idle: u32, words: &Region<AtomicU64>, budget: &Budget) -> bool {
        debug_assert!(idle & COUNT == 0 && idle & PRESENT != 0);
        let state = &self.states[chunk];
        // Acquire pairs with the Release of `leave`.
        if state.compare_exchange(idle, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return false;
        }
        words.discard(self.words_of(chunk));
        budget.uncharge(self.chunk_bytes());
        self.present.fetch_sub(1, Ordering::Relaxed);
        // Release pairs with the Acquire of `enter`.
        state.store(0, Ordering::Release);
        true
    }

    /// Moves the hand over the chunks of the words in `used`, until `wanted` idle chunks that were idle the last time
    /// too are given back, or the hand has gone round twice. Says how many it gave back.
    pub(crate) fn sweep(&self, used: Range<usize>, wanted: usize, words: &Region<AtomicU64>, budget: &Budget) -> usize {
        let chunks = used.start >> self.shift..used.end >> self.shift;
        let mut given = 0;
        for _ in 0..2 * chunks.len() {
            if given >= wanted {
                break;
            }
            // Relaxed: sweeps that share the hand by chance skip or repeat chunks, nothing more.
            let at = self.hand.fetch_add(1, Ordering::Relaxed);
            let chunk = chunks.start + at % chunks.len();
            let state = self.states[chunk].load(Ordering::Relaxed);
            if state == PRESENT | AGED {
                given += usize::from(self.give_back(chunk, state, words, budget));
            } else if state == PRESENT {
                // Relaxed: a hint for the next sweep.
                let _ = self.states[chunk].compare_exchange(state, state | AGED, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        given
    }

    /// The words, within `range`, of each chunk in which a page is in memory or being loaded.
    pub(crate) fn in_use(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        self.with_any(range, COUNT)
    }

    /// The words, within `range`, of each chunk in which a page is written.
    pub(crate) fn with_written(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        self.with_any(range, WRITTEN_COUNT)
    }

    fn with_any(&self, range: Range<usize>, counts: u32) -> impl Iterator<Item = Range<usize>> + '_ {
        (range.start >> self.shift..range.end.div_ceil(1 << self.shift))
            .filter(move |&chunk| self.states[chunk].load(Ordering::Acquire) & counts != 0)
            .map(move |chunk| {
                let words = self.words_of(chunk);
                words.start.max(range.start)..words.end.min(range.end)
            })
    }

    /// Gives back the chunks of a page map that nobody enters any more. Says in how many of them a page is still in
    /// memory: those must stay where they are.
    ///
    /// Two parties may still be at work here, and both are waited for, so that the next map finds neither shadows nor
    /// charges of this one: a sweep, and an evictor between its word's becoming *vacant* and its `leave`.
    pub(crate) fn clear(&self, words_used: Range<usize>, words: &Region<AtomicU64>, budget: &Budget) -> usize {
        let chunks = words_used.start >> self.shift..words_used.end >> self.shift;
        chunks.filter(|&chunk| !self.clear_chunk(chunk, words, budget)).count()
    }

    /// False if a page of the chunk is in memory.
    fn clear_chunk(&self, chunk: usize, words: &Region<AtomicU64>, budget: &Budget) -> bool {
        // Relaxed: the caller was told of every page that it is gone, or knows better.
        let occupied = |word: &AtomicU64| {
            !matches!(PageWord::from_bits(word.load(Ordering::Relaxed)).state(), PageState::Vacant { .. })
        };
        let mut backoff = Backoff::new();
        loop {
            // Acquire pairs with the Release with which a sweep makes the chunk absent: its discarding comes first.
            let state = self.states[chunk].load(Ordering::Acquire);
            if state == 0 {
                return true;
            }
            if state & LOCKED == 0 && state & COUNT == 0 {
                // Tries again if a sweep has just marked it or was faster.
                self.give_back(chunk, state, words, budget);
            } else if state & COUNT != 0 && words[self.words_of(chunk)].iter().any(occupied) {
                return false;
            } else {
                backoff.wait();
            }
        }
    }
}
