//! Chunks: the parts in which page maps get memory and give it back.
//!
//! A page map has an 8-byte word for each page of a file. For a file many times larger than the
//! budget, these words alone would fill the budget. So page words are divided into *chunks*, each
//! as large as one system page. A chunk is charged only when one of its words is first used.
//!
//! If memory is short, chunks are given back. A chunk can be given back if none of the pages that
//! its words describe is in memory, being loaded or swapped out. The chunk's *shadows*, which
//! evicted pages leave in their words, are lost then: the policy forgets that these pages were once
//! in memory.
//!
//! Lookups don't check whether a chunk is present: an absent chunk reads as zeros, and a zero word
//! means *vacant*.
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
//! A present chunk may also be `PAID`: the policy has charged it to an owner of the map, besides
//! the budget ([`Payment`]). The thread that gives the chunk back tells the policy.
//!
//! - C1. `enter` is called before a word changes from *vacant*, and `leave` after the word has
//!   become *vacant* again. In between, the word is counted in the chunk's state, so the chunk is
//!   neither locked nor absent.
//! - C2. A chunk is given back only if its count is 0, so the word of a resident or swapped page is
//!   never lost.
//! - C3. w counts the chunk's words in the state *written*. It is incremented before a word enters
//!   this state. It is decremented at a time when the page's write state is clean and its frame is
//!   frozen; the frame stays frozen until the word has left the state *written*. So a search for
//!   pages that aren't clean can skip chunks with w = 0.
//! - C4. A word is counted in w only while it is counted in n. So if n is 0, w is 0, too, and the
//!   chunk is idle. A thread that gives the chunk back never has to wait until w is 0 as well. If
//!   the word is written, `leave` decrements both counts in one atomic step. A swapper decrements w
//!   before it makes the word *swapped*. From then on, another thread may make the word *vacant*
//!   and call `leave`, which then decrements only n (W6 of `swapping`).
//! - C5. A chunk becomes `PAID` when a load that makes it uses up a payment. Before the chunk stops
//!   being `PAID`, `returned` is called for it once, while the chunk is `LOCKED`. So a thread that
//!   waits until all chunks of a map are absent also waits for all calls of `returned`. If the
//!   system refuses to take back a chunk of a map that is being dropped, the chunk stays present,
//!   and isn't `PAID` any more. The next map that gets the chunk's words uses the chunk without a
//!   payment.
//!
//! One race is accepted, after which a system page is in use without being charged:
//! - A reader loads the word of a page, and is about to set the page's hot bit in it.
//! - Then the page and all other pages of its chunk are evicted, and the chunk is given back.
//! - The reader's compare-and-swap fails. But even a failed compare-and-swap counts as a write to
//!   memory, so the system provides a zeroed page for the absent chunk. This page isn't charged
//!   until the chunk is used again.
//!
//! The reader loads the word immediately before the compare-and-swap, so the race can happen only
//! within a few instructions.
//!
//! Orderings: `enter` is `Acquire` and pairs with the `Release` store that made the chunk present.
//! So a thread that has entered changes a word only after the chunk was prepared. Locking a chunk
//! to give it back is `Acquire` and pairs with the `Release` of `leave`. An evictor stores the
//! page's shadow before it calls `leave`. So all shadows are stored before the chunk is discarded,
//! and none is stored into an absent chunk.

use core::ops::Range;

use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Backoff, Ordering};

use crate::budget::Budget;
use crate::page_word::{PageState, PageWord};
use crate::region::Region;
use crate::word_geometry::WordGeometry;

const PRESENT: u32 = 1 << 31;
const LOCKED: u32 = 1 << 30;
const AGED: u32 = 1 << 29;
/// The chunk was paid for (C5).
const PAID: u32 = 1 << 28;
/// The unit of the count of written words.
const WRITTEN: u32 = 1 << 14;
/// Mask of the count of words in use: a chunk has at most 8,192.
const COUNT: u32 = WRITTEN - 1;
const WRITTEN_COUNT: u32 = COUNT * WRITTEN;

