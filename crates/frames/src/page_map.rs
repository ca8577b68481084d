//! A page map: one page word for each page of one object, and how they are looked up and read.
//! Pages come in by `loading`, are held by `pinning` and taken out by `detach`; writing is in
//! `writing`, getting what was written to the file in `writeback`.
//!
//! **Reading without a trace** ([`PageMap::read_hot`], [`PageMap::read`]). The reader writes
//! nothing that is shared, not even a count:
//! ```text
//!   reader                                   others
//!   a = word.load(Acquire)                   word: resident(f, g) → vacant          (evict)
//!   copy bytes of frame(a)      Relaxed      … f is freed, taken by another loader
//!   fence(Acquire)                           fence(Release)            (`OwnedFrame::fill`)
//!   b = word.load(Relaxed)                   bytes of f = another page's   Relaxed
//!   a, b the same stay? the copy is good
//! ```
//! If the copy holds a byte that the next loader of `f` wrote, the reader's fence synchronises with
//! that loader's fence; the eviction happened before that, so `b` is the eviction's value or a
//! later one, and no later one equals `a` (`page_word`: a word never comes back). A byte that the
//! loader of *this* stay wrote is there by the Acquire load of `a`, which pairs with the Release in
//! `WaitTable::end_load`. So a good copy is this page's bytes, all of one stay: P1, P2.

mod detach;
mod kept_pin;
mod loading;
mod pinning;

pub use detach::Detach;
pub use kept_pin::KeptPin;
pub use loading::{BeginLoad, Labels, Loading};
pub use pinning::{PinError, PinnedFrame, Pinner};

use std::ops::Range;

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

use crate::error::ReserveError;
use crate::frame_table::FrameRecord;
use crate::frames::Frames;
use crate::lookup::Lookup;
use crate::map_number::MapNumber;
use crate::map_state::MapState;
use crate::page_word::{PageState, PageWord};
use crate::write_state::Ahead;

/// How far ahead of a page that is taken out of memory its neighbours' records are fetched.
const RECORDS_AHEAD: usize = 8;

/// The page words of one object. A clone is a handle to the same map. A thread that looks pages up
/// often keeps a clone of its own: then the addresses that a lookup needs are next to that thread's
/// other data, or in registers.
#[derive(Clone, Debug)]
pub struct PageMap {
    pub(crate) lookup: Lookup,
    pub(crate) shared: Arc<MapState>,
}

impl PageMap {
    /// A map for `pages` pages, none of them in memory. Takes address space, but no memory.
    ///
    /// # Errors
    /// When the address space reserved for page words is used up.
    pub fn new(frames: Arc<Frames>, pages: u64) -> Result<Self, ReserveError> {
        Ok(Self::of(MapState::new(frames, pages)?))
    }

    /// A map for as many pages as an object may ever have. The hits that take the least time are
    /// those of the first `pages`, or of `roomy` as long as there are page words in plenty.
    ///
    /// # Errors
    /// As [`new`](Self::new), if there is no address space for a small part of them.
    pub fn growing(frames: Arc<Frames>, pages: u64, roomy: u64) -> Result<Self, ReserveError> {
        Ok(Self::of(MapState::growing(frames, pages, roomy)?))
    }

    fn of(state: MapState) -> Self {
        let shared = Arc::new(state);
        // SAFETY: there is a length for each map (`PageWords::lengths`).
        let lookup = unsafe { Lookup::new(&shared.frames).of_map(shared.number().0) };
        let map = Self { lookup, shared };
        map.set_len(u64::MAX);
        map
    }

    /// The number of page 0's word among all page words.
    #[must_use]
    pub fn first_word(&self) -> u64 {
        self.shared.first as u64
    }

    /// Which of all maps it is, while it lives.
    #[must_use]
    pub fn number(&self) -> MapNumber {
        self.shared.number()
    }

