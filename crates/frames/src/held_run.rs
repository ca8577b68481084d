//! Pages that are being written to their file while the thread that began the write goes on.
//!
//! A [`HeldPage`] borrows from its map. A run owns its pages, and the map behind them, so that the
//! thread that held them can go on while a device reads them. They are neighbouring pages, for one
//! request.
//!
//! - H1. A page is the run's from [`new`](HeldRun::new) or [`push`](HeldRun::push) to
//!   [`end`](HeldRun::end). It is held all the time (S2 of `write_state`), so it stays in its
//!   frame. Pages that are still in a run when it is dropped become dirty.
//! - H2. All device reads finish before a page is ended, because the request that owns the run (as
//!   [`StableBytes`]) keeps it until then.

use std::fmt;
use std::ops::Range;

use sync::{SharedBytes, StableBytes};

use crate::frame_id::FrameId;
use crate::page_map::PageMap;
use crate::write_state::Unclean;
use crate::writeback::HeldPage;

/// Neighbouring pages of one object, held.
pub struct HeldRun {
    map: PageMap,
    /// Page of `frames[0]`.
    first: u64,
    frames: Vec<FrameId>,
    /// So many of them aren't held any more.
    ended: usize,
}

impl HeldRun {
    /// A run that starts with a page of `map`.
    ///
    /// # Panics
    /// If it is another map's.
    #[must_use]
    pub fn new(map: &PageMap, held: HeldPage<'_>) -> Self {
        let first = map.page_of_held(&held);
        Self { map: map.clone(), first, frames: vec![held.give_up()], ended: 0 }
    }

    /// Adds the page that follows the last one.
    ///
    /// # Panics
    /// If it is another one, or another map's.
    pub fn push(&mut self, held: HeldPage<'_>) {
        let page = self.map.page_of_held(&held);
        assert_eq!(page, self.pages().end, "the page isn't the next");
        self.frames.push(held.give_up());
    }

    /// The pages that are still held.
    #[must_use]
    pub fn pages(&self) -> Range<u64> {
        self.first + self.ended as u64..self.first + self.frames.len() as u64
    }

    /// How many those are.
    #[must_use]
    pub fn len(&self) -> usize {
        self.frames.len() - self.ended
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The bytes of the pages, for a device to read. They may change meanwhile; then the page will
    /// be dirty again.
    pub fn bytes(&self) -> impl Iterator<Item = SharedBytes<'_>> {
        self.frames[self.ended..].iter().map(|frame| self.map.frames().bytes(*frame))
    }

    /// Whether a page of the run was written to while it was held, or is being written to. A hint:
    /// a write that begins or ends just now may be missed.
    #[must_use]
    pub fn was_changed(&self) -> bool {
        let frames = self.map.frames();
        // Frozen first: a writer is in the write state before it lets go of the frame.
        let changed = |&frame: &FrameId| frames.table.is_frozen(frame) || frames.write_state(frame).is_rewritten();
        self.frames[self.ended..].iter().any(changed)
    }

    /// Lets go of the first `pages` pages, or all: each is as `state` unless it was written to
    /// meanwhile.
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

// SAFETY: frames stay where they are while their `Frames` lives, which the map keeps alive; a page
// that is held stays in its frame (H1), and which ones there are changes by `&mut self` alone.
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
