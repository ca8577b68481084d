//! The addresses that a hit needs, at hand: where the map's words start, where the arena does, and its table.
//!
//! None of them changes, so a loop over lookups may keep them in registers. (That is why the length, which changes, is
//! behind a pointer, and why every clone of a map has a lookup of its own.)
//!
//! - L1. All that a lookup points to stays where it is while the map's state lives, which whoever has the lookup keeps
//!   alive.
//! - L2. A resident word names a frame of the arena: `publish` took the number from an owned frame.
//! - L3. The object's length is at most what the map has words for, so one comparison checks both.
//! - L4. Pages below `whole_pages` are the object's from their first byte to their last.

use sync::SharedBytes;
use sync::atomic::AtomicU64;

use crate::frame_table::FrameRecord;
use crate::map_state::MapState;
use crate::page_word::PageWord;

#[cfg(not(pagefold_loom))]
pub(crate) use real::Lookup;

#[cfg(pagefold_loom)]
pub(crate) use model::Lookup;

#[cfg(not(pagefold_loom))]
mod real {
    use super::{AtomicU64, FrameRecord, MapState, PageWord, SharedBytes};
    use crate::page_word::SMALLEST_PAGE_SHIFT;
    use core::ptr::NonNull;
    use sync::atomic::Ordering;

    /// Where things are.
    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lookup {
        words: NonNull<AtomicU64>,
        arena: NonNull<AtomicU64>,
        whole_pages: NonNull<AtomicU64>,
        page_shift: u32,
        records: NonNull<FrameRecord>,
    }

    // SAFETY: the pointers are to atomics that live as long as the map (L1), and are only ever made `&` again.
    unsafe impl Send for Lookup {}
    // SAFETY: as above.
    unsafe impl Sync for Lookup {}

    impl Lookup {
        /// For clones of the map that share `map`.
        pub(crate) fn new(map: &MapState) -> Self {
            let frames = &*map.frames;
            Self {
                words: NonNull::from(&frames.words.words[map.first]),
                arena: NonNull::from(frames.arena()).cast(),
                whole_pages: NonNull::from(&map.len.whole_pages),
                page_shift: frames.page_size().trailing_zeros(),
                records: NonNull::from(frames.table.records()).cast(),
            }
        }

        /// The same, if pages are of the smallest size, which the compiler then knows: it computes places at once, and often
        /// sees that a range is within a page.
        #[inline]
        pub(crate) fn of_smallest_pages(self) -> Option<Self> {
            (self.page_shift == SMALLEST_PAGE_SHIFT).then_some(Self { page_shift: SMALLEST_PAGE_SHIFT, ..self })
        }

        /// One less than the page size.
        #[inline]
        fn page_mask(&self) -> usize {
            (1 << self.page_shift) - 1
        }

        /// The word and the offset within its page of `len` bytes at `start`, if these lie in one page that is all the
        /// object's.
        #[inline]
        pub(crate) fn locate_whole<'a>(
            &self,
            map: &'a MapState,
            start: u64,
            len: usize,
        ) -> Option<(&'a AtomicU64, usize)> {
            let offset = start as usize & self.page_mask();
            // The sum doesn't wrap, as a slice is shorter than half the address space; the difference may, without bytes,
            // which aren't looked for then.
            if (offset + len).wrapping_sub(1) > self.page_mask() {
                return None;
            }
            Some((self.whole_page(map, start >> self.page_shift)?, offset))
        }

