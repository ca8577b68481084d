//! Swapping out pages that no file has, and the *places* elsewhere that pages keep when they come
//! back.
//!
//! The swapper has a page's frame isolated and writes its bytes elsewhere while the page stays
//! where it is: readers hit it, writers write to it, and it may be removed. Afterwards the swapper
//! checks whether the bytes that it wrote are still the page. It does so as a reader without a
//! trace does (`writing`), but with the frame frozen:
//! ```text
//!   swapping out (frame isolated)               writer, remover
//!   a = word, v = version     even              freeze, word: → WRITTEN, version: → odd → even, unfreeze
//!   the device reads the bytes                  freeze, word: → vacant, frame: → ORPHANED
//!   freeze                  fails if removed
//!   word == a, version == v?  unchanged
//!   word: → swapped
//! ```
//! - W1. A writer has the frame frozen from before its first byte until after its version's change.
//!   So if the swapper freezes later, it sees the change (Acquire of `freeze` to Release of
//!   `unfreeze`); if it freezes first, the writer finds the page swapped. If word and version are
//!   as before, the bytes read are that page, whole: P1.
//! - W2. A remover never unfreezes, and leaves an isolated frame to its holder, which learns of it
//!   when it puts the frame back. So a page may be unmapped while the device reads it, and no
//!   thread waits.
//! - W3. A page that came back and keeps its place (`Labels::slot`) has the same bytes there as
//!   long as its word isn't *written*. A written page keeps the place in vain, until it is swapped
//!   out or another thread takes the place away.
//! - W4. The kept place changes hands only with the frame frozen. It goes to the page's remover, to
//!   the swapper, or to the caller of [`Frames::take_slot`].
//! - W5. A page that a leader of a file's write-back holds by mistake (S2 and S4 of `write_state`)
//!   stays in its frame. The swapper changes the write state of the frozen frame from anything but
//!   `HELD` to `CLEAN`, by one read-modify-write: so either the swapper sees the hold, and the page
//!   stays, or the leader finds a state that can't be held. Without that:
//!   ```text
//!   leader: w = word of file page P           others: P is detached; its frame has page A, which no file has, and A is written
//!           hold(DIRTY) → HELD                        A is swapped out; the frame has file page Q: CLEAN
//!           word(P) ≠ w: end_hold(DIRTY)              Q is DIRTY, its word isn't WRITTEN: never written back, never evicted
//!   ```
//!   A page whose word isn't *written* is `CLEAN`, and needs no look.

use sync::SharedBytes;
use sync::atomic::Ordering;

use crate::frame_id::FrameId;
use crate::frames::{Frames, IsolatedFrame, OwnedFrame};
use crate::page_map::{Detach, PageMap};
use crate::page_word::PageWord;

/// An isolated page as it was at a moment when no thread was writing to it.
#[derive(Debug)]
pub struct Unwritten<'a> {
    frames: &'a Frames,
    frame: FrameId,
    word: PageWord,
    version: u64,
}

impl<'a> Unwritten<'a> {
    /// The page's bytes. They may change at any time.
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'a> {
        self.frames.bytes(self.frame)
    }

    /// The frame.
    #[must_use]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// The number of the page's word among all page words.
    #[must_use]
    pub fn word_number(&self) -> u64 {
        self.frames.table.word(self.frame)
    }

    /// The place elsewhere that has the page's bytes, if one does (W3).
    #[must_use]
    pub fn slot(&self) -> Option<u64> {
        // A hint: it may be taken away until the frame is frozen.
        let slot = self.frames.table.slot(self.frame);
        (slot != 0 && !self.word.is_written()).then_some(slot)
    }
}