/// Number of words in use up to which a chunk is *nearly idle*.
const FEW: u32 = 2;

const _: () = assert!(WRITTEN_COUNT & (PAID | AGED | LOCKED | PRESENT) == 0, "the counts have room");

/// The budget has no room for a chunk.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct NoRoom;

/// Whether the caller of a load has paid for the part of a page map that the load may have to make.
/// The policy pays by charging the part to the map's owner. It does so before the load, because
/// making room for the charge may take long.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Payment {
    /// The map's parts are charged to the budget alone.
    NotDue,
    /// The caller hasn't paid, so the load must make no part.
    Due,
    /// The caller has paid for a part. Becomes `Due` if the load makes one.
    Made,
}

/// A load would make a part of a page map that isn't paid for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Unpaid;

/// Why a word wasn't counted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum NotEntered {
    /// The budget has no room for the word's chunk.
    NoRoom,
    /// The word's chunk is absent, and the caller hasn't paid ([`Payment::Due`]).
    Unpaid,
}

/// What happens to a chunk that the system refuses to take back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum IfRefused {
    /// It stays paid for.
    Keep,
    /// Its map is being dropped, so the map's owner is no longer charged for it.
    Return,
}

/// Where chunks are given back to.
pub(crate) struct GivingBack<'a> {
    /// The memory of the words.
    pub(crate) words: &'a Region<AtomicU64>,
    /// The budget that chunks are charged to.
    pub(crate) budget: &'a Budget,
    /// Called for each chunk that stops being `PAID`, with the index of its first word (C5).
    pub(crate) returned: &'a mut dyn FnMut(u64),
}

/// The result of giving a chunk back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum GivenBack {
    Yes,
    NotIdle,
    /// The system refuses to take the memory back, so the chunk stays present, with zeroed words.
    Refused,
}

/// The states of all chunks.
///
/// The states of the chunks of one block (blocks and segments are explained in `page_words`) lie
/// side by side and fill a cache line. The next cache line holds the states of the block at the
/// same position in the next segment. So the states of the first blocks of 64 segments share a
/// system page. A small map uses only the first block of its segment; therefore many small maps
/// together need little memory for states.
#[derive(Debug)]
pub(crate) struct Chunks {
    states: Region<AtomicU32>,
    places: Places,
    /// Words in a chunk, as a power of two.
    shift: u32,
    /// Words in a segment, as a power of two.
    segment_shift: u32,
    present: AtomicUsize,
    /// The number of present chunks in each segment. A sweep stops once it has seen all of them.
    present_in: Region<AtomicU32>,
}

/// Maps a chunk's number to the index of the chunk's state. The number consists of bit fields for
/// the segment group (neighbouring segments that share system pages of states), the segment in the
/// group, the block in the segment, and the chunk in the block. The index has the fields for
/// segment and block in the opposite order.
#[derive(Clone, Copy, Debug)]
struct Places {
    /// Mask of the bits that stay where they are.
    fixed: usize,
    /// Mask of the block's bits, and the distance by which they move up.
    blocks: usize,
    up: u32,
    /// Mask of the segment's bits, and the distance by which they move down.
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
    /// Creates the states, with all chunks absent. `states` must have an element for each chunk,
    /// `present_in` one for each segment.
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

    pub(crate) fn chunk_bytes(&self) -> u64 {
        (size_of::<u64>() as u64) << self.shift
    }

    fn words_of(&self, chunk: usize) -> Range<usize> {
        chunk << self.shift..(chunk + 1) << self.shift
    }

    /// Returns the number of bytes charged for chunks.
    pub(crate) fn bytes(&self) -> u64 {
        self.present.load(Ordering::Relaxed) as u64 * self.chunk_bytes()
    }

    /// Adds a word to the count of words in use. Must be called before the word is changed from
    /// *vacant* (C1). An absent chunk is charged first; `prepare` then makes its words writable.
    #[inline]
    pub(crate) fn enter(
        &self,
        word: usize,
        payment: &mut Payment,
        budget: &Budget,
        prepare: impl Fn(usize) -> Result<(), NoRoom>,
    ) -> Result<(), NotEntered> {
        // The usual case: the chunk is present.
        if self.enter_present(self.state(word >> self.shift)).is_ok() {
            return Ok(());
        }
        self.enter_or_add(word, payment, budget, prepare)
    }

