//! Chunks: the parts of page maps that come and go.
//!
//! A page map is 8 bytes for each page of a file, so a map of a file that is many times larger than
//! the budget would fill the budget by itself. Page words therefore lie in *chunks* of one system
//! page, each charged when one of its words is first used, and given back when none of them is in
//! use and memory is short. What is lost then is shadows: the policy forgets that it once saw these
//! pages. Lookups don't look at chunks at all: a chunk that isn't there reads as zeros, which say
//! *vacant*.
//!
//! Each chunk has a state word:
//!
//! | state | meaning | next |
//! |---|---|---|
//! | 0 | absent: not charged, words are zero | → `LOCKED` by `enter` |
//! | `PRESENT` + n (+ w · `WRITTEN`) | n words are loading, resident or swapped, w of them written | `enter` +1, `leave` −1 |
//! | `PRESENT` (+ `AGED`) | idle: only shadows | `enter`; a sweep sets `AGED`, the next one → `LOCKED` |
//! | `LOCKED` | a thread is charging it or giving it back | → `PRESENT` + 1, `PRESENT` (not taken back) or 0 |
//!
//! - C1. A word is changed from *vacant* only between `enter` and `leave`, so not while its chunk
//!   is locked or absent.
//! - C2. Giving a chunk back needs a count of 0: no resident or swapped page's word is ever lost.
//! - C3. w goes up before a word becomes written, and down after the word no longer is. So a search
//!   for written pages only has to look at chunks with w > 0.
//!
//! One race is accepted. A reader is about to set the referenced bit of a page; the page and all
//! its neighbours are evicted, and their chunk is given back. The reader's compare-and-swap then
//! fails, but makes the system put a page of zeros there again. That page is uncharged until the
//! chunk is used again or its map is dropped. The reader looks at the word immediately before, so
//! the window is a few instructions wide.
//!
//! Orderings: `enter` is `Acquire` and pairs with the `Release` store that made the chunk present;
//! locking for giving back is `Acquire` and pairs with the `Release` of `leave`, so that the last
//! eviction's shadow is discarded too, rather than written into a chunk that is gone.

use core::ops::Range;

use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Backoff, Ordering};

use crate::budget::Budget;
use crate::page_word::{PageState, PageWord};
use crate::region::Region;
use crate::word_geometry::WordGeometry;

const PRESENT: u32 = 1 << 31;
const LOCKED: u32 = 1 << 30;
const AGED: u32 = 1 << 29;
/// One written word.
const WRITTEN: u32 = 1 << 14;
/// Words in use: a chunk has at most 8,192.
const COUNT: u32 = WRITTEN - 1;
const WRITTEN_COUNT: u32 = COUNT * WRITTEN;

/// Words in use of a chunk that is idle once these few pages are gone.
const FEW: u32 = 2;

const _: () = assert!(WRITTEN_COUNT & (AGED | LOCKED | PRESENT) == 0, "the counts have room");

/// The budget has no room for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// What came of giving a chunk back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenBack {
    Yes,
    NotIdle,
    /// The system keeps the memory, so the chunk stays, with words that are zero.
    Refused,
}

/// The states of all chunks.
///
/// A block's states are side by side, a cache line of them, and then come those of the same block
/// of the next segment: the first blocks of 64 segments share a system page, so that many small
/// maps take little for the states of their chunks.
#[derive(Debug)]
pub(crate) struct Chunks {
    states: Region<AtomicU32>,
    places: Places,
    /// Words in a chunk, as a power of two.
    shift: u32,
    /// Words in a segment, as a power of two.
    segment_shift: u32,
    present: AtomicUsize,
    /// Of each segment: so that a sweep needn't look at all chunks of a segment in which few are
    /// there.
    present_in: Region<AtomicU32>,
}

/// How the number of a chunk becomes the place of its state. The number's bits are those of the
/// group, of the segment in it, of the block in that, and of the chunk; the place has segment and
/// block the other way round.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// The bits that stay where they are.
    fixed: usize,
    /// Those of the block, and by how many they go up.
    blocks: usize,
    up: u32,
    /// Those of the segment, and by how many they go down.
    segments: usize,
    down: u32,
}

impl Places {
    fn of(geometry: WordGeometry) -> Self {
        let chunk = geometry.block_shift() - geometry.chunk_shift;
        let block = geometry.segment_shift - geometry.block_shift();
        let segment = geometry.group_shift();
        let bits = |from: u32, count: u32| ((1 << count) - 1) << from;
        let (blocks, segments): (usize, usize) = (bits(chunk, block), bits(chunk + block, segment));
        Self { fixed: !(blocks | segments), blocks, up: segment, segments, down: block }
    }
}

