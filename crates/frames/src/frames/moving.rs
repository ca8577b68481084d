//! Moves a page to another frame while the page is in memory, so that its old frame becomes free.
//!
//! ```text
//!   mover                                        others
//!   isolated, freeze f1                          no writer, pinner, evictor or remover gets f1; readers without a trace do
//!   copy f1 → f2, labels, unfreeze f2            f2 is unknown yet
//!   word: resident(f1, g1) → resident(f2, g2)    Release: f2's bytes, record and count come first
//!   f1 is its owner's                            a reader that copied from f1 looks at the word: not the same stay
//! ```
//! - M1. The page's word is resident all the time. So no other thread loads the page again, and the
//!   word's chunk counts the page only once.
//! - M2. A page is moved only if its word isn't *written*; this implies that the page is clean. The
//!   reason for the rule: a flusher that writes a page back *holds* the page by the write state in
//!   the frame's record (S4 of `write_state`), and a move would lose this hold. A flusher finds
//!   frames only through words that are *written*, so it never holds a page that may be moved. If a
//!   page was in use when it became clean, its word may still be *written*. Then the mover corrects
//!   the word first.
//! - M3. The mover unfreezes f2 before the word names f2; a loader that publishes a page does the
//!   same. So a pinner that finds f2 through the word can pin it.
//!
//! A move would be unsafe if the mover missed a pin of f1. The critical case is:
//! ```text
//!   pinner: a = word: f1                         mover: freeze f1 (count 0 → FROZEN)
//!   count of f1 + 1: frozen, so it steps back    word → f2
//!   looks at the word again: f2
//! ```
//! The mover never misses the pin: pinning and freezing both change `count`, so one of them comes
//! first. If the pin comes first, the freeze fails; if the freeze comes first, the pinner sees
//! `FROZEN` and steps back. (The same argument holds for an eviction.)

use sync::atomic::Ordering;

use super::{Frames, IsolatedFrame, OwnedFrame};
use crate::frame_id::FrameId;
use crate::page_word::PageWord;

/// The page, still in its frame, and the frame that it was to move to.
pub type NotMoved<'a> = (IsolatedFrame, OwnedFrame<'a>);

impl Frames {
    /// Moves an isolated page to the frame `to`, which must not have held a page since it was
    /// allocated. Returns the page's new frame, isolated, and its old frame. The page keeps its
    /// labels and its hot bit.
    ///
    /// # Errors
    /// Returns both frames if the page is in use, was removed by another thread, or isn't clean.
    pub fn move_page<'a>(
        &'a self,
        page: IsolatedFrame,
        to: OwnedFrame<'a>,
    ) -> Result<(IsolatedFrame, OwnedFrame<'a>), NotMoved<'a>> {
        let from = page.id();
        let (index, word) = self.word_of(from);
        // Relaxed: a hint. The load that counts comes after the freeze below.
        if PageWord::from_bits(word.load(Ordering::Relaxed)).is_written() {
            self.return_to_short_way(from, index); // M2; it does nothing if the page isn't clean.
        }
        if !self.table.freeze(from) {
            return Err((page, to));
        }
        // Relaxed: the Acquire of `freeze` orders it.
        let mut now = PageWord::from_bits(word.load(Ordering::Relaxed));
        if now.frame() != Some(from) || now.is_written() {
            self.table.unfreeze(from, 0);
            return Err((page, to));
        }
        to.fill(|bytes| bytes.stream_from_shared(self.bytes(from)));
        let (to, table) = (to.give_up(self), &self.table);
        table.record(to).write_state.start_moved(&table.record(from).write_state);
        table.set_word(to, index as u64);
        table.set_labels(to, table.group(from), table.owner(from), table.rank(from));
        table.set_slot(to, table.slot(from));
        table.unfreeze(to, 0);
        let resident = PageWord::resident(to, self.table.generation(to));
        loop {
            let moved = resident.with_hot(now.is_hot());
            // Release pairs with the Acquire of lookups and pins (M3). Relaxed on failure: a reader
            // has set the hot bit.
            match word.compare_exchange(now.bits(), moved.bits(), Ordering::AcqRel, Ordering::Relaxed) {
                // Transition: page word, from frame to frame.
                Ok(_) => return Ok((IsolatedFrame::new(to), OwnedFrame::used(self, from))),
                Err(other) => now = PageWord::from_bits(other),
            }
            debug_assert!(now.frame() == Some(from), "a frozen frame's word changed");
        }
    }

    /// Returns a clean page's readers to the fast path: removes `WRITTEN` from the page's word.
    /// Does nothing if the page isn't clean, or is in use at this moment. If a clean page is in
    /// use, its readers stay on the slower path for now. The next writeback of the object
    /// ([`PageMap::hold`](crate::PageMap::hold)), or a thread that moves the page, calls this
    /// function again.
    pub(crate) fn return_to_short_way(&self, frame: FrameId, index: usize) {
        let table = &self.table;
        if !table.freeze(frame) {
            return;
        }
        let word = &self.words.words[index];
        // Relaxed: the Acquire of `freeze` makes the word's last change visible.
        let now = PageWord::from_bits(word.load(Ordering::Relaxed));
        let state = &table.record(frame).write_state;
        // Since the hold ended, the page may have been evicted, or written to.
        let still = now.is_written() && now.frame() == Some(frame) && state.is_clean();
        // Uses the next generation: before the page was written to, readers may have seen a word
        // with the current one.
        if still && table.begin_next_stay(frame) {
            // Transition: page word, written → resident, settled.
            let settled = PageWord::resident(frame, table.generation(frame));
            let settled = settled.with_hot(state.take_hot());
            // Release pairs with the Acquire loads of readers: the bytes are visible. No other
            // thread changes the word of a frozen, written page.
            word.store(settled.bits(), Ordering::Release);
            self.words.chunks.remove_written(index);
        }
        table.unfreeze(frame, 0);
    }

    /// Returns whether the frame holds a page, and no thread owns the frame at the moment.
    #[must_use]
    pub fn is_in_use(&self, frame: FrameId) -> bool {
        !self.table.is_frozen(frame)
    }

    /// Returns whether the frame holds a page that was used since reclaim last looked. Unless the
    /// caller has the frame isolated, the result is only a hint, because the frame may get another
    /// page at any moment.
    #[must_use]
    pub fn is_referenced(&self, frame: FrameId) -> bool {
        let (_, word) = self.word_of(frame);
        // Relaxed: a hint.
        let now = PageWord::from_bits(word.load(Ordering::Relaxed));
        now.frame() == Some(frame) && (now.is_hot() || self.table.record(frame).write_state.is_used())
    }
}