    /// Adds a word to the count of words in use if the chunk is present. Fails with the chunk's
    /// state if the chunk is absent or locked, or if another thread changes the state meanwhile.
    #[inline]
    fn enter_present(&self, state: &AtomicU32) -> Result<(), u32> {
        let now = state.load(Ordering::Relaxed);
        if now & (PRESENT | LOCKED) != PRESENT {
            return Err(now);
        }
        debug_assert!(now & COUNT < COUNT, "more words in use than a chunk has");
        // Acquire pairs with the Release stores of `add` and `give_back`. Relaxed on failure: the
        // caller checks again.
        let entered = state.compare_exchange(now, (now & !AGED) + 1, Ordering::Acquire, Ordering::Relaxed);
        entered.map(|_| ())
    }

    #[cold]
    fn enter_or_add(
        &self,
        word: usize,
        payment: &mut Payment,
        budget: &Budget,
        prepare: impl Fn(usize) -> Result<(), NoRoom>,
    ) -> Result<(), NotEntered> {
        let chunk = word >> self.shift;
        let state = self.state(chunk);
        let mut backoff = Backoff::new();
        loop {
            let Err(now) = self.enter_present(state) else { return Ok(()) };
            if now & LOCKED != 0 {
                // Sometimes: a loader meets a chunk that is being given back.
                backoff.wait();
            } else if now & PRESENT != 0 {
                // Another thread has changed the count meanwhile.
            } else if *payment == Payment::Due {
                return Err(NotEntered::Unpaid);
            } else if state.compare_exchange(0, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                // Transition: chunk, absent → locked.
                return self.add(chunk, payment, budget, prepare).map_err(|NoRoom| NotEntered::NoRoom);
            }
        }
    }

