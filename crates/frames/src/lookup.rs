//! The addresses that a hit needs, at hand: where the map's words start, where the arena does, and its table.
//!
//! - L1. Both regions stay where they are while the `Frames` lives, which the map that has the lookup keeps alive.
//! - L2. A resident word names a frame of the arena: `publish` took the number from an owned frame.
//! - L3. The object's length is at most what the map has words for, so one comparison checks both.

use sync::SharedBytes;
use sync::atomic::{AtomicU64, Ordering};

use crate::frame_table::FrameRecord;
use crate::frames::Frames;
use crate::page_word::PageWord;

#[cfg(not(pagefold_loom))]
pub(crate) use real::Lookup;

#[cfg(pagefold_loom)]
pub(crate) use model::Lookup;

#[cfg(not(pagefold_loom))]
mod real {
    use super::{AtomicU64, FrameRecord, Frames, Ordering, PageWord, SharedBytes};
    use core::ptr::NonNull;

    /// Where things are.
    #[derive(Debug)]
    pub(crate) struct Lookup {
        words: NonNull<AtomicU64>,
        arena: NonNull<AtomicU64>,
        /// Length of the object in bytes: never more than the map has pages for (L3).
        len: AtomicU64,
        page_shift: u32,
        /// One less than the page size.
        page_mask: usize,
        records: NonNull<FrameRecord>,
    }

    // SAFETY: the pointers are to atomics that live as long as the map (L1), and are only ever made `&` again.
    unsafe impl Send for Lookup {}
    // SAFETY: as above.
    unsafe impl Sync for Lookup {}

    impl Lookup {
        /// For the map whose words start at `first`, of an object without bytes as yet.
        pub(crate) fn new(frames: &Frames, first: usize) -> Self {
            Self {
                words: NonNull::from(&frames.words.words[first]),
                arena: NonNull::from(frames.arena()).cast(),
                len: AtomicU64::new(0),
                page_shift: frames.page_size().trailing_zeros(),
                page_mask: frames.page_size() - 1,
                records: NonNull::from(frames.table.records()).cast(),
            }
        }

        /// The object's length in bytes. Acquire pairs with `set_len`: who sees an object that has grown also sees that
        /// the page at its old end was taken out of memory.
        #[inline]
        pub(crate) fn len(&self) -> u64 {
            self.len.load(Ordering::Acquire)
        }

        /// `len` is at most what the map has pages for (L3).
        pub(crate) fn set_len(&self, len: u64) {
            self.len.store(len, Ordering::Release);
        }

        /// The word and the offset within its page of `len` bytes at `start`, if these lie in one page of the object.
        #[inline]
        pub(crate) fn locate<'a>(&'a self, _: &'a Frames, start: u64, len: usize) -> Option<(&'a AtomicU64, usize)> {
            let offset = start as usize & self.page_mask;
            let in_object = start.checked_add(len as u64).is_some_and(|end| end <= self.len());
            // The sum doesn't wrap, as a slice is shorter than half the address space; without bytes the difference may,
            // and then there is nothing to look up.
            if !in_object || (offset + len).wrapping_sub(1) > self.page_mask {
                return None;
            }
            // SAFETY: the object's bytes have words (L3), which live long enough (L1). An empty range at the end of
            // the last page has none, and isn't looked up.
            (len > 0).then(|| unsafe { (self.words.add((start >> self.page_shift) as usize).as_ref(), offset) })
        }

        /// The word of `page`, if the object has it.
        #[inline]
        pub(crate) fn word<'a>(&'a self, _: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            let there = page.checked_mul(1 << self.page_shift).is_some_and(|start| start < self.len());
            // SAFETY: as in `locate`.
            there.then(|| unsafe { self.words.add(page as usize).as_ref() })
        }

        /// The word of `page`, if all of it is the object's.
        #[inline]
        pub(crate) fn whole_page<'a>(&'a self, _: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            // SAFETY: as in `locate`.
            (page < self.len() >> self.page_shift).then(|| unsafe { self.words.add(page as usize).as_ref() })
        }

        /// The record and the bytes of the frame that a resident word names.
        #[inline]
        pub(crate) fn frame<'a>(&'a self, _: &'a Frames, word: PageWord) -> (&'a FrameRecord, SharedBytes<'a>) {
            let words = (self.page_mask + 1) / size_of::<AtomicU64>();
            // SAFETY: the frame is one of the arena's (L2), whose memory and table live long enough (L1).
            unsafe {
                let start = self.arena.byte_add(word.frame_offset(self.page_shift));
                let bytes = SharedBytes::new(core::slice::from_raw_parts(start.as_ptr(), words));
                (self.records.add(word.frame_number()).as_ref(), bytes)
            }
        }

        /// Copies from the frame that a resident word names. `offset` and the length are as [`locate`](Self::locate) said.
        #[inline]
        pub(crate) fn copy(&self, frames: &Frames, word: PageWord, offset: usize, into: &mut [u8]) {
            let (_, bytes) = self.frame(frames, word);
            // SAFETY: `locate` has checked that the range is within a page.
            unsafe { bytes.copy_to_unchecked(offset, into) };
        }
    }
}

/// A model looks things up where they are.
#[cfg(pagefold_loom)]
mod model {
    use super::{AtomicU64, FrameRecord, Frames, Ordering, PageWord, SharedBytes};

    #[derive(Debug)]
    pub(crate) struct Lookup {
        first: usize,
        len: AtomicU64,
        page_size: usize,
    }

    impl Lookup {
        pub(crate) fn new(frames: &Frames, first: usize) -> Self {
            Self { first, len: AtomicU64::new(0), page_size: frames.page_size() }
        }

        pub(crate) fn len(&self) -> u64 {
            self.len.load(Ordering::Relaxed)
        }

        pub(crate) fn set_len(&self, len: u64) {
            self.len.store(len, Ordering::Relaxed);
        }

        pub(crate) fn locate<'a>(&self, frames: &'a Frames, start: u64, len: usize) -> Option<(&'a AtomicU64, usize)> {
            let offset = start as usize % self.page_size;
            let fits = start + len as u64 <= self.len() && offset + len <= self.page_size;
            let word = &frames.words.words[self.first + start as usize / self.page_size];
            fits.then_some((word, offset))
        }

        pub(crate) fn word<'a>(&self, frames: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            self.locate(frames, page * self.page_size as u64, 1).map(|(word, _)| word)
        }

        pub(crate) fn whole_page<'a>(&self, frames: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            self.locate(frames, page * self.page_size as u64, self.page_size).map(|(word, _)| word)
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
