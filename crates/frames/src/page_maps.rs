//! Access to page maps by their numbers, for a thread that doesn't hold the map. The thread checks
//! that the map existed during the whole access.
//!
//! A number identifies a map while the map lives. Afterwards another map may get the same number. A
//! lookup by an outdated number is memory-safe (L1 of `lookup`), but could return bytes of the
//! other map. So the caller passes a function `still`, which returns whether the intended map
//! lives.
//!
//! A lookup loads the page's word, copies the bytes, calls `still`, and loads the word again. A
//! resident word is never reused. So if both loads return the same word, the page was in memory,
//! with the copied bytes, when `still` was called (`page_word`). If `still` also returned true, the
//! bytes belong to the intended map. For a written page, the lookup compares the page's version in
//! the same way (V4 of `writing`).
//!
//! [`PageMaps::read_hot_shortest`] and [`PageMaps::begin_write`] don't check a length. They take
//! the page number modulo the number of words of the shortest map. Every map has at least that many
//! words, so the result always selects a word of the map.
//!
//! A writer freezes the frame that the selected word names. While the frame is frozen, it holds the
//! page of that word, but the word may belong to another map by now. So the caller checks, while it
//! has the frame frozen, that the intended map lives.

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

/// All page maps of a [`Frames`].
#[derive(Clone)]
pub struct PageMaps {
    first: Lookup,
    count: usize,
    #[cfg(not(pagefold_loom))]
    tables: TableLookup,
    frames: Arc<Frames>,
}

impl PageMaps {
    /// Creates the access to the page maps of `frames`.
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

    /// Returns a word of a table. See also [`Tables::word`](crate::Tables::word).
    #[inline(always)]
    #[must_use]
    pub fn table_word(&self, table: Table, at: u64) -> &AtomicU64 {
        #[cfg(not(pagefold_loom))]
        // SAFETY: `frames` keeps the tables alive.
        return unsafe { self.tables.word(table, at) };
        #[cfg(pagefold_loom)]
        return self.frames.tables().word(table, at);
    }

    /// Returns a word of a page map's table. See also
    /// [`Tables::word_of_map`](crate::Tables::word_of_map).
    #[inline(always)]
    #[must_use]
    pub fn map_table_word(&self, map: MapInWord, at: u64) -> &AtomicU64 {
        #[cfg(not(pagefold_loom))]
        // SAFETY: as above.
        return unsafe { self.tables.word_of_map(map, at) };
        #[cfg(pagefold_loom)]
        return self.frames.tables().word_of_map(map.number(), at);
    }

    /// Returns the word of a page and the word's index among all words. `page` is taken modulo the
    /// number of words of the shortest map.
    #[inline(always)]
    fn page_word(&self, map: MapInWord, page: u64) -> (&AtomicU64, usize) {
        let page = page as usize & ((1 << MAP_SHIFT) - 1);
        #[cfg(not(pagefold_loom))]
        {
            let first = self.tables.place_of(map) << (MAP_SHIFT - NUMBER_SHIFT);
            // SAFETY: `place_of` returns a number below the count of maps, and each map has that
            // many words (`PageWords::lengths`).
            (unsafe { self.first.word_at(&self.frames, first + page) }, first + page)
        }
        #[cfg(pagefold_loom)]
        {
            let at = (map.number().0 << MAP_SHIFT) + page;
            (&self.frames.words.words[at], at)
        }
    }

    /// Returns log2 of the page size.
    #[inline]
    #[must_use]
    pub fn page_shift(&self) -> u32 {
        self.first.page_shift()
    }

    /// Reads from the map with this number like [`PageMap::read_hot`](crate::PageMap::read_hot),
    /// but reads written pages as well. Calls `still` after the copy; `still` must return whether
    /// the number still belongs to the map that the caller means.
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

    /// Reads like [`read_hot`](Self::read_hot), but doesn't check a length. The page number is
    /// taken modulo 2^`MAP_SHIFT`, the smallest number of page words that a map can have. The
    /// caller must ensure that the intended object has at least that many pages; otherwise this
    /// could return bytes past the object's end.
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

    /// Begins to write like [`PageMap::begin_write`](crate::PageMap::begin_write). `page` is taken
    /// modulo the number of words of the shortest map, as in
    /// [`read_hot_shortest`](Self::read_hot_shortest). The page may belong to a later map with the
    /// same number. So once the caller has the page for writing, it must check that the intended
    /// map lives.
    #[inline(always)]
    #[must_use]
    pub fn begin_write(&self, map: MapInWord, page: u64) -> BeginWrite<'_> {
        let (word, index) = self.page_word(map, page);
        self.frames.begin_write_word(index, word)
    }

    /// Creates a writer like [`PageMap::writer`](crate::PageMap::writer). `page` is taken modulo
    /// the number of words of the shortest map, as in
    /// [`read_hot_shortest`](Self::read_hot_shortest).
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
