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
    /// For `pages` pages, and no bytes as yet.
    pub(crate) fn new(frames: Arc<Frames>, pages: u64) -> Result<Self, ReserveError> {
        let range = frames.words.allocate(pages)?;
        // The number of pages fits: `allocate` found that many words.
        Ok(Self { first: range.start, reserved: range.len(), pages: pages as usize, frames })
    }

    pub(crate) fn number(&self) -> MapNumber {
        MapNumber(self.first >> MAP_SHIFT)
    }

    pub(crate) fn length(&self) -> &Length {
        &self.frames.words.lengths[self.number().0]
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
