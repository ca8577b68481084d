//! Swaps out pages that belong to no file, and manages the *swap slots* that pages keep when they
//! are swapped in again.
//!
//! The swapper isolates a page's frame and writes the page's bytes to a swap slot. Meanwhile the
//! page stays in memory: readers hit it, writers write to it, and a remover may remove it.
//! Afterwards the swapper freezes the frame and checks whether the page still has the bytes that
//! are now in the slot. For this the swapper compares word and version, as a reader does
//! (`writing`):
//! ```text
//!   swapping out (frame isolated)               writer, remover
//!   a = word, v = version     even              freeze, word: → WRITTEN, version: → odd → even, unfreeze
//!   the device reads the bytes                  freeze, word: → vacant, frame: → ORPHANED
//!   freeze                  fails if removed
//!   word == a, version == v?  unchanged
//!   word: → swapped
//! ```
//! - W1. A writer freezes the frame before it writes the first byte, and unfreezes the frame only
//!   after it has changed the version. If the writer's freeze comes first, the swapper sees the
//!   changed version (the swapper's `freeze` is Acquire and pairs with the Release of the writer's
//!   `unfreeze`). If the swapper's freeze comes first, the writer finds that the page was swapped
//!   out. So if the swapper finds word and version unchanged, the device has read the page's bytes,
//!   complete and consistent.
//! - W2. A remover that finds the frame isolated keeps it frozen. The thread that isolated the
//!   frame, here the swapper, must free it. The swapper's freeze then fails, and when the swapper
//!   puts the frame back, it learns that the page was removed. So a page can be unmapped while the
//!   device reads it, and no thread waits.
//! - W3. A page that was swapped in may keep its slot (`Labels::slot`). Until the page is written
//!   to (its word becomes *written*), the slot has the page's bytes. A written page keeps its slot
//!   *in vain*: the bytes in the slot are outdated. In both cases the page keeps the slot until the
//!   page is swapped out or removed, or another thread takes the slot away.
//! - W4. A page owns the slot that it keeps. The ownership passes to a thread only while the frame
//!   is frozen; this thread is the page's remover, the swapper, or the caller of
//!   [`Frames::take_slot`].
//! - W5. A flusher can by mistake hold the page that is being swapped out. The flusher loads the
//!   word of a file page, which names a frame. Before the flusher holds this frame, the frame gets
//!   the swapper's page (S2 and S4 of `write_state`). The swapper must not swap out a page that is
//!   held, even by mistake.
//!
//!   So while the swapper has the frame frozen, it changes the write state to `CLEAN` by one
//!   read-modify-write, unless the state is `HELD`. If the flusher's hold comes first, the swapper
//!   sees `HELD` and leaves the page in memory. If the swapper's change comes first, the flusher
//!   finds `CLEAN` and can't hold the page. Without this rule:
//!   ```text
//!   flusher: w = word of file page P          others: P is detached; its frame has page A, which no file has, and A is written
//!           hold(DIRTY) → HELD                        A is swapped out; the frame has file page Q: CLEAN
//!           word(P) ≠ w: end_hold(DIRTY)              Q is DIRTY, its word isn't WRITTEN: never written back, never evicted
//!   ```
//!   A page whose word isn't *written* is `CLEAN`, so the swapper needn't check its state.
//! - W6. For a written page, the swapper first removes the page from its chunk's count of written
//!   words (C4 of `chunks`), and then makes the word *swapped*. The order matters. While the word
//!   names the frozen frame, no remover can remove the page. Once the word is *swapped*, a remover
//!   looks only at the word, and may make it vacant at once. Then the page's map may be dropped and
//!   its chunk given back. If the swapper decremented the count after this, it would change the
//!   state of a chunk that is absent, or that another map uses.

use sync::SharedBytes;
use sync::atomic::Ordering;

use crate::frame_id::FrameId;
use crate::frames::{Frames, IsolatedFrame, OwnedFrame};
use crate::page_map::{Detach, PageMap};
use crate::page_word::PageWord;

/// A snapshot of an isolated page, taken at a moment when no thread was writing to the page.
#[derive(Debug)]
pub struct Unwritten<'a> {
    frames: &'a Frames,
    frame: FrameId,
    word: PageWord,
    version: u64,
}

