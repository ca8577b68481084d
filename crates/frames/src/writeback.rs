//! Writeback: brings the changes in written pages to their file.
//!
//! ```text
//!   hold(Dirty)  ─▶ in a run (`held_run`) the device reads the bytes ─▶ end: Unstable, or Dirty if that failed
//!   sync the file
//!   hold(Unstable) ─▶ settle: clean, and back to the fast path of reading; or end: Dirty if the sync failed
//! ```
//! Page words lie in the order of the file's pages. A word shows whether its page was written to
//! (`WRITTEN`), and each chunk of words counts its written pages (C3 of `chunks`). So writeback
//! needs no memory for a list of dirty pages: it searches the chunks whose count is above 0.
//!
//! For what other threads may do meanwhile, see `write_state`.

use sync::atomic::Ordering;

use crate::frame_id::FrameId;
use crate::frames::Frames;
use crate::page_map::PageMap;
use crate::page_word::PageWord;
use crate::write_state::{self, Unclean, WriteState};

/// The result of [`PageMap::hold`].
#[derive(Debug)]
pub enum Hold<'a> {
    /// The page is held, and stays in its frame until this is dropped.
    Held(HeldPage<'a>),
    /// The page isn't in memory, or isn't in the expected state.
    Other,
    /// Another thread holds the page; the caller may retry. If only one thread writes the object
    /// back, such a hold lasts only a moment.
    Busy,
}

/// A page that is being written to its file. If it is dropped without an end, it becomes dirty.
#[derive(Debug)]
pub struct HeldPage<'a> {
    pub(crate) frames: &'a Frames,
    frame: FrameId,
    pub(crate) index: usize,
    ended: bool,
}

impl PageMap {
    /// Returns the first page of the range that may differ from its file, or `None`.
    #[must_use]
    pub fn next_written(&self, range: std::ops::Range<u64>) -> Option<u64> {
        let words = &self.shared.frames.words;
        // Relaxed: if the caller must see a certain write, other synchronization has already made
        // the write visible to it.
        let is_written = |index: &usize| PageWord::from_bits(words.words[*index].load(Ordering::Relaxed)).is_written();
        let mut chunks = self.words_of(range).flat_map(|part| words.with_written(part));
        chunks.find_map(|mut chunk| chunk.find(is_written)).map(|index| self.page_of(index))
    }

    /// Holds a page in its frame if the page is in the state `wanted`.
    ///
    /// A clean page isn't held. If the page was in use when it became clean, `WRITTEN` couldn't be
    /// removed from its word, and its readers still take the slower path. This call then tries
    /// again to return the readers to the fast path.
    #[must_use]
    pub fn hold(&self, page: u64, wanted: Unclean) -> Hold<'_> {
        let Some((index, word)) = self.word(page) else { return Hold::Other };
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        let Some(frame) = before.frame().filter(|_| before.is_written()) else { return Hold::Other };
        let state = self.shared.frames.write_state(frame);
        match state.hold(wanted) {
            write_state::Hold::Held => {}
            write_state::Hold::Other => {
                if state.is_clean() {
                    self.shared.frames.return_to_short_way(frame, index);
                }
                return Hold::Other;
            }
            write_state::Hold::Busy => return Hold::Busy,
        }
        // S4: checks that the frame still has this page. A page is always `CLEAN` when it leaves
        // its frame. So if the frame has gone to another page, the state that `hold` found was set
        // for the other page, after this page's word had changed. `hold` is Acquire and pairs with
        // the Release that set the state; therefore a Relaxed load sees that the word has changed.
        if word.load(Ordering::Relaxed) != before.bits() {
            state.end_hold(Some(wanted));
            return Hold::Other;
        }
        Hold::Held(HeldPage { frames: &self.shared.frames, frame, index, ended: false })
    }
}

impl<'a> HeldPage<'a> {
    /// Returns the group that is charged for the page.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.frames.group(self.frame)
    }

    /// Releases the page. It becomes `state`, or dirty if it was written to meanwhile.
    pub fn end(mut self, state: Unclean) {
        // Transition: write state, held → unstable or dirty.
        self.ended = true;
        self.state().end_hold(Some(state));
    }

    /// Releases the page as clean: its file has the page's bytes durably. Returns false if the page
    /// was written to meanwhile.
    #[must_use = "the caller counts unclean pages, and has to count this one out"]
    pub fn settle(mut self) -> bool {
        // Transition: write state, held → clean.
        self.ended = true;
        let clean = self.state().end_hold(None);
        if clean {
            self.frames.return_to_short_way(self.frame, self.index);
        }
        clean
    }

    /// Returns the frame, still held: the caller must end the hold (`held_run`).
    pub(crate) fn give_up(mut self) -> FrameId {
        self.ended = true;
        self.frame
    }

    fn state(&self) -> &'a WriteState {
        self.frames.write_state(self.frame)
    }
}

impl Drop for HeldPage<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Sometimes: a held page is dropped without an end.
            self.state().end_hold(Some(Unclean::Dirty));
        }
    }
}

impl Frames {
    pub(crate) fn write_state(&self, frame: FrameId) -> &WriteState {
        &self.table.record(frame).write_state
    }
}
