//! Page maps by their numbers: for those who don't hold a map, and find out whether it was there all the time.
//!
//! A number is a map's while the map lives, and may be another's afterwards. Looking up by it is sound all the same (L1 of
//! `lookup`); what is read is the map's if `still` says that it lives, as it is asked with the page known to be in memory: the
//! word was seen before, and the same is seen after, so it was that all the time in between (`page_word`); a written page's version
//! likewise (V4 of `writing`).

use std::fmt;

use sync::Arc;

use crate::frames::Frames;
use crate::lookup::Lookup;

/// Which page map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapNumber(pub(crate) usize);

impl MapNumber {
    /// For keeping it in a word.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0 as u64
    }

    /// From [`bits`](Self::bits).
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits as usize)
    }
}

/// All page maps of some frames.
#[derive(Clone)]
pub struct PageMaps {
    first: Lookup,
    count: usize,
    frames: Arc<Frames>,
}

impl PageMaps {
    /// Those of `frames`.
    #[must_use]
    pub fn new(frames: Arc<Frames>) -> Self {
        Self { first: Lookup::new(&frames), count: frames.words.lengths.len(), frames }
    }

    /// Pages have 2^this bytes.
    #[inline]
    #[must_use]
    pub fn page_shift(&self) -> u32 {
        self.first.page_shift()
    }

    /// As [`PageMap::read_hot`](crate::PageMap::read_hot), of the map with that number, and of written pages as well; `still` says,
    /// once the bytes are copied, whether it is the map that is meant.
    #[inline(always)]
    pub fn read_hot(
        &self,
        MapNumber(number): MapNumber,
        start: u64,
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> bool {
        if number >= self.count {
            return false;
        }
        match self.first.of_smallest_pages() {
            // SAFETY: checked.
            Some(first) => unsafe { first.of_map(number) }.read_hot_or_written(&self.frames, start, into, still),
            None => self.read_hot_of_any_size(number, start, into, still),
        }
    }

    fn read_hot_of_any_size(&self, number: usize, start: u64, into: &mut [u8], still: impl FnOnce() -> bool) -> bool {
        // SAFETY: checked.
        unsafe { self.first.of_map(number) }.read_hot_or_written(&self.frames, start, into, still)
    }
}

impl fmt::Debug for PageMaps {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("PageMaps").field("count", &self.count).finish_non_exhaustive()
    }
}