impl Frames {
    /// Looks at an isolated page that is to be swapped out. `None` if a thread is writing to it, or
    /// it is gone.
    #[must_use]
    pub fn look_unwritten(&self, frame: &IsolatedFrame) -> Option<Unwritten<'_>> {
        let frame = frame.id();
        let (_, word) = self.word_of(frame);
        // Acquire, both: the bytes of the loader, or of the last writer, are visible.
        let word = PageWord::from_bits(word.load(Ordering::Acquire));
        let version = self.table.record(frame).version.load(Ordering::Acquire);
        let stays = word.frame() == Some(frame);
        (stays && version.is_multiple_of(2)).then_some(Unwritten { frames: self, frame, word, version })
    }

    /// Swaps a page out, if it is as it was `seen`: from now on its word says `entry`. With
    /// `of_slot`, the entry is that of the place that the page keeps, and the page has to keep it
    /// still. `ready` is called before another thread can see the entry. Returns the frame, and the
    /// place that the page kept in vain, or 0.
    ///
    /// # Errors
    /// The isolated frame again: the page was written to, is in use, is held by mistake (W5), or
    /// was removed.
    pub fn swap_out(
        &self,
        frame: IsolatedFrame,
        seen: &Unwritten<'_>,
        entry: u64,
        of_slot: bool,
        ready: impl FnOnce(),
    ) -> Result<(OwnedFrame<'_>, u64), IsolatedFrame> {
        let id = frame.id();
        if id != seen.frame || !self.table.freeze(id) {
            return Err(frame);
        }
        let (index, word) = self.word_of(id);
        // Relaxed, both: the Acquire of `freeze` (W1).
        let mut now = PageWord::from_bits(word.load(Ordering::Relaxed));
        let same = now.same_stay(seen.word)
            && self.table.record(id).version.load(Ordering::Relaxed) == seen.version
            && (!of_slot || self.table.slot(id) != 0)
            // Last: it changes the state (W5).
            && (!seen.word.is_written() || self.write_state(id).discard().is_some());
        if !same {
            // Sometimes: a page is written to while it is swapped out.
            self.table.unfreeze(id, 0);
            return Err(frame);
        }
        // Transition: page word, resident → swapped.
        ready();
        let kept = self.table.slot(id);
        self.table.set_slot(id, 0);
        let swapped = PageWord::swapped(entry).bits();
        // Release pairs with the Acquire of the next `begin_load`, which sees what `ready` did.
        // With the freed frame's way through the locks of `free_frames` it also publishes the end
        // of this residency. A reader may set the referenced bit meanwhile; no other thread changes
        // the word.
        while let Err(other) = word.compare_exchange(now.bits(), swapped, Ordering::AcqRel, Ordering::Relaxed) {
            now = PageWord::from_bits(other);
            debug_assert!(now.same_stay(seen.word), "a frozen frame's word changed");
        }
        if seen.word.is_written() {
            self.words.chunks.remove_written(index);
        }
        Ok((OwnedFrame::used(self, id), if of_slot { 0 } else { kept }))
    }

    /// The place that the page in an isolated frame keeps, whether or not it still has its bytes. A
    /// hint: it may be taken away.
    #[must_use]
    pub fn kept_slot(&self, frame: FrameId) -> Option<u64> {
        Some(self.table.slot(frame)).filter(|&slot| slot != 0)
    }

    /// Detaches the page in `frame` from the place that it keeps, which is the caller's then.
    /// Returns the group that the page is charged to. `None` if `slot` isn't its place, or the page
    /// is in use; with `only_in_vain` also if the place has its bytes.
    #[must_use]
    pub fn take_slot(&self, frame: FrameId, slot: u64, only_in_vain: bool) -> Option<u32> {
        if !self.table.freeze(frame) {
            return None;
        }
        // Frozen, so it holds a page, and that one's word names it.
        let is_written = || PageWord::from_bits(self.word_of(frame).1.load(Ordering::Relaxed)).is_written();
        let takes = self.table.slot(frame) == slot && (!only_in_vain || is_written());
        if takes {
            self.table.set_slot(frame, 0);
        }
        let group = self.table.group(frame);
        self.table.unfreeze(frame, 0);
        takes.then_some(group)
    }
}

impl PageMap {
    /// Forgets a page that is swapped out.
    pub(crate) fn forget_swapped(&self, index: usize, entry: u64, shadow: u64) -> Detach<'_> {
        let words = &self.shared.frames.words;
        let (swapped, vacant) = (PageWord::swapped(entry).bits(), PageWord::vacant(shadow).bits());
        // Acquire: what was done to the place comes first. Relaxed on failure: another thread loads
        // the page, and the caller looks again.
        if words.words[index].compare_exchange(swapped, vacant, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Detach::Busy;
        }
        // Transition: page word, swapped → vacant.
        words.chunks.leave(index, false);
        Detach::Swapped { entry }
    }
}
