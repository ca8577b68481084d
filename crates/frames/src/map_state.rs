//! The state that all clones of a page map share: its page words and the object's length.

use std::ops::Range;

use sync::Arc;

use crate::error::ReserveError;
use crate::far_words::{FarWords, NoWords};
use crate::frames::Frames;
use crate::length::Length;
use crate::map_number::MapNumber;
use crate::page_words::MAP_SHIFT;

/// The maximum length of an object: files count their bytes in an `off_t`.
const BYTES_MAX: u64 = i64::MAX as u64;

/// The state that all clones of a map share.
#[derive(Debug)]
pub(crate) struct MapState {
    pub(crate) frames: Arc<Frames>,
    pub(crate) first: usize,
    /// The number of near pages: those whose words are in the run that starts at `first`.
    pub(crate) near: usize,
    /// The length of this run, in units of the shortest map (2^`MAP_SHIFT` words).
    reserved: u32,
    /// Whether far pages get words on demand.
    grows: bool,
    far: FarWords,
}

impl MapState {
    /// Creates the state for `pages` pages; the length is not set yet.
    pub(crate) fn new(frames: Arc<Frames>, pages: u64) -> Result<Self, ReserveError> {
        let range = frames.words.allocate(pages, pages)?;
        // The number of pages fits into `usize`: `allocate` found as many words.
        Ok(Self::of_run(frames, range, pages as usize, false))
    }

    /// Creates the state for an object that may grow to the maximum length. The map starts with one
    /// run of words, which covers its first pages (the near pages). The run has room for `roomy`
    /// pages if plenty of words are free, and for `pages` pages otherwise. It covers fewer than
    /// `pages` pages if no free run is long enough, or if too few words would stay free (see
    /// `segments`).
    pub(crate) fn growing(frames: Arc<Frames>, pages: u64, roomy: u64) -> Result<Self, ReserveError> {
        let mut wanted = pages;
        loop {
            match frames.words.allocate(wanted, roomy) {
                Ok(range) => {
                    let near = range.len();
                    return Ok(Self::of_run(frames, range, near, true));
                }
                Err(refused) if wanted <= 1 => return Err(refused),
                Err(_) => wanted /= 2,
            }
        }
    }

    fn of_run(frames: Arc<Frames>, range: Range<usize>, near: usize, grows: bool) -> Self {
        let reserved = (range.len() >> MAP_SHIFT) as u32;
        let state = Self { first: range.start, near, reserved, grows, far: FarWords::default(), frames };
        state.length().set_near_pages(near as u64);
        state
    }

    pub(crate) fn number(&self) -> MapNumber {
        MapNumber(self.first >> MAP_SHIFT)
    }

    pub(crate) fn length(&self) -> &Length {
        &self.frames.words.lengths[self.number().0]
    }

    /// Returns the maximum number of pages of the object.
    pub(crate) fn pages(&self) -> u64 {
        if self.grows { BYTES_MAX / self.frames.page_size() as u64 + 1 } else { self.near as u64 }
    }

    /// Returns the memory in bytes that the map takes in the array of all lengths: see
    /// [`PageMap::length_bytes`](crate::PageMap::length_bytes).
    pub(crate) fn length_bytes(&self) -> u64 {
        let lengths = self.reserved as usize * size_of::<Length>();
        lengths.min(crate::system_page_size()) as u64
    }

    /// Sets the length in bytes, limited to the pages that the map may have. Returns the length as
    /// set.
    pub(crate) fn set_len(&self, len: u64) -> u64 {
        let page_size = self.frames.page_size();
        let len = len.min(self.pages().saturating_mul(page_size as u64)).min(BYTES_MAX);
        self.length().set(len, page_size);
        len
    }

    /// Returns the index of the word of a far page, if it has one.
    #[cold]
    pub(crate) fn far_word(&self, page: u64) -> Option<usize> {
        let (part, within) = self.part_of(page).ok()?;
        Some(self.word_in(self.far.find(self.frames.tables(), part)?, within))
    }

    /// Returns the index of the word of a far page; allocates a word if it has none.
    ///
    /// # Errors
    /// [`NoWords`].
    #[cold]
    pub(crate) fn make_far_word(&self, page: u64) -> Result<usize, NoWords> {
        let (part, within) = self.part_of(page)?;
        Ok(self.word_in(self.far.make(&self.frames, part)?, within))
    }

    /// Returns the part that contains a far page, and the page's number in the part.
    fn part_of(&self, page: u64) -> Result<(u64, usize), NoWords> {
        let shift = self.frames.words.segment_shift();
        let is_far = (self.near as u64..self.pages()).contains(&page); // FAR-3
        if is_far { Ok((page >> shift, page as usize & ((1 << shift) - 1))) } else { Err(NoWords::NoPlace) }
    }

    fn word_in(&self, segment: usize, within: usize) -> usize {
        (segment << self.frames.words.segment_shift()) + within
    }

    /// Returns the indexes of the words of the far pages among `pages`, part by part. May miss
    /// parts that get their words meanwhile.
    pub(crate) fn far_words(&self, pages: Range<u64>) -> impl Iterator<Item = Range<usize>> + '_ {
        let shift = self.frames.words.segment_shift();
        let pages = pages.start.max(self.near as u64)..pages.end;
        let mut from = pages.start >> shift;
        std::iter::from_fn(move || {
            let (part, segment) = self.far.next(self.frames.tables(), from)?;
            let (first, after) = (part << shift, (part + 1) << shift);
            let (start, end) = (pages.start.max(first), pages.end.min(after));
            from = part + 1;
            let word = |page: u64| self.word_in(segment, (page - first) as usize);
            (start < end).then(|| word(start)..word(end))
        })
    }
}

impl Drop for MapState {
    fn drop(&mut self) {
        if self.frames.forked() {
            return; // A child inherits none of the map's memory; its locks may stay locked.
        }
        self.set_len(0);
        self.far.take_down(&self.frames);
        let reserved = (self.reserved as usize) << MAP_SHIFT;
        self.frames.words.release(self.first..self.first + reserved, &self.frames.budget);
    }
}
