//! Taking a page out of memory whatever the policy thinks of it: unmapping, truncation, closing.

use sync::atomic::{Backoff, Ordering};

use super::PageMap;
use crate::frames::{OwnedFrame, vacate};
use crate::page_word::{PageState, PageWord};

/// What [`PageMap::detach`] did.
#[derive(Debug)]
pub enum Detach<'a> {
    /// The page isn't in memory.
    Vacant,
    /// The page is pinned.
    Pinned,
    /// Another thread is about to evict the page, which takes a few instructions; or holds the page
    /// for write-back, or writes to it, which may take longer.
    Busy,
    /// Another thread is loading the page.
    Loading,
    /// The page has bytes that its file hasn't.
    Unclean,
    /// The page is out of memory. Its frame still hangs on its group's list: take it off, then drop
    /// it.
    Listed {
        /// The frame.
        frame: OwnedFrame<'a>,
        /// Its file didn't have all of it.
        discarded: bool,
        /// The place elsewhere that it kept, or 0.
        slot: u64,
    },
    /// The page is out of memory. The thread that has its frame isolated will free the frame.
    Orphaned {
        /// The group that is charged for it.
        group: u32,
        /// Its file didn't have all of it.
        discarded: bool,
        /// The place elsewhere that it kept, or 0.
        slot: u64,
    },
    /// The page was swapped out, and isn't any more: what its entry names is the caller's.
    Swapped {
        /// The entry.
        entry: u64,
    },
}

impl PageMap {
    /// Takes a page out of memory whatever the policy thinks of it, leaving `shadow`. What its file
    /// doesn't have is thrown away if `discard` says so; else such a page stays.
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
        // The frame may have gone on to another page before it was frozen: the word tells. While it
        // is frozen, a word that still names it changes in nothing but the referenced bit. Relaxed:
        // the Acquire of `freeze`.
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
        // While the frame is still ours to look at.
        let (group, slot) = (self.shared.frames.table.group(frame), self.shared.frames.table.slot(frame));
        let mut backoff = Backoff::new();
        loop {
            if self.shared.frames.table.isolate(frame) {
                return Detach::Listed { frame: OwnedFrame::used(&self.shared.frames, frame), discarded, slot };
            }
            if self.shared.frames.table.orphan(frame) {
                return Detach::Orphaned { group, discarded, slot };
            }
            // Listed and isolated in between: at most one other party is at it.
            backoff.wait();
        }
    }
}