impl Chunks {
    /// None is there as yet. `states` has room for each chunk, `present_in` for each segment.
    pub(crate) fn new(states: Region<AtomicU32>, present_in: Region<AtomicU32>, geometry: WordGeometry) -> Self {
        let WordGeometry { chunk_shift: shift, segment_shift, .. } = geometry;
        Self { states, places: Places::of(geometry), shift, segment_shift, present: AtomicUsize::new(0), present_in }
    }

    #[inline]
    fn state(&self, chunk: usize) -> &AtomicU32 {
        let Places { fixed, blocks, up, segments, down } = self.places;
        &self.states[chunk & fixed | (chunk & blocks) << up | (chunk & segments) >> down]
    }

    fn present_in(&self, chunk: usize) -> &AtomicU32 {
        &self.present_in[chunk >> (self.segment_shift - self.shift)]
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

    /// Before a word is changed from *vacant* (C1). A chunk that isn't there is charged first;
    /// `prepare` then makes its words writable.
    pub(crate) fn enter(
        &self,
        word: usize,
        budget: &Budget,
        prepare: impl Fn(usize) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let chunk = word >> self.shift;
        let state = self.state(chunk);
        let mut backoff = Backoff::new();
        loop {
            let now = state.load(Ordering::Relaxed);
            if now & LOCKED != 0 {
                // Sometimes: a loader meets a chunk that is being given back.
                backoff.wait();
            } else if now & PRESENT != 0 {
                debug_assert!(now & COUNT < COUNT, "more words in use than a chunk has");
                // Acquire pairs with the Release stores of `add` and `give_back`. Relaxed on
                // failure: we look again.
                if state.compare_exchange_weak(now, (now & !AGED) + 1, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                    return Ok(());
                }
            } else if state.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // Transition: chunk, absent → locked.
                return self.add(chunk, budget, prepare);
            }
        }
    }

