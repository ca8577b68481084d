//! The addresses that a hit needs: of a map's words and its length, of the arena, and of the frame
//! table.
//!
//! The lookup holds addresses that never change, so a loop over lookups may keep them in registers.
//! The object's length does change; therefore the lookup holds the address of the length, not its
//! value. Every clone of a map has its own copy of the lookup.
//!
//! - L1. Everything that a lookup points to stays in place while the frames live, and the owner of
//!   the lookup keeps the frames alive. So using a lookup after its map was dropped is memory-safe.
//!   But the lookup then finds pages of another map, or none; the caller must detect this
//!   (`page_maps`).
//! - L2. A resident word names a frame of the arena: `publish` took the number from an owned frame.
//! - L3. `whole_pages` and `near_pages` are at most the number of words in the map's first run. Far
//!   pages aren't found here (`far_words`).
//! - L4. All bytes of pages below `whole_pages` belong to the object.

use sync::SharedBytes;
use sync::atomic::{AtomicU64, Ordering, fence};

use crate::frame_table::FrameRecord;
use crate::frames::Frames;
use crate::page_word::PageWord;

#[cfg(not(pagefold_loom))]
pub(crate) use real::Lookup;

#[cfg(pagefold_loom)]
pub(crate) use model::Lookup;

impl Lookup {
    /// Copies bytes of one page. Returns true only if the page is in memory, lies wholly within the
    /// object, was used several times since reclaim last looked (hot), and wasn't written to (see
    /// `page_map`).
    #[inline(always)]
    pub(crate) fn read_hot(self, frames: &Frames, start: u64, into: &mut [u8]) -> bool {
        let Some((word, offset)) = self.locate_whole(frames, start, into.len()) else { return false };
        // Acquire pairs with the Release in `WaitTable::end_load`: the loader's bytes are visible.
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        before.is_hot() && self.copy_and_look(frames, (word, before), offset, into, || true) == Some(before)
    }

