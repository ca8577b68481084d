//! Pages that a device writes to their file while the thread that began the write goes on.
//!
//! A *held* page is one that a flusher is writing to the file. A [`HeldPage`] borrows from its map,
//! so it can't outlive the call that holds the page. A [`HeldRun`] owns its pages and keeps the map
//! alive, so the thread that began the write can go on while the device still reads the pages. The
//! pages of a run are neighbours in the file, and are written by one request.
//!
//! - H1. A page belongs to the run from [`new`](HeldRun::new) or [`push`](HeldRun::push) to
//!   [`end`](HeldRun::end). The run holds the page all this time (S2 of `write_state`), so the page
//!   stays in its frame. If the run is dropped, the pages that are still in it become dirty.
//! - H2. No page is released before the device has finished reading: until then the run belongs to
//!   the request (as its [`StableBytes`]).

use std::fmt;
use std::ops::Range;

use sync::{SharedBytes, StableBytes};

use crate::frame_id::FrameId;
use crate::page_map::PageMap;
use crate::write_state::Unclean;
use crate::writeback::HeldPage;

/// Neighbouring pages of one object, all of them held.
pub struct HeldRun {
    map: PageMap,
    /// The page in `frames[0]`.
    first: u64,
    frames: Vec<FrameId>,
    /// The number of `frames` that aren't held any more.
    ended: usize,
}

impl HeldRun {
    /// Creates a run that starts with a page of `map`.
    ///
    /// # Panics
    /// If the page is another map's.
    #[must_use]
    pub fn new(map: &PageMap, held: HeldPage<'_>) -> Self {
        let first = map.page_of_held(&held);
        Self { map: map.clone(), first, frames: vec![held.give_up()], ended: 0 }
    }

    /// Adds the page that follows the last one.
    ///
    /// # Panics
    /// If the page isn't the next one, or is another map's.
    pub fn push(&mut self, held: HeldPage<'_>) {
        let page = self.map.page_of_held(&held);
        assert_eq!(page, self.pages().end, "the page isn't the next");
        self.frames.push(held.give_up());
    }

    /// Returns the pages that are still held.
    #[must_use]
    pub fn pages(&self) -> Range<u64> {
        self.first + self.ended as u64..self.first + self.frames.len() as u64
    }

    /// Returns the number of pages that are still held.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len() - self.ended
    }

    /// Returns whether no page is still held.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the bytes of the pages, for a device to read. Writers may change a page meanwhile;
    /// this page is then dirty again.
    pub fn bytes(&self) -> impl Iterator<Item = SharedBytes<'_>> {
        self.frames[self.ended..].iter().map(|frame| self.map.frames().bytes(*frame))
    }

    /// Returns whether a page of the run was written to since it was held, or is being written to.
    /// A hint: it may miss a write that begins or ends at this moment.
    #[must_use]
    pub fn was_changed(&self) -> bool {
        let frames = self.map.frames();
        // Checks for a frozen frame first, because a writer changes the write state before it
        // unfreezes the frame. So if a writer has just unfrozen the frame, the second check sees
        // its change.
        let changed = |&frame: &FrameId| frames.table.is_frozen(frame) || frames.write_state(frame).is_rewritten();
        self.frames[self.ended..].iter().any(changed)
    }

    /// Releases the first `pages` pages, or all if there are fewer. Each becomes `state`, or dirty
    /// if it was written to meanwhile.
    pub fn end(&mut self, pages: usize, state: Unclean) {
        let ending = self.ended..self.frames.len().min(self.ended.saturating_add(pages));
        self.ended = ending.end;
        for frame in &self.frames[ending] {
            self.map.frames().write_state(*frame).end_hold(Some(state));
        }
    }
}

impl PageMap {
    fn page_of_held(&self, held: &HeldPage<'_>) -> u64 {
        let page = self.page_of(held.index);
        let is_own = self.word(page).is_some_and(|(index, _)| index == held.index);
        assert!(is_own && std::ptr::eq(&raw const **self.frames(), held.frames), "the page is another map's");
        page
    }
}

// SAFETY: frames stay where they are while their `Frames` lives, and the run's map keeps the
// `Frames` alive. A held page stays in its frame (H1). Only `&mut self` changes the set of frames.
unsafe impl StableBytes for HeldRun {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        self.bytes().for_each(f);
    }
}

impl Drop for HeldRun {
    fn drop(&mut self) {
        self.end(usize::MAX, Unclean::Dirty);
    }
}

impl fmt::Debug for HeldRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldRun").field("pages", &self.pages()).finish_non_exhaustive()
    }
}