    fn add(&self, chunk: usize, budget: &Budget, prepare: impl Fn(usize) -> Result<(), NoRoom>) -> Result<(), NoRoom> {
        let state = self.state(chunk);
        let charged = budget.try_charge(self.chunk_bytes());
        let result = if charged { prepare(chunk << self.shift) } else { Err(NoRoom) };
        match result {
            Ok(()) => {
                // Transition: chunk, locked → present.
                self.present.fetch_add(1, Ordering::Relaxed);
                self.present_in(chunk).fetch_add(1, Ordering::Relaxed);
                state.store(PRESENT | 1, Ordering::Release);
            }
            Err(NoRoom) => {
                // Transition: chunk, locked → absent, as there is no room.
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
        // Relaxed: a thread that has to see the write that follows learns of it in some other way,
        // which orders this too.
        self.state(word >> self.shift).fetch_add(WRITTEN, Ordering::Relaxed);
    }

    /// After a word in use isn't written any more.
    pub(crate) fn remove_written(&self, word: usize) {
        let before = self.state(word >> self.shift).fetch_sub(WRITTEN, Ordering::Relaxed);
        debug_assert!(before & WRITTEN_COUNT != 0, "fewer words written than counted");
    }

    /// After a word, which was written or not, has become *vacant* again.
    pub(crate) fn leave(&self, word: usize, was_written: bool) {
        let change = 1 + if was_written { WRITTEN } else { 0 };
        // Release pairs with the Acquire in `give_back`.
        let before = self.state(word >> self.shift).fetch_sub(change, Ordering::Release);
        debug_assert!(before & PRESENT != 0 && before & COUNT != 0, "left more often than entered");
        let after = before - change;
        debug_assert!((after & WRITTEN_COUNT) / WRITTEN <= after & COUNT, "more words written than in use");
    }

    /// Gives an idle chunk back.
    fn give_back(&self, chunk: usize, idle: u32, words: &Region<AtomicU64>, budget: &Budget) -> GivenBack {
        debug_assert!(idle & COUNT == 0 && idle & PRESENT != 0);
        let state = self.state(chunk);
        // Acquire pairs with the Release of `leave`.
        if state.compare_exchange(idle, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return GivenBack::NotIdle;
        }
        if !words.discard(self.words_of(chunk)) {
            // The system keeps the memory, so it stays charged; but nothing of what was in it does.
            words[self.words_of(chunk)].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            state.store(PRESENT, Ordering::Release);
            return GivenBack::Refused;
        }
        // Transition: chunk, locked → absent, given back.
        budget.uncharge(self.chunk_bytes());
        self.present.fetch_sub(1, Ordering::Relaxed);
        self.present_in(chunk).fetch_sub(1, Ordering::Relaxed);
        // Release pairs with the Acquire of `enter`.
        state.store(0, Ordering::Release);
        GivenBack::Yes
    }

    /// Gives back the chunk of a word, if it is idle.
    pub(crate) fn give_back_idle(&self, word: usize, words: &Region<AtomicU64>, budget: &Budget) -> bool {
        let chunk = word >> self.shift;
        let state = self.state(chunk).load(Ordering::Relaxed);
        state & !AGED == PRESENT && self.give_back(chunk, state, words, budget) == GivenBack::Yes
    }

    /// Gives back up to `wanted` chunks of a segment that were idle the last time too. Returns how
    /// many.
    pub(crate) fn sweep(
        &self,
        segment: Range<usize>,
        wanted: usize,
        words: &Region<AtomicU64>,
        budget: &Budget,
    ) -> usize {
        let chunks = segment.start >> self.shift..segment.end >> self.shift;
        // Relaxed: a chunk that comes meanwhile is too young to go.
        let mut unseen = self.present_in(chunks.start).load(Ordering::Relaxed);
        let mut given = 0;
        for chunk in chunks {
            if unseen == 0 || given == wanted {
                break;
            }
            let state = self.state(chunk).load(Ordering::Relaxed);
            unseen -= u32::from(state & PRESENT != 0);
            if state == PRESENT | AGED {
                given += usize::from(self.give_back(chunk, state, words, budget) == GivenBack::Yes);
            } else if state == PRESENT {
                // Transition: chunk, idle → aged.
                // Relaxed: a hint for the next sweep.
                let _ = self.state(chunk).compare_exchange(state, state | AGED, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        given
    }

    /// The words of each chunk of a segment in which there are few pages, none of them written: of
    /// those from the `first`th on, and then of the others.
    pub(crate) fn nearly_idle(&self, segment: Range<usize>, first: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let (start, count) = (segment.start >> self.shift, segment.len() >> self.shift);
        // Relaxed: what is done about these pages looks at each again.
        let state = |chunk: usize| self.state(chunk).load(Ordering::Relaxed);
        let is_nearly_idle = move |state: u32| state & WRITTEN_COUNT == 0 && (1..=FEW).contains(&(state & COUNT));
        let mut unseen = self.present_in(start).load(Ordering::Relaxed);
        let chunks = (0..count).map(move |step| start + (first + step) % count);
        let present = chunks.map_while(move |chunk| {
            let state = (unseen > 0).then(|| state(chunk))?;
            unseen -= u32::from(state & PRESENT != 0);
            Some((chunk, state))
        });
        present.filter(move |&(_, state)| is_nearly_idle(state)).map(|(chunk, _)| self.words_of(chunk))
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
            .filter(move |&chunk| self.state(chunk).load(Ordering::Acquire) & counts != 0)
            .map(move |chunk| {
                let words = self.words_of(chunk);
                words.start.max(range.start)..words.end.min(range.end)
            })
    }

    /// Whether none of the chunks of these words is there. Relaxed: no loader enters them now.
    pub(crate) fn are_absent(&self, words: Range<usize>) -> bool {
        let mut chunks = words.start >> self.shift..words.end >> self.shift;
        chunks.all(|chunk| self.state(chunk).load(Ordering::Relaxed) == 0)
    }

    /// Gives back the chunks of a page map whose words no loader enters any more. Returns the
    /// number of chunks in which a page is still in memory: those must stay where they are.
    ///
    /// Two other threads may still be at work on these chunks: a sweep, and an evictor between
    /// making its word *vacant* and its `leave`. This waits for both, so that the next map finds
    /// neither shadows nor charges of this one.
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
            // Acquire pairs with the Release with which a sweep makes the chunk absent: its
            // discarding comes first.
            let state = self.state(chunk).load(Ordering::Acquire);
            if state == 0 {
                return true;
            }
            if state & LOCKED == 0 && state & COUNT == 0 {
                // Tries again if a sweep has just marked it or was faster.
                if self.give_back(chunk, state, words, budget) == GivenBack::Refused {
                    return true; // Its words are zero, as those of an absent chunk.
                }
            } else if state & COUNT != 0 && words[self.words_of(chunk)].iter().any(occupied) {
                return false;
            } else {
                backoff.wait();
            }
        }
    }
}