        /// As [`locate_whole`](Self::locate_whole), in any page. Bytes that the object doesn't have aren't found.
        pub(crate) fn locate<'a>(&self, map: &'a MapState, start: u64, len: usize) -> Option<(&'a AtomicU64, usize)> {
            let offset = start as usize & self.page_mask();
            let in_object = start.checked_add(len as u64).is_some_and(|end| end <= map.len.bytes());
            if !in_object || offset + len > self.page_mask() + 1 {
                return None;
            }
            Some((self.word(map, start >> self.page_shift)?, offset))
        }

        /// The word of `page`, if the object has a byte in it.
        #[inline]
        pub(crate) fn word<'a>(&self, map: &'a MapState, page: u64) -> Option<&'a AtomicU64> {
            let there = page.checked_mul(1 << self.page_shift).is_some_and(|start| start < map.len.bytes());
            // SAFETY: the object's bytes have words (L3), which live long enough (L1).
            there.then(|| unsafe { self.words.add(page as usize).as_ref() })
        }

        /// The word of `page`, if all of it is the object's.
        #[inline]
        pub(crate) fn whole_page<'a>(&self, _: &'a MapState, page: u64) -> Option<&'a AtomicU64> {
            // SAFETY: it lives as long as the map (L1). Acquire: see `Length`.
            let whole_pages = unsafe { self.whole_pages.as_ref() }.load(Ordering::Acquire);
            // SAFETY: as in `word`.
            (page < whole_pages).then(|| unsafe { self.words.add(page as usize).as_ref() })
        }

        /// The record and the bytes of the frame that a resident word names.
        #[inline]
        pub(crate) fn frame<'a>(&self, _: &'a MapState, word: PageWord) -> (&'a FrameRecord, SharedBytes<'a>) {
            let words = (self.page_mask() + 1) / size_of::<AtomicU64>();
            // SAFETY: the frame is one of the arena's (L2), whose memory and table live long enough (L1).
            unsafe {
                let start = self.arena.byte_add(word.frame_offset(self.page_shift));
                let bytes = SharedBytes::new(core::slice::from_raw_parts(start.as_ptr(), words));
                (self.records.add(word.frame_number()).as_ref(), bytes)
            }
        }

        /// Copies from the frame that a resident word names. `offset` and the length are as `locate` or `locate_whole` said.
        #[inline]
        pub(crate) fn copy(&self, map: &MapState, word: PageWord, offset: usize, into: &mut [u8]) {
            let (_, bytes) = self.frame(map, word);
            // SAFETY: it was checked that the range is within a page.
            unsafe { bytes.copy_to_unchecked(offset, into) };
        }
    }
}

/// A model looks things up where they are.
#[cfg(pagefold_loom)]
mod model {
    use super::{AtomicU64, FrameRecord, MapState, PageWord, SharedBytes};

    #[derive(Clone, Copy, Debug)]
    pub(crate) struct Lookup {
        page_size: usize,
    }

    impl Lookup {
        pub(crate) fn new(map: &MapState) -> Self {
            Self { page_size: map.frames.page_size() }
        }

        pub(crate) fn of_smallest_pages(self) -> Option<Self> {
            Some(self)
        }

        pub(crate) fn locate<'a>(&self, map: &'a MapState, start: u64, len: usize) -> Option<(&'a AtomicU64, usize)> {
            let offset = start as usize % self.page_size;
            let fits = start + len as u64 <= map.len.bytes() && offset + len <= self.page_size;
            let word = &map.frames.words.words[map.first + start as usize / self.page_size];
            fits.then_some((word, offset))
        }

        pub(crate) fn locate_whole<'a>(
            &self,
            map: &'a MapState,
            start: u64,
            len: usize,
        ) -> Option<(&'a AtomicU64, usize)> {
            self.locate(map, start, len)
        }

        pub(crate) fn word<'a>(&self, map: &'a MapState, page: u64) -> Option<&'a AtomicU64> {
            self.locate(map, page * self.page_size as u64, 1).map(|(word, _)| word)
        }

        pub(crate) fn whole_page<'a>(&self, map: &'a MapState, page: u64) -> Option<&'a AtomicU64> {
            self.locate(map, page * self.page_size as u64, self.page_size).map(|(word, _)| word)
        }

        pub(crate) fn frame<'a>(&self, map: &'a MapState, word: PageWord) -> (&'a FrameRecord, SharedBytes<'a>) {
            let frame = word.frame().expect("the word is resident");
            (map.frames.table.record(frame), map.frames.bytes(frame))
        }

        pub(crate) fn copy(&self, map: &MapState, word: PageWord, offset: usize, into: &mut [u8]) {
            self.frame(map, word).1.copy_to(offset, into);
        }
    }
}