    /// Pages that the object can have.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.shared.pages()
    }

    /// The object's length in bytes. Bytes past it aren't found by [`read`](Self::read), nor their
    /// pages by [`pin`](Self::pin).
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.length().bytes()
    }

    /// Whether the object has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Bytes that its length takes, with those beside it that no other map can have: more if the
    /// map has much room.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.shared.length_bytes()
    }

    /// Sets the object's length in bytes; at first it is all that the map has pages for, which is
    /// the most it can be. Says what it is now.
    pub fn set_len(&self, len: u64) -> u64 {
        self.shared.set_len(len)
    }

    /// The frames that the map's pages live in.
    #[must_use]
    pub fn frames(&self) -> &Arc<Frames> {
        &self.shared.frames
    }

    /// The word of `page`, and its number. `None` if it has none: then it is vacant.
    #[inline]
    pub(crate) fn word(&self, page: u64) -> Option<(usize, &AtomicU64)> {
        let is_near = page < self.shared.near as u64;
        let index = if is_near { self.shared.first + page as usize } else { self.shared.far_word(page)? };
        Some((index, &self.shared.frames.words.words[index]))
    }

    /// The word of `page`, if the object has a byte in it.
    #[inline]
    fn word_in_object(&self, page: u64) -> Option<&AtomicU64> {
        if !self.lookup.has(self.frames(), page) {
            return None;
        }
        self.lookup.word(self.frames(), page).or_else(|| self.far_word(page))
    }

    #[cold]
    fn far_word(&self, page: u64) -> Option<&AtomicU64> {
        self.word(page).map(|(_, word)| word)
    }

    /// The word and the offset within its page of `len` bytes at `start`, if these lie in one page
    /// and in the object.
    #[inline]
    fn locate(&self, start: u64, len: usize) -> Option<(&AtomicU64, usize)> {
        self.lookup.locate(self.frames(), start, len).or_else(|| self.locate_far(start, len))
    }

    #[cold]
    fn locate_far(&self, start: u64, len: usize) -> Option<(&AtomicU64, usize)> {
        let (page, offset) = (start >> self.lookup.page_shift(), self.lookup.offset_in_page(start, len)?);
        let is_in_object = start.checked_add(len as u64).is_some_and(|end| end <= self.len());
        if is_in_object { self.word(page).map(|(_, word)| (word, offset)) } else { None }
    }

    /// Where the page is now.
    #[must_use]
    pub fn state(&self, page: u64) -> PageState {
        match self.word(page) {
            Some((_, word)) => PageWord::from_bits(word.load(Ordering::Acquire)).state(),
            None => PageWord::NEVER.state(),
        }
    }

    /// Whether a page has been used since it was loaded, be it that it was loaded for a use. `None`
    /// if it isn't in memory. It may be the frame's next page that this is said of.
    #[must_use]
    pub fn is_used(&self, page: u64) -> Option<bool> {
        // Acquire only because looking up a frame asks for it.
        let word = PageWord::from_bits(self.word_in_object(page)?.load(Ordering::Acquire));
        word.frame()?;
        Some(!self.lookup.frame(self.frames(), word).0.write_state.is_ahead())
    }

    /// As [`read`](Self::read), for the pages that are read most: in memory, used since reclaim
    /// last looked, and whole. False also for others.
    #[inline]
    pub fn read_hot(&self, start: u64, into: &mut [u8]) -> bool {
        match self.lookup.of_smallest_pages() {
            Some(lookup) => lookup.read_hot(self.frames(), start, into),
            None => self.read_hot_of_any_size(start, into),
        }
    }

    #[inline(never)]
    fn read_hot_of_any_size(&self, start: u64, into: &mut [u8]) -> bool {
        self.lookup.read_hot(self.frames(), start, into)
    }

    /// Copies the object's bytes from `start` on without a lock or a pin, and without a shared
    /// write unless the use of the page has to be noted. False if they aren't all within one page,
    /// and that in memory from the beginning of the copy to its end, or if it was written to again
    /// and again meanwhile; `into` then holds nothing of use.
    pub fn read(&self, start: u64, into: &mut [u8]) -> bool {
        self.read_first(start, into, &mut Ahead::No)
    }

    /// As [`read`](Self::read). Says in `ahead` if this was the first use of a page that was read
    /// ahead.
    pub fn read_first(&self, start: u64, into: &mut [u8], ahead: &mut Ahead) -> bool {
        self.read_at(start, into, ahead, || true)
    }

    /// As [`read`](Self::read), if `still` says yes at a moment when the page is there, with the
    /// bytes that were copied. It may be asked several times.
    pub fn read_while(&self, start: u64, into: &mut [u8], still: impl Fn() -> bool) -> bool {
        self.read_at(start, into, &mut Ahead::No, still)
    }

    fn read_at(&self, start: u64, into: &mut [u8], ahead: &mut Ahead, still: impl Fn() -> bool) -> bool {
        let Some((word, offset)) = self.locate(start, into.len()) else { return false };
        self.read_word(word, offset, into, ahead, still)
    }

    /// As [`read_first`](Self::read_first), of the page that `word` is the word of.
    pub(crate) fn read_word(
        &self,
        word: &AtomicU64,
        offset: usize,
        into: &mut [u8],
        ahead: &mut Ahead,
        still: impl Fn() -> bool,
    ) -> bool {
        // Acquire, as in `Lookup::read_hot`.
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        if before.frame().is_none() {
            return false;
        }
        if before.is_written() {
            return self.read_written(word, offset, into, ahead, still);
        }
        let after = self.lookup.copy_and_look(self.frames(), (word, before), offset, into, still);
        let Some(after) = after.filter(|&after| before.same_stay(after)) else { return false };
        if !after.is_referenced() {
            *ahead = note_use(word, after, self.lookup.frame(self.frames(), before).0);
        }
        true
    }

    /// Asks the CPU to fetch the word of the page that has byte `start`, ahead of
    /// [`prefetch_bytes`](Self::prefetch_bytes).
    #[inline]
    pub fn prefetch_word(&self, start: u64) {
        if let Some((word, _)) = self.lookup.locate_whole(self.frames(), start, 1) {
            sync::prefetch::prefetch(word);
        }
    }

    /// Asks the CPU to fetch the first of `len` bytes at `start`, if they are in memory, ahead of
    /// [`read_hot`](Self::read_hot).
    #[inline]
    pub fn prefetch_bytes(&self, start: u64, len: usize) {
        let Some((word, offset)) = self.lookup.locate_whole(self.frames(), start, len) else { return };
        // Acquire only because looking up a frame asks for it: nothing is read.
        let word = PageWord::from_bits(word.load(Ordering::Acquire));
        if word.is_hot() {
            self.lookup.frame(self.frames(), word).1.prefetch(offset, len);
        }
    }

    /// The pages of `range` that are in memory, being loaded or swapped out, in order. Pages that
    /// come or go meanwhile may be missed. Their frames' records are fetched into the CPU's cache
    /// ahead of them.
    pub fn pages_in_memory(&self, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let words = &self.shared.frames.words;
        self.words_of(range).flat_map(|part| words.in_use(part)).flat_map(move |chunk| {
            // Relaxed: a caller that uses the page loads its word again.
            let state = |index: usize| PageWord::from_bits(words.words[index].load(Ordering::Relaxed)).state();
            let last = chunk.end - 1;
            let occupied = move |&index: &usize| {
                if let PageState::Resident { frame } = state(last.min(index + RECORDS_AHEAD)) {
                    self.shared.frames.table.prefetch(frame);
                }
                !matches!(state(index), PageState::Vacant { .. })
            };
            chunk.filter(occupied).map(|index| self.page_of(index))
        })
    }

    /// The numbers of the words of a range of pages, as far as there are any.
    pub(crate) fn words_of(&self, range: Range<u64>) -> impl Iterator<Item = Range<usize>> + '_ {
        let index = |page: u64| self.shared.first + page.min(self.shared.near as u64) as usize;
        let near = index(range.start)..index(range.end.max(range.start));
        std::iter::once(near).chain(self.shared.far_words(range))
    }

    /// The page whose word has this number: one of the map's.
    #[inline]
    pub(crate) fn page_of(&self, word: usize) -> u64 {
        let near = word.wrapping_sub(self.shared.first);
        if near < self.shared.near { near as u64 } else { self.frames().words.page_of_part(word) }
    }
}

/// Notes that a page was used, and says whether that is the first use of a page that was read
/// ahead. Such a use leaves the page unreferenced: it is the one that the page was loaded for.
#[cold]
fn note_use(word: &AtomicU64, seen: PageWord, record: &FrameRecord) -> Ahead {
    let ahead = record.write_state.take_ahead();
    if ahead == Ahead::No {
        reference(word, seen);
    }
    ahead
}

/// Sets the referenced bit. The only write on the way of a hit, and only where reclaim has looked
/// since the last.
fn reference(word: &AtomicU64, seen: PageWord) {
    // Looks first, so that a word that is gone isn't written to (`chunks`). Relaxed: the bit
    // publishes nothing.
    if !seen.is_written() && word.load(Ordering::Relaxed) == seen.bits() {
        let _ =
            word.compare_exchange(seen.bits(), seen.with_referenced(true).bits(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
