//! The two addresses that a hit needs, at hand: where the map's words start, and where the arena does.
//!
//! - L1. Both regions stay where they are while the `Frames` lives, which the map that has the lookup keeps alive.
//! - L2. A resident word names a frame of the arena: `publish` took the number from an owned frame.

use sync::atomic::AtomicU64;

use crate::frame_table::FrameId;
use crate::frames::Frames;

#[cfg(not(pagefold_loom))]
pub(crate) use real::Lookup;

#[cfg(pagefold_loom)]
pub(crate) use model::Lookup;

#[cfg(not(pagefold_loom))]
mod real {
    use super::{AtomicU64, FrameId, Frames};
    use core::ptr::NonNull;
    use sync::SharedBytes;

    /// Where things are.
    #[derive(Debug)]
    pub(crate) struct Lookup {
        words: NonNull<AtomicU64>,
        pages: usize,
        arena: NonNull<AtomicU64>,
        page_shift: u32,
    }

    // SAFETY: the pointers are to atomics that live as long as the map (L1), and are only ever made `&` again.
    unsafe impl Send for Lookup {}
    // SAFETY: as above.
    unsafe impl Sync for Lookup {}

    impl Lookup {
        /// For the map of `pages` words from `first` on.
        pub(crate) fn new(frames: &Frames, first: usize, pages: usize) -> Self {
            let words = &frames.words.words[first..first + pages];
            Self {
                words: NonNull::from(words).cast(),
                pages,
                arena: NonNull::from(frames.arena()).cast(),
                page_shift: frames.page_size().trailing_zeros(),
            }
        }

        /// Whether `len` bytes from `offset` on lie within a page.
        #[inline]
        pub(crate) fn within_page(&self, offset: usize, len: usize) -> bool {
            offset >> self.page_shift == 0 && offset.wrapping_add(len) <= 1 << self.page_shift
        }

        /// The word of `page`; `None` past the end.
        #[inline]
        pub(crate) fn word<'a>(&'a self, _: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            // SAFETY: within the map's words, which live long enough (L1).
            (page < self.pages as u64).then(|| unsafe { self.words.add(page as usize).as_ref() })
        }

        /// Copies from a frame that a resident word named. The range is within a page.
        #[inline]
        pub(crate) fn copy(&self, _: &Frames, frame: FrameId, offset: usize, into: &mut [u8]) {
            let shift = self.page_shift - size_of::<AtomicU64>().trailing_zeros();
            // SAFETY: the frame is one of the arena's (L2), whose memory lives long enough (L1), and the range is
            // within it.
            unsafe {
                let start = self.arena.add(frame.index() << shift);
                let frame = SharedBytes::new(core::slice::from_raw_parts(start.as_ptr(), 1 << shift));
                frame.copy_to_unchecked(offset, into);
            }
        }
    }
}

/// A model looks things up where they are.
#[cfg(pagefold_loom)]
mod model {
    use super::{AtomicU64, FrameId, Frames};

    #[derive(Debug)]
    pub(crate) struct Lookup {
        first: usize,
        pages: usize,
        page_size: usize,
    }

    impl Lookup {
        pub(crate) fn new(frames: &Frames, first: usize, pages: usize) -> Self {
            Self { first, pages, page_size: frames.page_size() }
        }

        pub(crate) fn within_page(&self, offset: usize, len: usize) -> bool {
            offset < self.page_size && offset + len <= self.page_size
        }

        pub(crate) fn word<'a>(&self, frames: &'a Frames, page: u64) -> Option<&'a AtomicU64> {
            (page < self.pages as u64).then(|| &frames.words.words[self.first + page as usize])
        }

        pub(crate) fn copy(&self, frames: &Frames, frame: FrameId, offset: usize, into: &mut [u8]) {
            frames.bytes(frame).copy_to(offset, into);
        }
    }
}
