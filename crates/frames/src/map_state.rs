//! What all clones of a page map share: its part of the page words, and the object's length.

use sync::Arc;

use crate::error::ReserveError;
use crate::frames::Frames;
use crate::length::Length;
use crate::page_maps::MapNumber;
use crate::page_words::MAP_SHIFT;

/// What all clones of a map share.
#[derive(Debug)]
pub(crate) struct MapState {
    pub(crate) frames: Arc<Frames>,
    pub(crate) first: usize,
    reserved: usize,
    pub(crate) pages: usize,
}

impl MapState {
    /// For `pages` pages, for up to `roomy` if there is plenty of words, and no bytes as yet.
    pub(crate) fn new(frames: Arc<Frames>, pages: u64, roomy: u64) -> Result<Self, ReserveError> {
        let range = frames.words.allocate(pages, roomy)?;
        // The number of pages fits: `allocate` found that many words.
        let pages = roomy.max(pages).min(range.len() as u64) as usize;
        Ok(Self { first: range.start, reserved: range.len(), pages, frames })
    }

    pub(crate) fn number(&self) -> MapNumber {
        MapNumber(self.first >> MAP_SHIFT)
    }

    pub(crate) fn length(&self) -> &Length {
        &self.frames.words.lengths[self.number().0]
    }

    /// Bytes of memory that the length keeps.
    pub(crate) fn length_bytes(&self) -> u64 {
        let lengths = (self.reserved >> MAP_SHIFT) * size_of::<Length>();
        lengths.min(crate::system_page_size()) as u64
    }

    /// Sets the length in bytes, or as much of it as there are pages for, and says what it is now.
    pub(crate) fn set_len(&self, len: u64) -> u64 {
        let page_size = self.frames.page_size();
        let len = len.min((self.pages as u64).saturating_mul(page_size as u64));
        self.length().set(len, page_size);
        len
    }
}

impl Drop for MapState {
    fn drop(&mut self) {
        if self.frames.forked() {
            return; // A child has none of the map, and perhaps a lock that nobody will ever release.
        }
        self.set_len(0);
        self.frames.words.release(self.first..self.first + self.reserved, &self.frames.budget);
    }
}