    /// Copies bytes like [`read_hot`](Self::read_hot), but also from a page that was written to.
    /// After the copy, calls `still`, which checks a further condition of the caller. Returns true
    /// only if `still` returned true, and if during that call the page was in memory and still had
    /// the bytes that were copied (V4 of `writing`).
    #[inline(always)]
    pub(crate) fn read_hot_or_written(
        self,
        frames: &Frames,
        start: u64,
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> bool {
        let Some(found) = self.locate_whole(frames, start, into.len()) else { return false };
        self.read_word_hot_or_written(frames, found, into, still)
    }

    /// Copies bytes like [`read_hot_or_written`](Self::read_hot_or_written), but takes the page's
    /// word instead of a position in the object. The copied range starts at `offset` in the page,
    /// and must lie within the page.
    #[inline(always)]
    pub(crate) fn read_word_hot_or_written(
        self,
        frames: &Frames,
        (word, offset): (&AtomicU64, usize),
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> bool {
        // Acquire, as in `read_hot`.
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        if before.is_hot() {
            return self.copy_and_look(frames, (word, before), offset, into, still) == Some(before);
        }
        before.is_written()
            && self.frame(frames, before).0.write_state.is_hot()
            && self.copy_version(frames, (word, before), offset, into, still)
    }

    /// `before` is a resident word. Copies from the frame that it names, calls `still`, then loads
    /// `word` again and returns the new value (see `page_map`). Returns `None` if `still` returns
    /// false.
    #[inline(always)]
    pub(crate) fn copy_and_look(
        &self,
        frames: &Frames,
        (word, before): (&AtomicU64, PageWord),
        offset: usize,
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> Option<PageWord> {
        self.copy(frames, before, offset, into);
        // Pairs with the fence in `OwnedFrame::fill` (see the head of `page_map`), and with the
        // fence of a writer (V1 of `writing`).
        fence(Ordering::Acquire);
        still().then(|| PageWord::from_bits(word.load(Ordering::Relaxed)))
    }

    /// Copies from the frame of a written page, then calls `still`. Returns true only if `still`
    /// returned true, and if, from before the copy until after `still`, the page stayed in its
    /// frame and no writer changed the page (V2 of `writing`).
    #[inline(always)]
    pub(crate) fn copy_version(
        &self,
        frames: &Frames,
        (word, before): (&AtomicU64, PageWord),
        offset: usize,
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> bool {
        let (record, _) = self.frame(frames, before);
        // Acquire pairs with the Release of `Writing::change_bytes`: an even version's bytes are
        // visible.
        let version = record.version.load(Ordering::Acquire);
        if !version.is_multiple_of(2) {
            return false;
        }
        self.copy(frames, before, offset, into);
        // The fence and the loads after it are as in `copy_and_look`.
        fence(Ordering::Acquire);
        still() && record.version.load(Ordering::Relaxed) == version && word.load(Ordering::Relaxed) == before.bits()
    }
}

#[cfg(not(pagefold_loom))]
mod real {
    use super::{AtomicU64, FrameRecord, Frames, PageWord, SharedBytes};
    use crate::length::Length;
    use crate::page_word::SMALLEST_PAGE_SHIFT;
    use crate::page_words::MAP_SHIFT;
    use core::ptr::NonNull;

    /// The addresses.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lookup {
        words: NonNull<AtomicU64>,
        arena: NonNull<AtomicU64>,
        length: NonNull<Length>,
        page_shift: u32,
        records: NonNull<FrameRecord>,
    }

    // SAFETY: the pointers are to atomics that live as long as the frames (L1), and only shared
    // references are made from them.
    unsafe impl Send for Lookup {}
    // SAFETY: as above.
    unsafe impl Sync for Lookup {}

    impl Lookup {
        /// Creates the lookup for the map with number 0.
        pub(crate) fn new(frames: &Frames) -> Self {
            Self {
                words: NonNull::from(&*frames.words.words).cast(),
                arena: NonNull::from(frames.arena()).cast(),
                length: NonNull::from(&*frames.words.lengths).cast(),
                page_shift: frames.page_size().trailing_zeros(),
                records: NonNull::from(frames.table.records()).cast(),
            }
        }

        /// Returns the lookup for the map with this number. `self` must be the lookup for map 0.
        ///
        /// # Safety
        /// `number` must be below the number of lengths.
        #[inline]
        pub(crate) unsafe fn of_map(self, number: usize) -> Self {
            // SAFETY: the caller ensures that the length exists; each length has words.
            unsafe { Self { words: self.words.add(number << MAP_SHIFT), length: self.length.add(number), ..self } }
        }

        /// Returns a copy of this lookup if pages have the smallest size, otherwise `None`. To the
        /// compiler, the copy's page size is a constant. So the compiler computes offsets directly,
        /// and can often prove that a range is within a page.
        #[inline]
        pub(crate) fn of_smallest_pages(self) -> Option<Self> {
            (self.page_shift == SMALLEST_PAGE_SHIFT).then_some(Self { page_shift: SMALLEST_PAGE_SHIFT, ..self })
        }

        #[inline]
        pub(crate) fn page_shift(&self) -> u32 {
            self.page_shift
        }

        /// Returns the page size minus 1.
        #[inline]
        fn page_mask(&self) -> usize {
            (1 << self.page_shift) - 1
        }

        #[inline]
        fn length<'a>(&self, _: &'a Frames) -> &'a Length {
            // SAFETY: the length lives as long as the frames (L1).
            unsafe { self.length.as_ref() }
        }

        /// Returns the word of the page that contains the `len` bytes at `start`, and the offset of
        /// the bytes in that page. Returns `None` if the bytes don't lie in one page, or if the
        /// page is far or doesn't lie wholly within the object.
        ///
        /// A hit looks at the length only here. So if the file is truncated within the page between
        /// this call and the thread's copy, the thread may get zeros in place of bytes past the new
        /// end.
        #[inline]
        pub(crate) fn locate_whole<'a>(
            &self,
            frames: &'a Frames,
            start: u64,
            len: usize,
        ) -> Option<(&'a AtomicU64, usize)> {
            let offset = self.offset_in_page(start, len)?;
            Some((self.whole_page(frames, start >> self.page_shift)?, offset))
        }

        /// Returns the offset within its page of `len` bytes at `start`, if these lie in one page.
        #[inline]
        pub(crate) fn offset_in_page(&self, start: u64, len: usize) -> Option<usize> {
            let offset = start as usize & self.page_mask();
            // The sum doesn't wrap, because a slice is shorter than half the address space. The
            // subtraction wraps only if `offset` and `len` are both 0. Its result is then larger
            // than the mask, so this returns `None`, and the empty range isn't looked up.
            ((offset + len).wrapping_sub(1) <= self.page_mask()).then_some(offset)
        }

        /// Returns the word with this index among all words. `self` must be the lookup for map 0.
        ///
        /// # Safety
        /// `index` must be below the number of words.
        #[inline]
        pub(crate) unsafe fn word_at<'a>(&self, _: &'a Frames, index: usize) -> &'a AtomicU64 {
            // SAFETY: the caller ensures that the word exists; it lives long enough (L1).
            unsafe { self.words.add(index).as_ref() }
        }

        /// Returns the word and the offset like [`locate_whole`](Self::locate_whole), but also for
        /// the object's last page if the object ends within that page. Returns `None` if the bytes
        /// don't lie in one near page, or don't all belong to the object.
        pub(crate) fn locate<'a>(&self, frames: &'a Frames, start: u64, len: usize) -> Option<(&'a AtomicU64, usize)> {
            let (offset, page) = (start as usize & self.page_mask(), start >> self.page_shift);
            let length = self.length(frames);
            let bytes = length.bytes();
            let in_object = start < bytes && len as u64 <= bytes - start;
            if !in_object || offset + len > self.page_mask() + 1 || page >= length.near_pages() {
                return None;
            }
            // SAFETY: near pages have words (L3), which live long enough (L1).
            Some((unsafe { self.words.add(page as usize).as_ref() }, offset))
        }

        /// Returns whether the object has a byte in `page`.
        #[inline]
        pub(crate) fn has(&self, frames: &Frames, page: u64) -> bool {
            page.checked_mul(1 << self.page_shift).is_some_and(|start| start < self.length(frames).bytes())
        }

        /// Returns the word of `page` if the page is near.
        #[inline]
        pub(crate) fn word<'a>(&self, frames: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            // SAFETY: near pages have words (L3), which live long enough (L1).
            (page < self.length(frames).near_pages()).then(|| unsafe { self.words.add(page as usize).as_ref() })
        }

        /// Returns the word of `page` if the whole page belongs to the object.
        #[inline]
        pub(crate) fn whole_page<'a>(&self, frames: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            // SAFETY: as in `word`.
            (page < self.length(frames).whole_pages()).then(|| unsafe { self.words.add(page as usize).as_ref() })
        }

        /// Returns the record and the bytes of the frame that a resident word names.
        #[inline]
        pub(crate) fn frame<'a>(&self, _: &'a Frames, word: PageWord) -> (&'a FrameRecord, SharedBytes<'a>) {
            let words = (self.page_mask() + 1) / size_of::<AtomicU64>();
            // SAFETY: the frame is one of the arena's (L2), whose memory and table live long enough
            // (L1).
            unsafe {
                let start = self.arena.byte_add(word.frame_offset(self.page_shift));
                let bytes = SharedBytes::new(core::slice::from_raw_parts(start.as_ptr(), words));
                (self.records.add(word.frame_number()).as_ref(), bytes)
            }
        }

        /// Copies from the frame that a resident word names. The range must be one that `locate` or
        /// `locate_whole` has found.
        #[inline]
        pub(crate) fn copy(&self, frames: &Frames, word: PageWord, offset: usize, into: &mut [u8]) {
            let (_, bytes) = self.frame(frames, word);
            // SAFETY: the caller has checked that the range is within a page.
            unsafe { bytes.copy_to_unchecked(offset, into) };
        }
    }
}

