//! A page map: one page word for each page of one object, and the ways to look pages up and read
//! them. Pages are loaded in `loading`, pinned in `pinning` and removed in `detach`. Threads write
//! to pages in `writing`; `writeback` writes dirty pages to the file.
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
//! If the copy contains a byte that the next loader of `f` wrote, the reader's fence synchronises
//! with that loader's fence. The eviction happens before the loader's fence, so the reader's second
//! load, `b`, returns the word that the eviction stored, or a later one. None of these equals `a`
//! (`page_word`: a resident word is never reused), so the reader discards the copy.
//!
//! A valid copy has the bytes that the loader of *this* stay (the page's current time in the frame)
//! wrote: the Acquire load of `a` pairs with the Release in `WaitTable::end_load`. So all bytes of
//! a valid copy are this page's, and of one stay.

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

/// A scan for pages in memory prefetches frame records. At each word, the scan looks this many
/// words ahead, and prefetches the record of the frame that it finds there.
const RECORDS_AHEAD: usize = 8;

/// The page words of one object. A clone is a handle to the same map. A thread that looks pages up
/// often should keep its own clone: a clone contains the addresses that a lookup needs, so they
/// stay in the thread's own cache lines, or in registers.
#[derive(Clone, Debug)]
pub struct PageMap {
    pub(crate) lookup: Lookup,
    pub(crate) shared: Arc<MapState>,
}

impl PageMap {
    /// Creates a map for `pages` pages, none of them in memory. Takes address space, but no memory.
    ///
    /// # Errors
    /// If the address space reserved for page words is used up.
    pub fn new(frames: Arc<Frames>, pages: u64) -> Result<Self, ReserveError> {
        Ok(Self::of(MapState::new(frames, pages)?))
    }

    /// Creates a map for an object that may grow to the maximum length. Hits are fastest in the
    /// *near* pages, whose words lie in one run. The near pages are the first `roomy` pages if many
    /// page words are free, and the first `pages` pages otherwise. If no free run is long enough,
    /// there are fewer near pages.
    ///
    /// # Errors
    /// If there is no address space even for a small part of `pages`.
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

    /// Returns the index of page 0's word among all page words.
    #[must_use]
    pub fn first_word(&self) -> u64 {
        self.shared.first as u64
    }

    /// Returns the number that identifies the map while it lives.
    #[must_use]
    pub fn number(&self) -> MapNumber {
        self.shared.number()
    }