    fn add(
        &self,
        chunk: usize,
        payment: &mut Payment,
        budget: &Budget,
        prepare: impl Fn(usize) -> Result<(), NoRoom>,
    ) -> Result<(), NoRoom> {
        let state = self.state(chunk);
        let charged = budget.try_charge(self.chunk_bytes());
        let result = if charged { prepare(chunk << self.shift) } else { Err(NoRoom) };
        match result {
            Ok(()) => {
                // Transition: chunk, locked → present.
                self.present.fetch_add(1, Ordering::Relaxed);
                self.present_in(chunk).fetch_add(1, Ordering::Relaxed);
                let paid = if *payment == Payment::Made { PAID } else { 0 };
                if paid != 0 {
                    *payment = Payment::Due;
                }
                state.store(PRESENT | paid | 1, Ordering::Release);
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

    /// Adds a word to the count of written words. Must be called before a word in use becomes
    /// written (C3).
    pub(crate) fn add_written(&self, word: usize) {
        // Relaxed: the write to the page comes after this addition. Any synchronization that makes
        // the write visible to another thread makes the count visible, too.
        self.state(word >> self.shift).fetch_add(WRITTEN, Ordering::Relaxed);
    }

    /// Removes a word in use from the count of written words. The caller must have the frame of the
    /// word's page frozen, and the page must be clean (C3). No other thread may be able to remove
    /// the word from the count of words in use before this call (C4).
    pub(crate) fn remove_written(&self, word: usize) {
        // Relaxed: the caller's next step is a Release, by `unfreeze` if the page stays in memory,
        // or by the word's change in `swap_out`. This Release pairs with the Acquire by which
        // another thread gets the right to remove the word from the count of words in use.
        let before = self.state(word >> self.shift).fetch_sub(WRITTEN, Ordering::Relaxed);
        debug_assert!(before & WRITTEN_COUNT != 0, "fewer words written than counted");
    }

    /// Removes a word, written or not, from the count of words in use. Must be called after the
    /// word has become *vacant* again (C1).
    pub(crate) fn leave(&self, word: usize, was_written: bool) {
        let change = 1 + if was_written { WRITTEN } else { 0 };
        // Release pairs with the Acquire in `give_back`.
        let before = self.state(word >> self.shift).fetch_sub(change, Ordering::Release);
        debug_assert!(before & PRESENT != 0 && before & COUNT != 0, "left more often than entered");
        let after = before - change;
        debug_assert!((after & WRITTEN_COUNT) / WRITTEN <= after & COUNT, "more words written than in use");
    }

    /// Returns whether a state is that of an idle chunk.
    fn is_idle(state: u32) -> bool {
        state & !(AGED | PAID) == PRESENT
    }

    /// Returns whether a word of the chunk is in use, so that the chunk stays for now.
    pub(crate) fn is_used(&self, word: usize) -> bool {
        // Relaxed: a hint.
        self.state(word >> self.shift).load(Ordering::Relaxed) & COUNT != 0
    }

    /// Returns whether all chunks of a word's segment are absent.
    pub(crate) fn are_absent_around(&self, word: usize) -> bool {
        // Relaxed: a hint.
        self.present_in(word >> self.shift).load(Ordering::Relaxed) == 0
    }

    /// Returns whether any chunk of these words is idle.
    pub(crate) fn any_idle(&self, words: Range<usize>) -> bool {
        let mut chunks = words.start >> self.shift..words.end.div_ceil(1 << self.shift);
        // Relaxed: a hint.
        chunks.any(|chunk| Self::is_idle(self.state(chunk).load(Ordering::Relaxed)))
    }

    /// Gives an idle chunk back; `idle` is the state that the caller has read.
    fn give_back(&self, chunk: usize, idle: u32, refused: IfRefused, to: &mut GivingBack<'_>) -> GivenBack {
        debug_assert!(Self::is_idle(idle), "the state isn't that of an idle chunk");
        let state = self.state(chunk);
        // Acquire pairs with the Release of `leave`.
        if state.compare_exchange(idle, LOCKED, Ordering::Acquire, Ordering::Relaxed).is_err() {
            return GivenBack::NotIdle;
        }
        if !to.words.discard(self.words_of(chunk)) {
            // The system refuses, so the memory stays charged; its contents are zeroed.
            to.words[self.words_of(chunk)].iter().for_each(|word| word.store(0, Ordering::Relaxed));
            let mut paid = idle & PAID;
            if refused == IfRefused::Return && paid != 0 {
                (to.returned)(self.words_of(chunk).start as u64);
                paid = 0;
            }
            state.store(PRESENT | paid, Ordering::Release);
            return GivenBack::Refused;
        }
        // Transition: chunk, locked → absent, given back.
        to.budget.uncharge(self.chunk_bytes());
        self.present.fetch_sub(1, Ordering::Relaxed);
        self.present_in(chunk).fetch_sub(1, Ordering::Relaxed);
        if idle & PAID != 0 {
            (to.returned)(self.words_of(chunk).start as u64);
        }
        // Release pairs with the Acquire of `enter`.
        state.store(0, Ordering::Release);
        GivenBack::Yes
    }

    /// Gives back the chunk of a word if it is idle. Returns whether it has.
    pub(crate) fn give_back_idle(&self, word: usize, to: &mut GivingBack<'_>) -> bool {
        let chunk = word >> self.shift;
        let state = self.state(chunk).load(Ordering::Relaxed);
        Self::is_idle(state) && self.give_back(chunk, state, IfRefused::Keep, to) == GivenBack::Yes
    }

    /// Gives back up to `wanted` idle chunks of these words, whether or not a sweep has seen them.
    /// Returns their number.
    pub(crate) fn give_back_all_idle(&self, range: Range<usize>, wanted: usize, to: &mut GivingBack<'_>) -> usize {
        let words = range.step_by(1 << self.shift);
        words.filter(|&word| self.give_back_idle(word, to)).take(wanted).count()
    }

    /// Gives back up to `wanted` chunks of a segment. A chunk is given back if it is idle now and
    /// was idle in the previous sweep. Returns the number of chunks given back.
    pub(crate) fn sweep(&self, segment: Range<usize>, wanted: usize, to: &mut GivingBack<'_>) -> usize {
        let chunks = segment.start >> self.shift..segment.end >> self.shift;
        // Relaxed: a chunk that becomes present meanwhile is too young to be given back.
        let mut unseen = self.present_in(chunks.start).load(Ordering::Relaxed);
        let mut given = 0;
        for chunk in chunks {
            if unseen == 0 || given == wanted {
                break;
            }
            let state = self.state(chunk).load(Ordering::Relaxed);
            unseen -= u32::from(state & PRESENT != 0);
            if state & !PAID == PRESENT | AGED {
                given += usize::from(self.give_back(chunk, state, IfRefused::Keep, to) == GivenBack::Yes);
            } else if state & !PAID == PRESENT {
                // Transition: chunk, idle → aged.
                // Relaxed: a hint for the next sweep.
                let _ = self.state(chunk).compare_exchange(state, state | AGED, Ordering::Relaxed, Ordering::Relaxed);
            }
        }
        given
    }

    /// Finds the nearly idle chunks of a segment (1 to `FEW` words in use) that have no written
    /// page. Returns the range of each chunk's words. Begins with the `first`th chunk of the
    /// segment and wraps around.
    pub(crate) fn nearly_idle(&self, segment: Range<usize>, first: usize) -> impl Iterator<Item = Range<usize>> + '_ {
        let (start, count) = (segment.start >> self.shift, segment.len() >> self.shift);
        // Relaxed: the caller checks each of these pages again.
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

    /// Returns the words, within `range`, of each chunk in which a page is loading, resident or
    /// swapped.
    pub(crate) fn in_use(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        self.with_any(range, COUNT)
    }

    /// Returns the words, within `range`, of each chunk in which a page is written.
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

    /// Returns whether all chunks of these words are absent. Relaxed: no loader enters them now.
    pub(crate) fn are_absent(&self, words: Range<usize>) -> bool {
        let mut chunks = words.start >> self.shift..words.end >> self.shift;
        chunks.all(|chunk| self.state(chunk).load(Ordering::Relaxed) == 0)
    }

    /// Gives back the chunks of a page map. The caller must know that no thread loads pages of this
    /// map any more. Returns the number of chunks that it didn't give back because one of their
    /// pages is still in memory.
    ///
    /// Two other threads may still be changing the states of these chunks: a sweep, and an evictor
    /// that has made its word *vacant* but hasn't called `leave` yet. This function waits for both.
    /// So the next map that gets these words finds neither shadows nor charges of this map.
    pub(crate) fn clear(&self, words_used: Range<usize>, to: &mut GivingBack<'_>) -> usize {
        let chunks = words_used.start >> self.shift..words_used.end >> self.shift;
        chunks.filter(|&chunk| !self.clear_chunk(chunk, to)).count()
    }

    /// Gives back one chunk. Returns false if a page of the chunk is in memory.
    fn clear_chunk(&self, chunk: usize, to: &mut GivingBack<'_>) -> bool {
        // Relaxed: the caller already knows which pages have left memory.
        let occupied = |word: &AtomicU64| {
            !matches!(PageWord::from_bits(word.load(Ordering::Relaxed)).state(), PageState::Vacant { .. })
        };
        let mut backoff = Backoff::new();
        loop {
            // Acquire pairs with the Release with which a sweep makes the chunk absent, so the
            // sweep has discarded the memory before this returns.
            let state = self.state(chunk).load(Ordering::Acquire);
            if state == 0 {
                return true;
            }
            if state & LOCKED == 0 && state & COUNT == 0 {
                // The loop retries if a sweep has just aged the chunk, or has given it back first.
                if self.give_back(chunk, state, IfRefused::Return, to) == GivenBack::Refused {
                    return true; // Its words are zero, like those of an absent chunk.
                }
            } else if state & COUNT != 0 && to.words[self.words_of(chunk)].iter().any(occupied) {
                return false;
            } else {
                backoff.wait();
            }
        }
    }
}
