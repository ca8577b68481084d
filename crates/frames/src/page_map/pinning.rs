//! Pinning: holding a page where it is and as it is. Add a pin to the frame that the word names; look at the word again; if it isn't the
//! same stay, take the pin back (mechanism 3, "lockless pagecache", Piggin 2005, with the freeze in `frame_table`).

use sync::SharedBytes;
use sync::atomic::{Backoff, Ordering};

use super::{PageMap, reference};
use crate::frame_table::{FrameRecord, PinRefused};
use crate::lookup::Lookup;
use crate::page_word::PageWord;
use crate::write_state::Ahead;

/// A resident frame whose page stays, unchanged, while this lives.
#[derive(Debug)]
pub struct PinnedFrame<'a> {
    record: &'a FrameRecord,
    bytes: SharedBytes<'a>,
}

impl<'a> PinnedFrame<'a> {
    /// A frame that was just pinned, and its bytes.
    #[inline]
    pub(crate) fn new(record: &'a FrameRecord, bytes: SharedBytes<'a>) -> Self {
        Self { record, bytes }
    }

    pub(crate) fn record(&self) -> &'a FrameRecord {
        self.record
    }

    /// The page's bytes.
    #[cfg(not(pagefold_loom))]
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the frame is pinned, so its bytes don't change while `self` lives (I2 of `frame_table`); the Acquire
        // of the pin put the loader's writes before this.
        unsafe { self.bytes.as_slice() }
    }

    /// Copies from the page.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.bytes.copy_to(offset, into);
    }
}

impl PinnedFrame<'_> {
    /// Leaves the pin to somebody else.
    pub(crate) fn give_up(self) {
        std::mem::forget(self);
    }
}

impl Drop for PinnedFrame<'_> {
    #[inline]
    fn drop(&mut self) {
        self.record.unpin();
    }
}

/// Why a page that is in memory can't be pinned now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinError {
    /// It has as many pins as can be counted: a billion.
    TooMany,
    /// Somebody writes to it.
    Busy,
}

/// How often a frozen frame is looked at before it counts as busy: what has a frame frozen for moments is over by then.
const PIN_TURNS_MAX: u32 = 32;

impl PageMap {
    /// As [`pin`](Self::pin), for the pages that are pinned most: in memory, used since reclaim last looked, and whole.
    /// `None` also for others.
    #[inline]
    pub fn pin_hot(&self, page: u64) -> Option<PinnedFrame<'_>> {
        match self.lookup.of_smallest_pages() {
            Some(lookup) => self.pin_hot_by(lookup, page),
            None => self.pin_hot_of_any_size(page),
        }
    }

    #[inline(never)]
    fn pin_hot_of_any_size(&self, page: u64) -> Option<PinnedFrame<'_>> {
        self.pin_hot_by(self.lookup, page)
    }

    #[inline(always)]
    fn pin_hot_by(&self, lookup: Lookup, page: u64) -> Option<PinnedFrame<'_>> {
        let word = lookup.whole_page(self.frames(), page)?;
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        if !before.is_hot() {
            return None;
        }
        let (record, bytes) = lookup.frame(self.frames(), before);
        record.pin().ok()?;
        // Relaxed: as in `pin`.
        if word.load(Ordering::Relaxed) != before.bits() {
            record.unpin();
            return None;
        }
        Some(PinnedFrame::new(record, bytes))
    }

    /// Pins a resident page: its bytes stay where they are and as they are until the pin is dropped. `None` if the
    /// page isn't in memory.
    ///
    /// # Errors
    /// [`PinError`]; with `Busy`, try again.
    #[inline]
    pub fn pin(&self, page: u64) -> Result<Option<PinnedFrame<'_>>, PinError> {
        self.pin_first(page, &mut Ahead::No)
    }

    /// As [`pin`](Self::pin). Says in `ahead` if this was the first use of a page that was read ahead.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn pin_first(&self, page: u64, ahead: &mut Ahead) -> Result<Option<PinnedFrame<'_>>, PinError> {
        let Some(word) = self.lookup.word(self.frames(), page) else { return Ok(None) };
        let mut backoff = Backoff::new();
        loop {
            let before = PageWord::from_bits(word.load(Ordering::Acquire));
            if before.frame().is_none() {
                return Ok(None);
            }
            let (record, bytes) = self.lookup.frame(self.frames(), before);
            match record.pin() {
                Ok(()) => {}
                // An evictor has the frame for a moment: the word will say what became of it. Or a writer, for longer.
                Err(PinRefused::Frozen) if backoff.turns() < PIN_TURNS_MAX => {
                    backoff.wait();
                    continue;
                }
                Err(PinRefused::Frozen) => return Err(PinError::Busy),
                Err(PinRefused::Saturated) => return Err(PinError::TooMany),
            }
            let pin = PinnedFrame::new(record, bytes);
            // Relaxed: the Acquire in `pin` made an eviction before this pin visible; `frame_table` says why.
            let after = PageWord::from_bits(word.load(Ordering::Relaxed));
            if before.same_stay(after) {
                if after.is_written() {
                    record.write_state.reference();
                } else if !after.is_referenced() {
                    reference(word, after);
                    *ahead = record.write_state.take_ahead();
                }
                return Ok(Some(pin));
            }
        }
    }
}