impl<'a> Unwritten<'a> {
    /// Returns the page's bytes. They may change at any time.
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'a> {
        self.frames.bytes(self.frame)
    }

    /// Returns the frame.
    #[must_use]
    pub fn frame(&self) -> FrameId {
        self.frame
    }

    /// Returns the index of the page's word among all page words.
    #[must_use]
    pub fn word_number(&self) -> u64 {
        self.frames.table.word(self.frame)
    }

    /// Returns the swap slot that has the page's bytes, if there is one (W3).
    #[must_use]
    pub fn slot(&self) -> Option<u64> {
        // A hint: until the frame is frozen, another thread may take the slot away.
        let slot = self.frames.table.slot(self.frame);
        (slot != 0 && !self.word.is_written()).then_some(slot)
    }
}

impl Frames {
    /// Takes a snapshot of an isolated page that is to be swapped out. Returns `None` if a thread
    /// is writing to the page, or if the page was removed.
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

    /// Swaps a page out by storing `entry` in its word, if the page is unchanged since the snapshot
    /// `seen`. `ready` is called before another thread can see the entry.
    ///
    /// Set `of_slot` if the slot that the page keeps contains the page's current bytes. `entry`
    /// must then refer to that slot, and the swap-out fails if another thread has taken the slot
    /// away meanwhile.
    ///
    /// Returns the frame. Without `of_slot`, also returns the slot that the page kept until now, or
    /// 0; the caller owns this slot.
    ///
    /// # Errors
    /// Returns the frame, still isolated, if the page was written to, is in use, is held by mistake
    /// (W5), or was removed.
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
        // Relaxed, both: the Acquire of `freeze` orders them (W1).
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
        if seen.word.is_written() {
            self.words.chunks.remove_written(index); // Before the word changes: W6.
        }
        let swapped = PageWord::swapped(entry).bits();
        // Release pairs with the Acquire of the next `begin_load` of this page, so the loader sees
        // what `ready` did. It also pairs with the Acquire in `forget_swapped`, so a remover leaves
        // the chunk after `remove_written` (W6). The synchronization of `free_frames`, through
        // which the freed frame passes, is needed as well: it orders the end of this stay before
        // the writes to the frame in its next stay. The loop retries because a reader may set the
        // hot bit meanwhile; no other thread changes the word.
        while let Err(other) = word.compare_exchange(now.bits(), swapped, Ordering::AcqRel, Ordering::Relaxed) {
            now = PageWord::from_bits(other);
            debug_assert!(now.same_stay(seen.word), "a frozen frame's word changed");
        }
        Ok((OwnedFrame::used(self, id), if of_slot { 0 } else { kept }))
    }

    /// Returns the slot that the page in an isolated frame keeps, whether or not the slot still has
    /// the page's bytes. A hint: another thread may take the slot away.
    #[must_use]
    pub fn kept_slot(&self, frame: FrameId) -> Option<u64> {
        Some(self.table.slot(frame)).filter(|&slot| slot != 0)
    }

    /// Takes away the slot that the page in `frame` keeps, so that the caller owns the slot.
    /// Returns the group that the page is charged to. Returns `None`, and takes nothing, if the
    /// page doesn't keep `slot` or is in use. With `only_in_vain`, also returns `None` if the slot
    /// has the page's current bytes.
    #[must_use]
    pub fn take_slot(&self, frame: FrameId, slot: u64, only_in_vain: bool) -> Option<u32> {
        if !self.table.freeze(frame) {
            return None;
        }
        // The freeze succeeded, so the frame holds a page. The page's word names the frame, unless
        // a loader or mover has unfrozen the frame and not changed the word yet. Until it changes
        // the word, the word isn't *written*, so the slot doesn't count as kept in vain.
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
    /// Makes a page that is swapped out vacant.
    pub(crate) fn forget_swapped(&self, index: usize, entry: u64, shadow: u64) -> Detach<'_> {
        let words = &self.shared.frames.words;
        let (swapped, vacant) = (PageWord::swapped(entry).bits(), PageWord::vacant(shadow).bits());
        // Acquire pairs with the Release in `swap_out`: this thread sees what was done to the slot,
        // and `leave` below comes after the swapper's `remove_written` (W6). Relaxed on failure:
        // another thread loads the page, and the caller checks again.
        if words.words[index].compare_exchange(swapped, vacant, Ordering::AcqRel, Ordering::Relaxed).is_err() {
            return Detach::Busy;
        }
        // Transition: page word, swapped → vacant.
        words.chunks.leave(index, false);
        Detach::Swapped { entry }
    }
}
