//! Loading pages into memory. Threads compete to change a page's word from *vacant* or *swapped* to
//! *loading*. The winner (the loader) must end the load; until then the other threads wait. A
//! loader that needs a frame allocates the frame before it begins the load, so it never waits for
//! memory while the word is in *loading*.

use std::ops::Range;
use std::task::Waker;

use sync::atomic::Ordering;

use super::kept_pin::KeptPin;
use super::{PageMap, PinnedFrame};
use crate::chunks::{NotEntered, Payment, Unpaid};
use crate::far_words::NoWords;
use crate::frames::{IsolatedFrame, OwnedFrame};
use crate::page_word::{PageState, PageWord};
use crate::wait_table::{LoadFailure, Waiting};
use crate::write_state::Ahead;

/// Labels that a page carries from its load until it is evicted, in the policy's numbering.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels {
    /// The memory group charged for the page.
    pub group: u32,
    /// The owner of the page.
    pub owner: u32,
    /// The policy's initial rank of the page.
    pub rank: u32,
    /// Whether the page is being read ahead of its first use.
    pub ahead: Ahead,
    /// The swap slot that has the page's bytes until a writer changes the page; 0 for none.
    pub slot: u64,
}

/// The result of [`PageMap::begin_load`].
#[derive(Debug)]
pub enum BeginLoad<'a> {
    /// This thread loads the page.
    Begun(Loading<'a>),
    /// The page is already in memory.
    Resident,
    /// Another thread is loading the page: see [`PageMap::wait`].
    Busy,
    /// The budget has no room for the part of the map that contains the page's word.
    NoRoom,
    /// There is no word for the page: the page is past the map's maximum, or there is no address
    /// space for more words.
    NoPlace,
}

/// A load that this thread has begun and must end. If the thread drops this without ending the
/// load, the load fails with [`Loading::ABANDONED`], so that no waiter waits for ever.
#[derive(Debug)]
pub struct Loading<'a> {
    pub(crate) map: &'a PageMap,
    pub(crate) index: usize,
    /// The previous value of the word; a failed load restores it.
    pub(crate) before: PageWord,
    pub(crate) ended: bool,
}

/// Options for publishing a page.
#[derive(Clone, Copy, Default)]
struct How {
    /// The file doesn't have the page's bytes.
    dirty: bool,
    /// The page goes on no list.
    unlisted: bool,
}

impl<'a> Loading<'a> {
    /// The failure that waiters get if the loader drops the load.
    pub const ABANDONED: LoadFailure = LoadFailure(i32::MIN);

    /// Returns the shadow that the page's last eviction left; 0 if there was none.
    #[must_use]
    pub fn shadow(&self) -> u64 {
        match self.before.state() {
            PageState::Vacant { shadow } => shadow,
            _ => 0,
        }
    }

    /// Returns the entry of the page if it was swapped out.
    #[must_use]
    pub fn swapped(&self) -> Option<u64> {
        match self.before.state() {
            PageState::Swapped { entry } => Some(entry),
            _ => None,
        }
    }

    /// Returns the index of the page's word among all page words.
    #[must_use]
    pub fn word_number(&self) -> u64 {
        self.index as u64
    }

    /// Makes the page resident in `frame`, which must already hold the page's bytes, and wakes the
    /// waiters. Returns the frame isolated; the caller must put the frame on its list. With `pin`,
    /// also returns a pin of the page.
    ///
    /// # Panics
    /// If the frame has held a page since it was allocated (I4 of `frame_table`), or belongs to
    /// another [`Frames`](crate::Frames).
    pub fn publish(self, frame: OwnedFrame<'a>, labels: Labels, pin: bool) -> (IsolatedFrame, Option<PinnedFrame<'a>>) {
        self.publish_as(frame, labels, pin, How::default())
    }

    /// Makes the page resident like [`publish`](Self::publish), and returns a pin that outlives the
    /// borrow of the map.
    ///
    /// # Panics
    /// If `frame` isn't fit for [`publish`](Self::publish).
    pub fn publish_pinned(self, frame: OwnedFrame<'a>, labels: Labels) -> (IsolatedFrame, KeptPin) {
        let (frames, id) = (&self.map.shared.frames, frame.id());
        let (isolated, pin) = self.publish_as(frame, labels, true, How::default());
        (isolated, KeptPin::new(frames, id, pin.expect("asked for")))
    }

