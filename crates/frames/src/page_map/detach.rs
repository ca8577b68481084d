//! Taking a page out of memory regardless of the policy: for unmapping, truncation and closing.

use sync::atomic::{Backoff, Ordering};

use super::PageMap;
use crate::frames::{OwnedFrame, vacate};
use crate::page_word::{PageState, PageWord};

/// The result of [`PageMap::detach`].
#[derive(Debug)]
pub enum Detach<'a> {
    /// The page isn't in memory.
    Vacant,
    /// The page is pinned.
    Pinned,
    /// Another thread has the page's frame frozen or holds the page for writeback, or the page's
    /// state has changed during this call. A thread that evicts the page keeps the frame frozen for
    /// a few instructions only. A thread that writes to the page, or writes it back, may take
    /// longer.
    Busy,
    /// Another thread is loading the page.
    Loading,
    /// The page has bytes that its file doesn't have.
    Unclean,
    /// The page was removed from memory. Its frame is still on its group's list; the caller must
    /// take the frame off the list, then drop the frame.
    Listed {
        /// The frame.
        frame: OwnedFrame<'a>,
        /// Whether the page was dirty or unstable: its file may lack bytes that are discarded now.
        discarded: bool,
        /// The swap slot that the page kept, or 0.
        slot: u64,
    },
    /// The page was removed from memory. The thread that has its frame isolated will free the
    /// frame.
    Orphaned {
        /// The group that is charged for the page.
        group: u32,
        /// Whether the page was dirty or unstable: its file may lack bytes that are discarded now.
        discarded: bool,
        /// The swap slot that the page kept, or 0.
        slot: u64,
    },
    /// The page was swapped out, and is vacant now. The caller owns what the entry refers to.
    Swapped {
        /// The entry.
        entry: u64,
    },
}

impl PageMap {
    /// Removes a page from memory, whatever the eviction policy says about the page, and leaves
    /// `shadow` in its word. If the page is dirty or unstable, it is removed only if `discard` is
    /// set; bytes that its file lacks are then lost.
    #[must_use]
    pub fn detach(&self, page: u64, shadow: u64, discard: bool) -> Detach<'_> {
        let Some((index, word)) = self.word(page) else { return Detach::Vacant };
        let now = PageWord::from_bits(word.load(Ordering::Acquire));
        let Some(frame) = now.frame() else {
            return match now.state() {
                PageState::Swapped { entry } => self.forget_swapped(index, entry, shadow),
                PageState::Loading => Detach::Loading,
                _ => Detach::Vacant,
            };
        };
        if !self.shared.frames.table.freeze(frame) {
            return if self.shared.frames.table.is_pinned(frame) { Detach::Pinned } else { Detach::Busy };
        }
        let refuse = |outcome| {
            self.shared.frames.table.unfreeze(frame, 0);
            outcome
        };
        // Checks that the frame still holds this page. The frame may have gone to another page
        // before this thread froze it; the page's word then no longer names the frame. A Relaxed
        // load is enough: `freeze` is Acquire, and if the word still names the frame, other threads
        // change at most the word's hot bit while the frame is frozen.
        if !now.same_stay(PageWord::from_bits(word.load(Ordering::Relaxed))) {
            return refuse(Detach::Busy);
        }
        let mut discarded = false;
        if now.is_written() {
            let state = &self.shared.frames.table.record(frame).write_state;
            if !discard && !state.is_clean() {
                return refuse(Detach::Unclean);
            }
            match state.discard() {
                Some(unclean) => discarded = unclean,
                None => return refuse(Detach::Busy),
            }
        }
        let vacated = vacate(word, now, shadow);
        debug_assert!(vacated, "a frozen frame's word changed");
        self.shared.frames.words.chunks.leave(index, now.is_written());
        // Reads these while this thread still owns the frame.
        let (group, slot) = (self.shared.frames.table.group(frame), self.shared.frames.table.slot(frame));
        let mut backoff = Backoff::new();
        loop {
            if self.shared.frames.table.isolate(frame) {
                return Detach::Listed { frame: OwnedFrame::used(&self.shared.frames, frame), discarded, slot };
            }
            if self.shared.frames.table.orphan(frame) {
                return Detach::Orphaned { group, discarded, slot };
            }
            // The frame changes between listed and isolated at this moment; at most one other
            // thread works on it.
            backoff.wait();
        }
    }
}
