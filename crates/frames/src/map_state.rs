//! What all clones of a page map share: its part of the page words, and the object's length.

use sync::atomic::{AtomicU64, Ordering};
use sync::{Arc, CachePadded};

use crate::error::ReserveError;
use crate::frames::Frames;

/// What all clones of a map share.
#[derive(Debug)]
pub(crate) struct MapState {
    pub(crate) frames: Arc<Frames>,
    pub(crate) first: usize,
    reserved: usize,
    pub(crate) pages: usize,
    /// On a line of its own: hits read it, and clones of the map are counted beside.
    pub(crate) len: CachePadded<Length>,
}

/// How long the object is: never more than the map has pages for (L3 of `lookup`).
///
/// Release and Acquire, for both numbers: who sees an object that has grown also sees that the page at its old end was
/// taken out of memory.
#[derive(Debug)]
pub(crate) struct Length {
    bytes: AtomicU64,
    /// Its whole pages: all that a hit looks at. The last page, if it isn't whole, is read in a slower way.
    pub(crate) whole_pages: AtomicU64,
}

impl Length {
    pub(crate) fn bytes(&self) -> u64 {
        self.bytes.load(Ordering::Acquire)
    }
}

impl MapState {
    /// For `pages` pages, and no bytes as yet.
    pub(crate) fn new(frames: Arc<Frames>, pages: u64) -> Result<Self, ReserveError> {
        let range = frames.words.allocate(pages)?;
        let len = CachePadded::new(Length { bytes: AtomicU64::new(0), whole_pages: AtomicU64::new(0) });
        // The number of pages fits: `allocate` found that many words.
        Ok(Self { first: range.start, reserved: range.len(), pages: pages as usize, len, frames })
    }

    /// Sets the length in bytes, or as much of it as there are pages for, and says what it is now.
    pub(crate) fn set_len(&self, len: u64) -> u64 {
        let page_size = self.frames.page_size() as u64;
        let len = len.min((self.pages as u64).saturating_mul(page_size));
        self.len.bytes.store(len, Ordering::Release);
        self.len.whole_pages.store(len / page_size, Ordering::Release);
        len
    }
}

impl Drop for MapState {
    fn drop(&mut self) {
        if self.frames.forked() {
            return; // A child has none of the map, and perhaps a lock that nobody will ever release.
        }
        self.frames.words.release(self.first..self.first + self.reserved, &self.frames.budget);
    }
}