    /// Makes the page resident like [`publish`](Self::publish), but dirty, because the file doesn't
    /// have the page's bytes.
    ///
    /// # Panics
    /// If `frame` isn't fit for [`publish`](Self::publish).
    pub fn publish_dirty(self, frame: OwnedFrame<'a>, labels: Labels) -> IsolatedFrame {
        self.publish_as(frame, labels, false, How { dirty: true, ..How::default() }).0
    }

    /// Makes the page resident like [`publish`](Self::publish), but doesn't return the frame, and
    /// the caller puts it on no list. The frame is marked as listed all the same. So a thread that
    /// removes the page later gets the frame, just as it gets a frame that is on a list.
    ///
    /// # Panics
    /// If `frame` isn't fit for [`publish`](Self::publish).
    pub fn publish_unlisted(self, frame: OwnedFrame<'a>, labels: Labels) {
        let _ = self.publish_as(frame, labels, false, How { unlisted: true, ..How::default() });
    }

    fn publish_as(
        mut self,
        frame: OwnedFrame<'a>,
        labels: Labels,
        pin: bool,
        How { dirty, unlisted }: How,
    ) -> (IsolatedFrame, Option<PinnedFrame<'a>>) {
        let frames = &self.map.shared.frames;
        let id = frame.give_up(frames);
        self.ended = true;
        frames.table.record(id).write_state.start(dirty, labels.ahead);
        if dirty {
            frames.words.chunks.add_written(self.index);
        }
        frames.table.set_word(id, self.index as u64);
        frames.table.set_labels(id, labels.group, labels.owner, labels.rank);
        frames.table.set_slot(id, labels.slot);
        if unlisted {
            frames.table.list_owned(id);
        }
        frames.table.unfreeze(id, u32::from(pin));
        let pin = pin.then(|| PinnedFrame::new(frames.table.record(id), frames.bytes(id)));
        let resident = PageWord::resident(id, frames.table.generation(id));
        // Transition: page word, loading → resident.
        let resident = if dirty { resident.with_written() } else { resident };
        frames.waits.end_load(self.index, &frames.words.words[self.index], resident, Ok(()));
        (IsolatedFrame::new(id), pin)
    }

    /// Ends the load of a swapped page, but doesn't make the page resident: the word becomes
    /// *swapped* again, with `entry` in place of the previous entry. Waiters check the page again.
    pub fn end_swapped(mut self, entry: u64) {
        // Transition: page word, loading → swapped.
        debug_assert!(self.swapped().is_some(), "its part of the map counts the page");
        self.ended = true;
        let frames = &self.map.shared.frames;
        frames.waits.end_load(self.index, &frames.words.words[self.index], PageWord::swapped(entry), Ok(()));
    }

    /// Gives up the guard without ending the load: the caller must end it.
    pub(crate) fn give_up(mut self) {
        self.ended = true;
    }

    /// Ends the load without a page. All waiters get `failure`.
    pub fn fail(mut self, failure: LoadFailure) {
        self.end(failure);
    }

    fn end(&mut self, failure: LoadFailure) {
        self.ended = true;
        let frames = &self.map.shared.frames;
        // Transition: page word, loading → what it was, as the load failed.
        frames.waits.end_load(self.index, &frames.words.words[self.index], self.before, Err(failure));
        if self.swapped().is_none() {
            frames.words.chunks.leave(self.index, false);
        }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.ended {
            // Sometimes: a load is dropped without an end.
            self.end(Self::ABANDONED);
        }
    }
}