    /// Returns the maximum number of pages of the object.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.shared.pages()
    }

    /// Returns the object's length in bytes. [`read`](Self::read) finds no bytes past it, and
    /// [`pin`](Self::pin) finds no pages that lie wholly past it.
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.length().bytes()
    }

    /// Returns whether the object has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the memory in bytes that the map takes in the array of all lengths. The array is
    /// indexed by map number. A map with several segments of words takes up several numbers, but
    /// uses only one entry. Its unused entries count as well, up to a system page in all, because
    /// no other map can use them.
    #[must_use]
    pub fn length_bytes(&self) -> u64 {
        self.shared.length_bytes()
    }

    /// Sets the object's length in bytes, and returns it. A `len` above the map's maximum is
    /// reduced to this maximum. A new map has the maximum length.
    pub fn set_len(&self, len: u64) -> u64 {
        self.shared.set_len(len)
    }

    /// Returns the frames that hold the map's pages.
    #[must_use]
    pub fn frames(&self) -> &Arc<Frames> {
        &self.shared.frames
    }

    /// Returns the word of `page` and its index. Returns `None` if the page has no word, which
    /// means that the page is vacant.
    #[inline]
    pub(crate) fn word(&self, page: u64) -> Option<(usize, &AtomicU64)> {
        let is_near = page < self.shared.near as u64;
        let index = if is_near { self.shared.first + page as usize } else { self.shared.far_word(page)? };
        Some((index, &self.shared.frames.words.words[index]))
    }

    /// Returns the word of `page` if the object has a byte in it.
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

    /// Returns the word of the page that contains the `len` bytes at `start`, and the offset of the
    /// bytes in that page, if the bytes lie in one page and in the object.
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

    /// Returns the state of the page.
    #[must_use]
    pub fn state(&self, page: u64) -> PageState {
        match self.word(page) {
            Some((_, word)) => PageWord::from_bits(word.load(Ordering::Acquire)).state(),
            None => PageWord::NEVER.state(),
        }
    }

    /// Returns whether a page was used since it was loaded. A page that a thread loaded to use it
    /// counts as used; a page that was only read ahead doesn't. Returns `None` if the page isn't in
    /// memory. If the page is evicted during the call, the result may be about the frame's next
    /// page.
    #[must_use]
    pub fn is_used(&self, page: u64) -> Option<bool> {
        // Acquire only because looking up a frame requires it.
        let word = PageWord::from_bits(self.word_in_object(page)?.load(Ordering::Acquire));
        word.frame()?;
        Some(!self.lookup.frame(self.frames(), word).0.write_state.is_ahead())
    }

    /// Returns the number of bits of an offset in a page.
    #[inline]
    #[must_use]
    pub fn page_shift(&self) -> u32 {
        self.lookup.page_shift()
    }

    /// Copies the object's bytes from `start` on if the page is hot: in memory, used several times
    /// since reclaim last looked, not written to, and entirely within the object. Returns false for
    /// all other pages; the caller should then try [`read`](Self::read).
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

    /// Copies the object's bytes from `start` on without a lock or a pin. Writes to shared memory
    /// only if the use of the page has to be recorded. Returns false, with unspecified contents in
    /// `into`, if the bytes aren't all in one page, if the page isn't in memory or leaves it during
    /// the copy, or if writers keep changing the page.
    pub fn read(&self, start: u64, into: &mut [u8]) -> bool {
        self.read_while(start, into, || true)
    }

    /// Copies bytes like [`read`](Self::read), but under an extra condition, `still`. Returns true
    /// only if `still` returns true at a moment when the page is in memory with the bytes that were
    /// copied. May call `still` several times.
    pub fn read_while(&self, start: u64, into: &mut [u8], still: impl Fn() -> bool) -> bool {
        self.read_first(start, into, &mut Ahead::No, still)
    }

    /// Copies bytes like [`read_while`](Self::read_while), and sets `ahead` if this was the first
    /// use of a page that was read ahead.
    pub fn read_first(&self, start: u64, into: &mut [u8], ahead: &mut Ahead, still: impl Fn() -> bool) -> bool {
        let Some((word, offset)) = self.locate(start, into.len()) else { return false };
        self.read_word(word, offset, into, ahead, still)
    }

    /// Copies bytes like [`read_first`](Self::read_first), but takes the page's word instead of a
    /// position in the object.
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
        if !after.is_hot() {
            *ahead = note_use(word, after, self.lookup.frame(self.frames(), before).0);
        }
        true
    }

    /// Asks the CPU to fetch the word of the page that contains byte `start`. To be called some
    /// time before [`prefetch_bytes`](Self::prefetch_bytes).
    #[inline]
    pub fn prefetch_word(&self, start: u64) {
        if let Some((word, _)) = self.lookup.locate_whole(self.frames(), start, 1) {
            sync::prefetch::prefetch(word);
        }
    }

    /// Asks the CPU to fetch the first of `len` bytes at `start` if they are in memory. To be
    /// called some time before [`read_hot`](Self::read_hot).
    #[inline]
    pub fn prefetch_bytes(&self, start: u64, len: usize) {
        let Some((word, offset)) = self.lookup.locate_whole(self.frames(), start, len) else { return };
        // Acquire only because looking up a frame requires it: this thread reads no bytes.
        let word = PageWord::from_bits(word.load(Ordering::Acquire));
        if word.is_hot() {
            self.lookup.frame(self.frames(), word).1.prefetch(offset, len);
        }
    }

    /// Returns the pages of `range` that are in memory, being loaded or swapped out, in order. May
    /// miss pages whose state changes meanwhile. Prefetches the frame records of the returned pages
    /// that are in memory.
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

    /// Returns the indexes of the words of a range of pages; skips pages that have no word.
    pub(crate) fn words_of(&self, range: Range<u64>) -> impl Iterator<Item = Range<usize>> + '_ {
        let index = |page: u64| self.shared.first + page.min(self.shared.near as u64) as usize;
        let near = index(range.start)..index(range.end.max(range.start));
        std::iter::once(near).chain(self.shared.far_words(range))
    }

    /// Returns the page whose word has this index; the word must be one of the map's.
    #[inline]
    pub(crate) fn page_of(&self, word: usize) -> u64 {
        let near = word.wrapping_sub(self.shared.first);
        if near < self.shared.near { near as u64 } else { self.frames().words.page_of_part(word) }
    }
}

/// Counts a use of a page that isn't hot. Returns whether this was the first use of a page that was
/// read ahead. Such a first use isn't counted: the page was loaded for it.
#[cold]
fn note_use(word: &AtomicU64, seen: PageWord, record: &FrameRecord) -> Ahead {
    let ahead = record.write_state.take_ahead();
    if ahead == Ahead::No && record.write_state.count_use_of_clean() {
        make_hot(word, seen);
    }
    ahead
}

/// Sets the hot bit. From then on a hit writes to nothing that CPUs share, until reclaim looks at
/// the page.
fn make_hot(word: &AtomicU64, seen: PageWord) {
    // Loads the word first: even a failed compare-and-swap counts as a write to memory, and the
    // word's chunk may have been given back (`chunks`). Relaxed: the bit publishes nothing.
    if !seen.is_written() && word.load(Ordering::Relaxed) == seen.bits() {
        let _ = word.compare_exchange(seen.bits(), seen.with_hot(true).bits(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
