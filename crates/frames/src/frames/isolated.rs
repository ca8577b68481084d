//! Isolated frames: each is off its list and has one holder. Only the holder may evict the page or
//! list the frame again.

use sync::atomic::{AtomicU64, Ordering};

use super::{Frames, OwnedFrame};
use crate::frame_id::FrameId;
use crate::page_word::PageWord;
use crate::write_state::USES_MAX;

/// The result of a refused eviction.
#[derive(Debug)]
pub struct Refused {
    /// The frame. It is still isolated.
    pub frame: IsolatedFrame,
    /// True if the page isn't clean: its file may lack some of its bytes. False if the page is in
    /// use or was removed.
    pub unclean: bool,
}

/// Whether a page was used, as far as the records show.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Use {
    /// The page wasn't used.
    None,
    /// The page was read ahead, then used for the first time, and used again. These uses may belong
    /// to one burst, such as small reads in a row, so they don't prove that the page is used
    /// repeatedly.
    Doubtful,
    /// The page was used this many times; the count stops at 3.
    Certain(u32),
}

impl Use {
    /// Returns the number of uses. Doubtful ones count as one.
    #[must_use]
    pub fn count(self) -> u32 {
        match self {
            Self::None => 0,
            Self::Doubtful => 1,
            Self::Certain(uses) => uses,
        }
    }
}

/// A resident frame that is on no list. Only its holder may list it again, or evict, move or swap
/// out its page. The holder must do one of these: call [`Frames::put_back`], [`Frames::evict`],
/// [`Frames::move_page`] or [`Frames::swap_out`].
#[derive(Debug)]
#[must_use = "a forgotten frame is never reclaimed"]
pub struct IsolatedFrame(FrameId);

impl IsolatedFrame {
    pub(crate) fn new(id: FrameId) -> Self {
        Self(id)
    }

    /// Returns the frame.
    #[must_use]
    pub fn id(&self) -> FrameId {
        self.0
    }
}

impl Frames {
    /// Isolates a listed frame: the caller gets the right to unlink it. Returns `None` if the frame
    /// isn't listed, for example because another thread has isolated it.
    #[must_use]
    pub fn isolate(&self, frame: FrameId) -> Option<IsolatedFrame> {
        self.table.isolate(frame).then_some(IsolatedFrame(frame))
    }

