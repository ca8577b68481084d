//! Page maps by their numbers: for a thread that doesn't hold a map, and finds out whether it was
//! there all the time.
//!
//! A number is a map's while the map lives, and may be another's afterwards. Looking up by it is
//! sound all the same (L1 of `lookup`); what is read is the map's if `still` says that it lives, as
//! it is asked with the page known to be in memory: the word was seen before, and the same is seen
//! after, so it was that all the time in between (`page_word`); a written page's version likewise
//! (V4 of `writing`).
//!
//! Any page number, modulo the words of the shortest map, names a word that any map has. So the
//! pages of a map that is known to be at least as long are found without a look at a length
//! ([`PageMaps::read_hot_shortest`], [`PageMaps::begin_write`]). A frame that is frozen by such a
//! word is that page's, whichever map's it is: the caller finds out while it has it, as above.

use std::fmt;

use sync::Arc;
use sync::atomic::AtomicU64;

use crate::frames::Frames;
use crate::lookup::Lookup;
#[cfg(not(pagefold_loom))]
use crate::map_number::NUMBER_SHIFT;
use crate::map_number::{MapInWord, MapNumber};
use crate::page_words::MAP_SHIFT;
use crate::tables::Table;
#[cfg(not(pagefold_loom))]
use crate::tables::TableLookup;
use crate::writing::{BeginWrite, Writer};

/// All page maps of some frames.
#[derive(Clone)]
pub struct PageMaps {
    first: Lookup,
    count: usize,
    #[cfg(not(pagefold_loom))]
    tables: TableLookup,
    frames: Arc<Frames>,
}

impl PageMaps {
    /// Those of `frames`.
    #[must_use]
    pub fn new(frames: Arc<Frames>) -> Self {
        Self {
            first: Lookup::new(&frames),
            count: frames.words.lengths.len(),
            #[cfg(not(pagefold_loom))]
            tables: frames.tables().lookup(),
            frames,
        }
    }

    /// As [`Tables::word`](crate::Tables::word).
    #[inline(always)]
    #[must_use]
    pub fn table_word(&self, table: Table, at: u64) -> &AtomicU64 {
        #[cfg(not(pagefold_loom))]
        // SAFETY: `frames` keeps them.
        return unsafe { self.tables.word(table, at) };
        #[cfg(pagefold_loom)]
        return self.frames.tables().word(table, at);
    }

    /// As [`Tables::word_of_map`](crate::Tables::word_of_map).
    #[inline(always)]
    #[must_use]
    pub fn map_table_word(&self, map: MapInWord, at: u64) -> &AtomicU64 {
        #[cfg(not(pagefold_loom))]
        // SAFETY: as above.
        return unsafe { self.tables.word_of_map(map, at) };
        #[cfg(pagefold_loom)]
        return self.frames.tables().word_of_map(map.number(), at);
    }

    /// The word of a page, counted modulo those of the shortest map, of a map that is at least as
    /// long, and its number among all.
    #[inline(always)]
    fn page_word(&self, map: MapInWord, page: u64) -> (&AtomicU64, usize) {
        let page = page as usize & ((1 << MAP_SHIFT) - 1);
        #[cfg(not(pagefold_loom))]
        {
            let first = self.tables.place_of(map) << (MAP_SHIFT - NUMBER_SHIFT);
            // SAFETY: it is below the count of maps, each of which has as many words
            // (`PageWords::lengths`).
            (unsafe { self.first.word_at(&self.frames, first + page) }, first + page)
        }
        #[cfg(pagefold_loom)]
        {
            let at = (map.number().0 << MAP_SHIFT) + page;
            (&self.frames.words.words[at], at)
        }
    }

    /// Pages have 2^this bytes.
    #[inline]
    #[must_use]
    pub fn page_shift(&self) -> u32 {
        self.first.page_shift()
    }

    /// As [`PageMap::read_hot`](crate::PageMap::read_hot), of the map with that number, and of
    /// written pages as well; `still` says, once the bytes are copied, whether it is the map that
    /// is meant.
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

    /// The same of a map that is as long as the shortest, and whose object is, too: `start` counts
    /// modulo that, and no length is looked at.
    #[inline(always)]
    pub fn read_hot_shortest(&self, map: MapInWord, start: u64, into: &mut [u8], still: impl FnOnce() -> bool) -> bool {
        match self.first.of_smallest_pages() {
            Some(first) => self.read_hot_shortest_by(first, map, start, into, still),
            None => self.read_hot_shortest_of_any_size(map, start, into, still),
        }
    }

    #[inline(never)]
    fn read_hot_shortest_of_any_size(
        &self,
        map: MapInWord,
        start: u64,
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> bool {
        self.read_hot_shortest_by(self.first, map, start, into, still)
    }

    #[inline(always)]
    fn read_hot_shortest_by(
        &self,
        lookup: Lookup,
        map: MapInWord,
        start: u64,
        into: &mut [u8],
        still: impl FnOnce() -> bool,
    ) -> bool {
        let Some(offset) = lookup.offset_in_page(start, into.len()) else { return false };
        let (word, _) = self.page_word(map, start >> lookup.page_shift());
        lookup.read_word_hot_or_written(&self.frames, (word, offset), into, still)
    }

    /// As [`PageMap::begin_write`](crate::PageMap::begin_write), of a page counted as in
    /// [`read_hot_shortest`](Self::read_hot_shortest). The page is the meant map's if that is found
    /// to live while the page is held.
    #[inline(always)]
    #[must_use]
    pub fn begin_write(&self, map: MapInWord, page: u64) -> BeginWrite<'_> {
        let (word, index) = self.page_word(map, page);
        self.frames.begin_write_word(index, word)
    }

    /// As [`PageMap::writer`](crate::PageMap::writer), of a page counted so.
    #[inline]
    #[must_use]
    pub fn writer(&self, map: MapInWord, page: u64) -> Writer<'_> {
        let (word, index) = self.page_word(map, page);
        Writer::of_word(&self.frames, index, word)
    }

    #[inline(never)]
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
