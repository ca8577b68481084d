//! Pinning: keeping a page in its frame, unchanged. A pinner adds a pin to the frame that the page
//! word names, and then loads the word again. The page may have left the frame in between, and may
//! even have returned to the frame (another *stay*); in both cases the pinner drops its pin.
//! (After "lockless pagecache", Piggin 2005, with the freeze in `frame_table`.)

use sync::SharedBytes;
use sync::atomic::{AtomicU64, Backoff, Ordering};

use super::{PageMap, note_use};
use crate::frame_table::{FrameRecord, PinRefused};
use crate::lookup::Lookup;
use crate::page_word::PageWord;
use crate::write_state::Ahead;

/// A pinned frame: its page stays in it, unchanged, while this lives.
#[derive(Debug)]
pub struct PinnedFrame<'a> {
    record: &'a FrameRecord,
    bytes: SharedBytes<'a>,
}

impl<'a> PinnedFrame<'a> {
    /// Wraps a frame that was just pinned, and its bytes.
    #[inline]
    pub(crate) fn new(record: &'a FrameRecord, bytes: SharedBytes<'a>) -> Self {
        Self { record, bytes }
    }

    pub(crate) fn record(&self) -> &'a FrameRecord {
        self.record
    }

    /// Returns the pin if the page is still in the given stay (an uninterrupted time in one frame),
    /// and records the page's use. Sets `ahead` if this is the first use of a page that was read
    /// ahead. If the stay is over, drops the pin and returns `None`.
    fn of_stay(self, word: &AtomicU64, stay: PageWord, ahead: &mut Ahead) -> Option<Self> {
        // Relaxed: the Acquire in `pin` makes an eviction before this pin visible (see
        // `frame_table`).
        let after = PageWord::from_bits(word.load(Ordering::Relaxed));
        if !stay.same_stay(after) {
            return None;
        }
        if after.is_written() {
            self.record.write_state.count_use();
        } else if !after.is_hot() {
            *ahead = note_use(word, after, self.record);
        }
        Some(self)
    }

    /// Returns the page's bytes.
    #[cfg(not(pagefold_loom))]
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the frame is pinned, so its bytes don't change while `self` lives (I2 of
        // `frame_table`). The Acquire of the pin orders the loader's writes before this read.
        unsafe { self.bytes.as_slice() }
    }

    /// Copies from the page.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.bytes.copy_to(offset, into);
    }
}

impl PinnedFrame<'_> {
    /// Gives up the guard but not the pin: the caller must unpin the frame.
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

/// The reason why a page that is in memory can't be pinned now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PinError {
    /// The page has the maximum number of pins.
    TooMany,
    /// A thread writes to the page, or waits to write to it.
    Busy,
}

impl PageMap {
    /// Pins the page if it is hot: in memory, used several times since reclaim last looked, not
    /// written to, and entirely within the object. Returns `None` for all other pages; the caller
    /// should then try [`pin`](Self::pin).
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

    /// Pins a resident page: its bytes stay in place, unchanged, until the pin is dropped. Returns
    /// `None` if the page isn't in memory.
    ///
    /// # Errors
    /// [`PinError`]; with `Busy`, the caller may try again.
    #[inline]
    pub fn pin(&self, page: u64) -> Result<Option<PinnedFrame<'_>>, PinError> {
        self.pin_first(page, &mut Ahead::No)
    }

    /// Pins the page like [`pin`](Self::pin), and sets `ahead` if this was the first use of a page
    /// that was read ahead.
    ///
    /// # Errors
    /// As [`pin`](Self::pin).
    pub fn pin_first(&self, page: u64, ahead: &mut Ahead) -> Result<Option<PinnedFrame<'_>>, PinError> {
        let Some(word) = self.word_in_object(page) else { return Ok(None) };
        let mut backoff = Backoff::new();
        loop {
            let before = PageWord::from_bits(word.load(Ordering::Acquire));
            if before.frame().is_none() {
                return Ok(None);
            }
            let (record, bytes) = self.lookup.frame(self.frames(), before);
            let is_closed = backoff.turns() > 0 && record.is_closed();
            match if is_closed { Err(PinRefused::Closed) } else { record.pin() } {
                Ok(()) => {}
                // Another thread has the frame frozen, or waits to write to the page. If an evictor
                // has it frozen, the page word soon shows the outcome; a writer may take longer.
                Err(PinRefused::Closed) if backoff.wait_awake() => continue,
                Err(PinRefused::Closed) => return Err(PinError::Busy),
                Err(PinRefused::Saturated) => return Err(PinError::TooMany),
            }
            let pin = PinnedFrame::new(record, bytes).of_stay(word, before, ahead);
            if pin.is_some() {
                return Ok(pin);
            }
        }
    }

    /// Creates a pinner, which takes turns with the writers of the page.
    #[must_use]
    pub fn pinner(&self, page: u64) -> Pinner<'_> {
        Pinner { map: self, page, place: None }
    }
}

/// Pins a page that threads write to without a pause. If the pinner only retried, each attempt
/// might find another writer. So when the pinner finds a writer, it makes a *reservation* in the
/// frame, which becomes a pin when this writer is done (`frame_table`).
///
/// The pinner keeps the reservation between attempts, so the pinner should be dropped when the wait
/// ends.
#[derive(Debug)]
pub struct Pinner<'a> {
    map: &'a PageMap,
    page: u64,
    place: Option<Place<'a>>,
}

impl<'a> Pinner<'a> {
    /// Pins the page. See also [`PageMap::pin_first`].
    ///
    /// # Errors
    /// [`PinError`]; with `Busy`, the caller should wait and then try again with the same pinner.
    pub fn pin(&mut self, ahead: &mut Ahead) -> Result<Option<PinnedFrame<'a>>, PinError> {
        let map = self.map;
        if let Some(place) = self.place.take()
            && let Some(word) = map.word_in_object(self.page)
            // Relaxed: if the reservation is a pin, `of_stay` checks again.
            && place.stay.same_stay(PageWord::from_bits(word.load(Ordering::Relaxed)))
        {
            if !place.record.place_is_pin() {
                self.place = Some(place);
                return Err(PinError::Busy);
            }
            let stay = place.stay;
            if let Some(pin) = place.into_pin().of_stay(word, stay, ahead) {
                return Ok(Some(pin));
            }
        }
        let pinned = map.pin_first(self.page, ahead);
        if let Err(PinError::Busy) = pinned {
            self.place = self.take_place();
        }
        pinned
    }

    fn take_place(&self) -> Option<Place<'a>> {
        let map = self.map;
        let word = map.word_in_object(self.page)?;
        let stay = PageWord::from_bits(word.load(Ordering::Acquire));
        stay.frame()?;
        let (record, bytes) = map.lookup.frame(map.frames(), stay);
        // Creates the guard only if the reservation was made, because dropping the guard gives the
        // reservation back.
        record.take_place().then(|| Place { record, bytes, stay })
    }
}

/// A reservation in a frame. Dropping it gives the reservation back.
#[derive(Debug)]
struct Place<'a> {
    record: &'a FrameRecord,
    bytes: SharedBytes<'a>,
    /// The page's word when the reservation was made.
    stay: PageWord,
}

impl<'a> Place<'a> {
    fn into_pin(self) -> PinnedFrame<'a> {
        let (record, bytes) = (self.record, self.bytes);
        std::mem::forget(self);
        PinnedFrame::new(record, bytes)
    }
}

impl Drop for Place<'_> {
    fn drop(&mut self) {
        self.record.give_place_back();
    }
}