    /// Ends isolation: from here on the frame counts as listed. The caller must have published the
    /// frame's links.
    ///
    /// # Errors
    /// Returns the frame if its page was removed meanwhile. The caller must unlink and drop it.
    pub fn put_back(&self, frame: IsolatedFrame) -> Result<(), OwnedFrame<'_>> {
        if self.table.put_back(frame.0) { Ok(()) } else { Err(self.adopt(frame)) }
    }

    fn adopt(&self, orphan: IsolatedFrame) -> OwnedFrame<'_> {
        self.table.adopt(orphan.0);
        OwnedFrame::used(self, orphan.0)
    }

    /// Returns whether the page was used since the last call, and clears the mark that records this
    /// use. The caller must hold the frame isolated, so that the frame isn't freed meanwhile.
    ///
    /// Doubtful uses don't count.
    #[must_use]
    pub fn take_referenced(&self, frame: FrameId) -> bool {
        matches!(self.take_use(frame), Use::Certain(_))
    }

    /// Returns how the page was used since the last call, and clears the marks that record these
    /// uses. The caller must hold the frame isolated, so that the frame isn't freed meanwhile.
    ///
    /// The use for which a page was loaded doesn't count. If the page was read ahead, this use is
    /// the first one after the load. If it is the only use since the last call, the result is
    /// [`Use::None`]. If the first use and later uses all came since the last call, they may be one
    /// burst, so the result is [`Use::Doubtful`].
    #[must_use]
    pub fn take_use(&self, frame: FrameId) -> Use {
        let first = self.table.record(frame).write_state.take_first_use();
        let in_record = self.table.record(frame).write_state.take_uses();
        match (if self.take_hot(frame) { USES_MAX } else { in_record }, first) {
            (0, _) => Use::None,
            (_, true) => Use::Doubtful,
            (uses, false) => Use::Certain(uses),
        }
    }

    /// Clears the hot bit of the page's word. Returns whether it was set.
    fn take_hot(&self, frame: FrameId) -> bool {
        let hot = PageWord::resident(frame, self.table.generation(frame)).with_hot(true);
        let (_, word) = self.word_of(frame);
        // Relaxed: the bit publishes nothing.
        word.load(Ordering::Relaxed) == hot.bits()
            && word
                .compare_exchange(hot.bits(), hot.with_hot(false).bits(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Evicts an isolated page and leaves `shadow` in its word. The caller may still copy the
    /// page's bytes from the returned frame. Before the frame can hold another page, it must be
    /// freed and allocated again, or [renewed](OwnedFrame::renew).
    ///
    /// # Errors
    /// Returns the frame, still isolated, if the page is in use, was removed by another thread, or
    /// has bytes that its file doesn't have.
    pub fn evict(&self, frame: IsolatedFrame, shadow: u64) -> Result<OwnedFrame<'_>, Refused> {
        if !self.table.freeze(frame.0) {
            return Err(Refused { frame, unclean: false });
        }
        // Usually the word names this frame. A remover that takes the frame out of the word keeps
        // the frame frozen (`detach`), so this thread's freeze would have failed. There is one
        // exception: a page that is put on no list (`publish_unlisted`) can be isolated while it is
        // being published, before its word names the frame.
        let (index, word) = self.word_of(frame.0);
        // Relaxed: the Acquire of `freeze` makes the word's last change visible.
        let stay = PageWord::from_bits(word.load(Ordering::Relaxed));
        if stay.frame() != Some(frame.0) {
            self.table.unfreeze(frame.0, 0);
            return Err(Refused { frame, unclean: false });
        }
        if stay.is_written() && !self.table.record(frame.0).write_state.is_clean() {
            self.table.unfreeze(frame.0, 0);
            return Err(Refused { frame, unclean: true });
        }
        let vacated = vacate(word, stay, shadow);
        // Transition: page word, resident → vacant, by an eviction.
        debug_assert!(vacated, "a frozen frame's word changed");
        self.words.chunks.leave(index, stay.is_written());
        Ok(OwnedFrame::used(self, frame.0))
    }

    /// Returns whether the page is pinned now.
    #[must_use]
    pub fn is_pinned(&self, frame: &IsolatedFrame) -> bool {
        self.table.is_pinned(frame.0)
    }

    /// Returns the group that the frame's page is charged to.
    #[must_use]
    pub fn group(&self, frame: FrameId) -> u32 {
        self.table.group(frame)
    }

    /// Changes the group of an isolated page. Returns false, and changes nothing, if another thread
    /// uses or removes the page at this moment, or if the page isn't clean.
    #[must_use]
    pub fn set_group(&self, frame: &IsolatedFrame, group: u32) -> bool {
        if !self.table.freeze(frame.0) {
            return false;
        }
        // The frame is frozen, so no writer can make the page dirty now.
        let is_clean = self.table.record(frame.0).write_state.is_clean();
        if is_clean {
            self.table.set_group(frame.0, group);
        }
        self.table.unfreeze(frame.0, 0);
        is_clean
    }

    /// Returns whether the page that the frame holds, or held last, was read ahead and hasn't been
    /// used.
    #[must_use]
    pub fn is_unused_ahead(&self, frame: FrameId) -> bool {
        self.table.record(frame).write_state.is_ahead()
    }

    /// Returns the owner of the page, in the policy's numbering.
    #[must_use]
    pub fn owner(&self, frame: FrameId) -> u32 {
        self.table.owner(frame)
    }

    /// Returns the policy's rank of the page.
    #[must_use]
    pub fn rank(&self, frame: FrameId) -> u32 {
        self.table.rank(frame)
    }

    /// Changes the policy's rank of the page. The caller must have the frame isolated.
    pub fn set_rank(&self, frame: FrameId, rank: u32) {
        self.table.set_rank(frame, rank);
    }

    /// Fetches the word of an isolated frame's page into the CPU's cache ahead of use.
    #[inline]
    pub fn prefetch_word(&self, frame: &IsolatedFrame) {
        let (_, word) = self.word_of(frame.0);
        sync::prefetch::prefetch(word);
    }

    /// Records a hint for `prefetch_ahead`: a walk of a list from its cold end is likely to reach
    /// `ahead` a few steps after `frame`.
    pub fn set_ahead(&self, frame: FrameId, ahead: FrameId) {
        self.table.set_ahead(frame, ahead);
    }
}

/// Changes `word` to vacant if it still names the same stay of the page as `seen`; the hot bit may
/// differ. Returns false if the word names something else. The caller must have the frame frozen.
pub(crate) fn vacate(word: &AtomicU64, seen: PageWord, shadow: u64) -> bool {
    let mut now = seen;
    loop {
        let vacant = PageWord::vacant(shadow).bits();
        // Release pairs with the Acquire of the next `begin_load` of this page. But the frame may
        // get another page next, and the loader of that page doesn't read this word. So the
        // synchronization of `free_frames`, through which a freed frame passes, is needed as well:
        // it ensures that this eviction happens before the frame's bytes are overwritten. Relaxed
        // on failure: the loop checks again.
        match word.compare_exchange(now.bits(), vacant, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            // Sometimes: a page is referenced while its frame is frozen.
            Err(other) => now = PageWord::from_bits(other),
        }
        if !now.same_stay(seen) {
            return false;
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    /// Between the load of the word and the exchange, another thread may reference the page, or the
    /// page may leave the frame.
    #[test]
    fn a_page_that_becomes_hot_meanwhile_is_vacated_and_another_stay_is_not() {
        let seen = PageWord::resident(FrameId::new(3), 7);
        let word = AtomicU64::new(seen.with_hot(true).bits());
        assert!(vacate(&word, seen, 5));
        assert_eq!(word.load(Ordering::Relaxed), PageWord::vacant(5).bits());
        let later = PageWord::resident(FrameId::new(3), 8).bits();
        let word = AtomicU64::new(later);
        assert!(!vacate(&word, seen, 5));
        assert_eq!(word.load(Ordering::Relaxed), later);
    }
}
