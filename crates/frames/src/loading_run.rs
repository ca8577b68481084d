//! Loads that continue after the thread that began them has gone on.
//!
//! A [`Loading`] (a load that has begun) borrows from its map, and an [`OwnedFrame`] from its
//! `Frames`. Borrows cost a miss nothing, but a request may outlive them: the caller may return, or
//! its future may be dropped, while the device still writes to the frame. Such a request uses a
//! run. The run owns the page words in *loading* and the frames of neighbouring pages, and keeps
//! the map alive.
//!
//! The thread that ends the run takes the pages out one by one, each as a `Loading` and an
//! `OwnedFrame` again. So a page of a run is published in the same way as any other page.
//!
//! - R1. The run owns a page's word and frame from [`push`](LoadingRun::push) to
//!   [`next`](LoadingRun::next). A run that is dropped abandons its loads and frees its frames.
//! - R2. The run belongs to the request (as its [`StableBytes`]) until the device has finished
//!   writing to the frames. So no page leaves the run before then.

use std::fmt;

use sync::atomic::{Ordering, fence};
use sync::{Arc, SharedBytes, StableBytes};

use crate::frame_id::FrameId;
use crate::frames::OwnedFrame;
use crate::page_map::{Loading, PageMap};
use crate::page_word::PageWord;

/// Neighbouring pages of one object that are being loaded, with their frames.
pub struct LoadingRun {
    map: PageMap,
    /// The page in `pages[0]`.
    first: u64,
    pages: Vec<RunPage>,
    /// The number of `pages` that were taken out of the run.
    ended: usize,
}

#[derive(Clone, Copy)]
struct RunPage {
    frame: FrameId,
    before: PageWord,
}

impl LoadingRun {
    /// Creates an empty run of pages of `map`.
    #[must_use]
    pub fn new(map: &PageMap) -> Self {
        Self { map: map.clone(), first: 0, pages: Vec::new(), ended: 0 }
    }

    /// Adds the page that follows the last one, and the frame that the page is to be read into.
    ///
    /// # Panics
    /// If the page isn't the next one, if the page or the frame belongs to another map, or if the
    /// frame has held a page since it was allocated.
    pub fn push(&mut self, loading: Loading<'_>, frame: OwnedFrame<'_>) {
        assert!(Arc::ptr_eq(&loading.map.shared, &self.map.shared), "the page is another map's");
        let page = self.map.page_of(loading.index);
        if self.pages.is_empty() {
            self.first = page;
        }
        assert_eq!(page, self.first + self.pages.len() as u64, "the page isn't the next");
        let before = loading.before;
        let frame = frame.give_up(&self.map.shared.frames);
        loading.give_up();
        self.pages.push(RunPage { frame, before });
    }

    /// Returns the pages that are still in the run.
    #[must_use]
    pub fn pages(&self) -> std::ops::Range<u64> {
        self.first + self.ended as u64..self.first + self.pages.len() as u64
    }

    /// Returns the number of pages that are still in the run.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pages.len() - self.ended
    }

    /// Returns whether no page is still in the run.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Takes the first page out of the run. The page's waiters wait until the returned values are
    /// published or dropped.
    #[expect(clippy::should_implement_trait, reason = "what it lends borrows from the run")]
    pub fn next(&mut self) -> Option<(Loading<'_>, OwnedFrame<'_>)> {
        let page = *self.pages.get(self.ended)?;
        let (index, _) = self.map.word(self.first + self.ended as u64).expect("a page in *loading* has a word");
        self.ended += 1;
        let loading = Loading { map: &self.map, index, before: page.before, ended: false };
        Some((loading, OwnedFrame::unused(&self.map.shared.frames, page.frame)))
    }
}

// SAFETY: a frame stays in its place while its `Frames` lives, and the run's map keeps the `Frames`
// alive. No other thread writes the bytes of the frames, because the run owns each of its frames
// (R1). The set of frames changes only by `&mut self`.
unsafe impl StableBytes for LoadingRun {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        // Release, as in `OwnedFrame::fill`: a reader that copies one of the bytes that the device
        // will write sees that the frame's last stay is over.
        fence(Ordering::Release);
        for page in &self.pages[self.ended..] {
            f(self.map.shared.frames.bytes(page.frame));
        }
    }
}

impl Drop for LoadingRun {
    fn drop(&mut self) {
        while self.next().is_some() {}
    }
}

impl fmt::Debug for LoadingRun {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("LoadingRun").field("pages", &self.pages()).finish_non_exhaustive()
    }
}