impl PageMap {
    /// Begins to wait for another thread's load of the page. `waker` is called when the load ends.
    /// Returns `None` if the page isn't being loaded.
    #[must_use]
    pub fn begin_wait(&self, page: u64, waker: Option<&Waker>) -> Option<Waiting<'_>> {
        let (index, word) = self.word(page)?;
        self.shared.frames.waits.enter(index, word, waker)
    }

    /// Begins to load a page that isn't in memory.
    #[must_use]
    pub fn begin_load(&self, page: u64) -> BeginLoad<'_> {
        // With `NotDue`, no load is refused as `Unpaid`, so the default is never used.
        self.begin_load_paying(page, &mut Payment::NotDue).unwrap_or(BeginLoad::NoRoom)
    }

    /// Begins to load a page like [`begin_load`](Self::begin_load), but only if the part of the map
    /// that contains the page's word already has memory.
    ///
    /// # Errors
    /// If the load would have to make this part.
    pub fn begin_load_in_part(&self, page: u64) -> Result<BeginLoad<'_>, Unpaid> {
        self.begin_load_paying(page, &mut Payment::Due)
    }

    /// Returns whether the part of the map that contains the page's word is in use: at least one
    /// page of the part is in memory, in swap or being loaded at the moment. A part in use can't be
    /// given back.
    #[must_use]
    pub fn uses_part(&self, page: u64) -> bool {
        self.word(page).is_some_and(|(index, _)| self.shared.frames.words.chunks.is_used(index))
    }

    /// Returns whether the map has an idle part with words of some of `pages`: a part that takes
    /// memory although no page of the part is in memory, in swap or being loaded at the moment.
    #[must_use]
    pub fn has_idle_part(&self, pages: Range<u64>) -> bool {
        self.words_of(pages).any(|words| self.shared.frames.words.any_idle(words))
    }

    /// Gives back the parts of the map, but keeps each part that has a page in memory or in swap.
    /// Returns the number of parts that it keeps. The caller must know that no thread loads pages
    /// of the map any more. See [`Frames::sweep_maps`](crate::Frames::sweep_maps) for `returned`.
    pub fn give_back_parts(&self, mut returned: impl FnMut(u64)) -> usize {
        let (frames, all) = (&self.shared.frames, 0..self.pages());
        self.words_of(all).map(|part| frames.words.give_back_all(part, &frames.budget, &mut returned)).sum()
    }

    /// Begins to load a page like [`begin_load`](Self::begin_load), for a caller that pays for
    /// parts of the map. If this call makes a part, it changes `payment` from [`Payment::Made`] to
    /// [`Payment::Due`]. A part may be made even if the load isn't begun.
    ///
    /// # Errors
    /// If the load would have to make a part, and `payment` is [`Payment::Due`].
    pub fn begin_paid_load(&self, page: u64, payment: &mut Payment) -> Result<BeginLoad<'_>, Unpaid> {
        self.begin_load_paying(page, payment)
    }

    /// Does the work of the functions above. Inlined, because all but one of them pass a constant
    /// `payment`, for which the compiler can simplify the code.
    #[inline(always)]
    fn begin_load_paying(&self, page: u64, payment: &mut Payment) -> Result<BeginLoad<'_>, Unpaid> {
        let Some((index, word)) = self.word(page) else { return self.begin_first_load(page, payment) };
        let mut entered = false;
        let found = loop {
            let now = PageWord::from_bits(word.load(Ordering::Relaxed));
            let swapped = match now.state() {
                PageState::Vacant { .. } => false,
                PageState::Swapped { .. } => true, // Its chunk already counts the page.
                PageState::Loading => break BeginLoad::Busy,
                PageState::Resident { .. } => break BeginLoad::Resident,
            };
            if !entered && !swapped {
                match self.shared.frames.words.enter(index, payment, &self.shared.frames.budget) {
                    Ok(()) => entered = true,
                    // Sometimes: a load finds no room for its part of a page map.
                    Err(NotEntered::NoRoom) => return Ok(BeginLoad::NoRoom),
                    Err(NotEntered::Unpaid) => return Err(Unpaid),
                }
                continue; // The shadow may have been lost with its chunk.
            }
            // Acquire: this thread sees what the evictor of the last stay did. Relaxed on failure:
            // the loop checks again.
            let loading = PageWord::loading().bits();
            if word.compare_exchange(now.bits(), loading, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                if entered && swapped {
                    self.shared.frames.words.chunks.leave(index, false);
                }
                // Transition: page word, vacant or swapped → loading.
                return Ok(BeginLoad::Begun(Loading { map: self, index, before: now, ended: false }));
            }
        };
        if entered {
            self.shared.frames.words.chunks.leave(index, false);
        }
        Ok(found)
    }

    /// Begins to load a page that has no word yet.
    #[cold]
    fn begin_first_load(&self, page: u64, payment: &mut Payment) -> Result<BeginLoad<'_>, Unpaid> {
        match self.shared.make_far_word(page) {
            Ok(_) => self.begin_paid_load(page, payment),
            Err(NoWords::NoRoom) => Ok(BeginLoad::NoRoom),
            Err(NoWords::NoPlace) => Ok(BeginLoad::NoPlace),
        }
    }

    /// Waits while another thread loads the page. `Ok` means that the load has ended, not that the
    /// page is still in memory.
    ///
    /// # Errors
    /// The failure of that load.
    pub fn wait(&self, page: u64) -> Result<(), LoadFailure> {
        self.begin_wait(page, None).map_or(Ok(()), Waiting::sleep)
    }
}