/// In a loom model, a lookup goes through the frames.
#[cfg(pagefold_loom)]
mod model {
    use super::{AtomicU64, FrameRecord, Frames, PageWord, SharedBytes};
    use crate::page_words::MAP_SHIFT;

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lookup {
        number: usize,
        page_size: usize,
    }

    impl Lookup {
        pub(crate) fn new(frames: &Frames) -> Self {
            Self { number: 0, page_size: frames.page_size() }
        }

        pub(crate) unsafe fn of_map(self, number: usize) -> Self {
            Self { number, ..self }
        }

        pub(crate) fn of_smallest_pages(self) -> Option<Self> {
            Some(self)
        }

        pub(crate) fn page_shift(&self) -> u32 {
            self.page_size.trailing_zeros()
        }

        pub(crate) fn locate<'a>(&self, frames: &'a Frames, start: u64, len: usize) -> Option<(&'a AtomicU64, usize)> {
            let offset = start as usize % self.page_size;
            let in_object = start + len as u64 <= frames.words.lengths[self.number].bytes();
            let fits = in_object && offset + len <= self.page_size;
            let first = self.number << MAP_SHIFT;
            let is_near = start / (self.page_size as u64) < frames.words.lengths[self.number].near_pages();
            (fits && is_near).then(|| (&frames.words.words[first + start as usize / self.page_size], offset))
        }

        pub(crate) fn locate_whole<'a>(
            &self,
            frames: &'a Frames,
            start: u64,
            len: usize,
        ) -> Option<(&'a AtomicU64, usize)> {
            let is_whole = start / (self.page_size as u64) < frames.words.lengths[self.number].whole_pages();
            self.locate(frames, start, len).filter(|_| is_whole)
        }

        pub(crate) fn offset_in_page(&self, start: u64, len: usize) -> Option<usize> {
            let offset = start as usize % self.page_size;
            (offset + len <= self.page_size).then_some(offset)
        }

        pub(crate) fn has(&self, frames: &Frames, page: u64) -> bool {
            page * (self.page_size as u64) < frames.words.lengths[self.number].bytes()
        }

        pub(crate) fn word<'a>(&self, frames: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            let is_near = page < frames.words.lengths[self.number].near_pages();
            let first = self.number << MAP_SHIFT;
            is_near.then(|| &frames.words.words[first + page as usize])
        }

        pub(crate) fn whole_page<'a>(&self, frames: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            self.locate_whole(frames, page * self.page_size as u64, 1).map(|(word, _)| word)
        }

        pub(crate) fn frame<'a>(&self, frames: &'a Frames, word: PageWord) -> (&'a FrameRecord, SharedBytes<'a>) {
            let frame = word.frame().expect("the word is resident");
            (frames.table.record(frame), frames.bytes(frame))
        }

        pub(crate) fn copy(&self, frames: &Frames, word: PageWord, offset: usize, into: &mut [u8]) {
            self.frame(frames, word).1.copy_to(offset, into);
        }
    }
}
