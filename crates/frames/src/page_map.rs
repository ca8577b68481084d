//! A page map: one page word for each page of one object, and the ways to use it. Writing is in `writing`, getting what
//! was written to the file in `writeback`.
//!
//! **Reading without a trace** ([`PageMap::read_hot`], [`PageMap::read`]). The reader writes nothing that is shared, not
//! even a count:
//! ```text
//!   reader                                   others
//!   a = word.load(Acquire)                   word: resident(f, g) → vacant          (evict)
//!   copy bytes of frame(a)      Relaxed      … f is freed, taken by another loader
//!   fence(Acquire)                           fence(Release)            (`OwnedFrame::fill`)
//!   b = word.load(Relaxed)                   bytes of f = another page's   Relaxed
//!   a, b the same stay? the copy is good
//! ```
//! If the copy holds a byte that the next loader of `f` wrote, the reader's fence synchronises with that loader's
//! fence; the eviction happened before that, so `b` is the eviction's value or a later one, and no later one equals
//! `a` (`page_word`: a word never comes back). A byte that the loader of *this* stay wrote is there by the Acquire load
//! of `a`, which pairs with the Release in `WaitTable::end_load`. So a good copy is this page's bytes, all of one stay: P1, P2.
//!
//! **Pinning** ([`PageMap::pin`]). Add a pin to the frame that the word names; look at the word again; if it isn't the
//! same stay, take the pin back (mechanism 3, "lockless pagecache", Piggin 2005, with the freeze in `frame_table`).
//!
//! **Loading** ([`PageMap::begin_load`]). One thread wins the swap from *vacant* to *loading* and has to end the load;
//! the others wait for it. The loader already has its frame: whoever has a word in *loading* never waits for memory.

use std::ops::Range;

use sync::Arc;
use sync::atomic::{AtomicU64, Backoff, Ordering, fence};

use crate::chunks::NoRoom;
use crate::error::ReserveError;
use crate::frame_table::{FrameId, PinRefused};
use crate::frames::{Frames, IsolatedFrame, OwnedFrame, PinnedFrame};
use crate::loading_run::KeptPin;
use crate::lookup::Lookup;
use crate::map_state::MapState;
use crate::page_word::{PageState, PageWord};
use crate::wait_table::{LoadFailure, Waiting};
use crate::write_state::Ahead;

/// The words of one object's pages. Clones are the same map: whoever looks pages up often has one of his own, so that
/// the addresses it needs lie beside whatever else he needs, or in registers.
#[derive(Clone, Debug)]
pub struct PageMap {
    pub(crate) lookup: Lookup,
    pub(crate) shared: Arc<MapState>,
}

/// Labels that a page carries from its load until it is evicted, in the policy's numbering.
#[derive(Clone, Copy, Debug, Default)]
pub struct Labels {
    /// The memory group charged for the page.
    pub group: u32,
    /// Whose page it is.
    pub owner: u32,
    /// The policy's rank at the start.
    pub rank: u32,
    /// Whether nobody has wanted the page yet.
    pub ahead: Ahead,
    /// Where else the page is, for as long as nobody writes to it; 0 for nowhere.
    pub slot: u64,
}

/// What [`PageMap::begin_load`] found.
#[derive(Debug)]
pub enum BeginLoad<'a> {
    /// This thread loads the page.
    Begun(Loading<'a>),
    /// It is there already.
    Resident,
    /// Another thread loads it: [`PageMap::wait`].
    Busy,
    /// The budget has no room for the part of the map that the page's word is in.
    NoRoom,
}

/// What [`PageMap::detach`] did.
#[derive(Debug)]
pub enum Detach<'a> {
    /// The page isn't in memory.
    Vacant,
    /// Somebody has the page pinned.
    Pinned,
    /// Somebody is about to evict the page, or to write it back, and needs a few instructions more; or somebody writes
    /// to it, which may take longer.
    Busy,
    /// Somebody is loading the page.
    Loading,
    /// The page has bytes that its file hasn't.
    Unclean,
    /// The page is out of memory. Its frame still hangs on its group's list: take it off, then drop it.
    Listed {
        /// The frame.
        frame: OwnedFrame<'a>,
        /// Its file didn't have all of it.
        discarded: bool,
        /// The place elsewhere that it kept, or 0.
        slot: u64,
    },
    /// The page is out of memory, and whoever has its frame isolated will free it.
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
    /// A map for `pages` pages, none of them in memory. Takes address space, but no memory.
    ///
    /// # Errors
    /// When the address space reserved for page words is used up.
    pub fn new(frames: Arc<Frames>, pages: u64) -> Result<Self, ReserveError> {
        let shared = Arc::new(MapState::new(frames, pages)?);
        let map = Self { lookup: Lookup::new(&shared), shared };
        map.set_len(u64::MAX);
        Ok(map)
    }

    /// The number of page 0's word among all page words.
    #[must_use]
    pub fn first_word(&self) -> u64 {
        self.shared.first as u64
    }

    /// Pages that the map was made for.
    #[must_use]
    pub fn pages(&self) -> u64 {
        self.shared.pages as u64
    }

    /// The object's length in bytes. Bytes past it aren't found by [`read`](Self::read), nor their pages by
    /// [`pin`](Self::pin).
    #[inline]
    #[must_use]
    pub fn len(&self) -> u64 {
        self.shared.len.bytes()
    }

    /// Whether the object has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the object's length in bytes; at first it is all that the map has pages for, which is the most it can be.
    /// Says what it is now.
    pub fn set_len(&self, len: u64) -> u64 {
        self.shared.set_len(len)
    }

    /// The frames that the map's pages live in.
    #[must_use]
    pub fn frames(&self) -> &Arc<Frames> {
        &self.shared.frames
    }

    /// The word of `page`, and its number. `None` past the end.
    #[inline]
    pub(crate) fn word(&self, page: u64) -> Option<(usize, &AtomicU64)> {
        if page >= self.shared.pages as u64 {
            return None;
        }
        let index = self.shared.first + page as usize;
        Some((index, &self.shared.frames.words.words[index]))
    }

    /// Where the page is now.
    #[must_use]
    pub fn state(&self, page: u64) -> PageState {
        match self.word(page) {
            Some((_, word)) => PageWord::from_bits(word.load(Ordering::Acquire)).state(),
            None => PageWord::NEVER.state(),
        }
    }

    /// Whether a page has been used since it was loaded, be it that it was loaded for a use. `None` if it isn't in memory. It
    /// may be the frame's next page that this is said of.
    #[must_use]
    pub fn is_used(&self, page: u64) -> Option<bool> {
        // Acquire only because looking up a frame asks for it.
        let word = PageWord::from_bits(self.lookup.word(&self.shared, page)?.load(Ordering::Acquire));
        word.frame()?;
        Some(!self.lookup.frame(&self.shared, word).0.write_state.is_ahead())
    }

    /// As [`read`](Self::read), for the pages that are read most: in memory, used since reclaim last looked, and whole.
    /// False also for others.
    #[inline]
    pub fn read_hot(&self, start: u64, into: &mut [u8]) -> bool {
        match self.lookup.of_smallest_pages() {
            Some(lookup) => self.read_hot_by(lookup, start, into),
            None => self.read_hot_of_any_size(start, into),
        }
    }

    #[inline(never)]
    fn read_hot_of_any_size(&self, start: u64, into: &mut [u8]) -> bool {
        self.read_hot_by(self.lookup, start, into)
    }

    #[inline(always)]
    fn read_hot_by(&self, lookup: Lookup, start: u64, into: &mut [u8]) -> bool {
        let Some((word, offset)) = lookup.locate_whole(&self.shared, start, into.len()) else { return false };
        // Acquire pairs with the Release in `WaitTable::end_load`: the loader's bytes are visible.
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        if !before.is_hot() {
            return false;
        }
        lookup.copy(&self.shared, before, offset, into);
        // Pairs with the fence in `OwnedFrame::fill`: see the module head.
        fence(Ordering::Acquire);
        word.load(Ordering::Relaxed) == before.bits()
    }

    /// Copies the object's bytes from `start` on without a lock or a pin, and without a shared write unless the use of
    /// the page has to be noted. False if they aren't all within one page, and that in memory from the beginning of the
    /// copy to its end, or if it was written to again and again meanwhile; `into` then holds nothing of use.
    pub fn read(&self, start: u64, into: &mut [u8]) -> bool {
        self.read_first(start, into, &mut Ahead::No)
    }

    /// As [`read`](Self::read). Says in `ahead` if this was the first use of a page that was read ahead.
    pub fn read_first(&self, start: u64, into: &mut [u8], ahead: &mut Ahead) -> bool {
        let Some((word, offset)) = self.lookup.locate(&self.shared, start, into.len()) else { return false };
        self.read_word(word, offset, into, ahead)
    }

    /// As [`read_first`](Self::read_first), of the page that `word` is the word of.
    pub(crate) fn read_word(&self, word: &AtomicU64, offset: usize, into: &mut [u8], ahead: &mut Ahead) -> bool {
        // Acquire, and the fence: as in `read_hot`.
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        if before.frame().is_none() {
            return false;
        }
        if before.is_written() {
            return self.read_written(word, offset, into, ahead);
        }
        self.lookup.copy(&self.shared, before, offset, into);
        fence(Ordering::Acquire);
        let after = PageWord::from_bits(word.load(Ordering::Relaxed));
        if !before.same_stay(after) {
            return false;
        }
        if !after.is_referenced() {
            reference(word, after);
            *ahead = self.lookup.frame(&self.shared, before).0.write_state.take_ahead();
        }
        true
    }

    /// Asks the CPU to fetch the word of the page that has byte `start`, ahead of [`prefetch_bytes`](Self::prefetch_bytes).
    #[inline]
    pub fn prefetch_word(&self, start: u64) {
        if let Some((word, _)) = self.lookup.locate_whole(&self.shared, start, 1) {
            crate::prefetch::prefetch(word);
        }
    }

    /// Asks the CPU to fetch the first of `len` bytes at `start`, if they are in memory, ahead of
    /// [`read_hot`](Self::read_hot).
    #[inline]
    pub fn prefetch_bytes(&self, start: u64, len: usize) {
        let Some((word, offset)) = self.lookup.locate_whole(&self.shared, start, len) else { return };
        // Acquire only because looking up a frame asks for it: nothing is read.
        let word = PageWord::from_bits(word.load(Ordering::Acquire));
        if word.is_hot() {
            crate::prefetch::prefetch_bytes(self.lookup.frame(&self.shared, word).1, offset, len);
        }
    }

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
        let word = lookup.whole_page(&self.shared, page)?;
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        if !before.is_hot() {
            return None;
        }
        let (record, bytes) = lookup.frame(&self.shared, before);
        record.pin().ok()?;
        let pin = PinnedFrame::new(record, bytes);
        // Relaxed: as in `pin`.
        (word.load(Ordering::Relaxed) == before.bits()).then_some(pin)
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
        let Some(word) = self.lookup.word(&self.shared, page) else { return Ok(None) };
        let mut backoff = Backoff::new();
        loop {
            let before = PageWord::from_bits(word.load(Ordering::Acquire));
            if before.frame().is_none() {
                return Ok(None);
            }
            let (record, bytes) = self.lookup.frame(&self.shared, before);
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

    /// Starts to load a page that isn't in memory.
    #[must_use]
    pub fn begin_load(&self, page: u64) -> BeginLoad<'_> {
        let Some((index, word)) = self.word(page) else { return BeginLoad::NoRoom };
        let mut entered = false;
        let found = loop {
            let now = PageWord::from_bits(word.load(Ordering::Relaxed));
            let swapped = match now.state() {
                PageState::Vacant { .. } => false,
                PageState::Swapped { .. } => true, // Its chunk counts it already.
                PageState::Loading => break BeginLoad::Busy,
                PageState::Resident { .. } => break BeginLoad::Resident,
            };
            if !entered && !swapped {
                if self.shared.frames.words.enter(index, &self.shared.frames.budget) == Err(NoRoom) {
                    return BeginLoad::NoRoom;
                }
                entered = true;
                continue; // The shadow may have been given back with its chunk.
            }
            // Acquire: what the evictor of the last stay did comes first. Relaxed on failure: we look again.
            let loading = PageWord::loading().bits();
            if word.compare_exchange(now.bits(), loading, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                if entered && swapped {
                    self.shared.frames.words.chunks.leave(index, false);
                }
                return BeginLoad::Begun(Loading { map: self, index, before: now, ended: false });
            }
        };
        if entered {
            self.shared.frames.words.chunks.leave(index, false);
        }
        found
    }

    /// Waits while another thread loads the page. `Ok` says that the load is over, not that the page is still there.
    ///
    /// # Errors
    /// The failure of that load.
    pub fn wait(&self, page: u64) -> Result<(), LoadFailure> {
        self.begin_wait(page, None).map_or(Ok(()), Waiting::sleep)
    }

    /// The pages of `range` that are in memory, being loaded or swapped out, in order. Pages that come or go meanwhile may be missed.
    pub fn pages_in_memory(&self, range: Range<u64>) -> impl Iterator<Item = u64> + '_ {
        let words = &self.shared.frames.words;
        words.chunks.in_use(self.words_of(range)).flat_map(move |chunk| {
            // Relaxed: whoever uses the page looks at its word again.
            let occupied = |&index: &usize| {
                let state = PageWord::from_bits(words.words[index].load(Ordering::Relaxed)).state();
                !matches!(state, PageState::Vacant { .. })
            };
            chunk.filter(occupied).map(|index| (index - self.shared.first) as u64)
        })
    }

    /// The numbers of the words of a range of pages, as far as there are any.
    pub(crate) fn words_of(&self, range: Range<u64>) -> Range<usize> {
        let index = |page: u64| self.shared.first + page.min(self.shared.pages as u64) as usize;
        index(range.start)..index(range.end.max(range.start))
    }

    /// The page whose word has this number.
    pub(crate) fn page_of(&self, word: usize) -> u64 {
        (word - self.shared.first) as u64
    }

    /// Takes a page out of memory whatever the policy thinks of it, leaving `shadow`. What its file doesn't have is
    /// thrown away if `discard` says so; else such a page stays.
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
        // The frame may have gone on to another page before it was frozen: the word tells. While it is frozen, a word
        // that still names it changes in nothing but the referenced bit. Relaxed: the Acquire of `freeze`.
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

/// Notes that a page was used. The only write on the way of a hit, and only where reclaim has looked since the last.
#[cold]
fn reference(word: &AtomicU64, seen: PageWord) {
    // Looks first, so that a word that is gone isn't written to (`chunks`). Relaxed: the bit publishes nothing.
    if !seen.is_written() && word.load(Ordering::Relaxed) == seen.bits() {
        let _ =
            word.compare_exchange(seen.bits(), seen.with_referenced(true).bits(), Ordering::Relaxed, Ordering::Relaxed);
    }
}

/// Changes `word` from the stay `seen`, referenced or not, to vacant. The frame is frozen. False if the stay is over.
pub(crate) fn vacate(word: &AtomicU64, seen: PageWord, shadow: u64) -> bool {
    let mut now = seen;
    loop {
        let vacant = PageWord::vacant(shadow).bits();
        // Release pairs with the Acquire of the next `begin_load`; with the freed frame's way through the locks of
        // `free_frames` it puts the eviction before the next stay's bytes. Relaxed on failure: the loop looks again.
        match word.compare_exchange(now.bits(), vacant, Ordering::AcqRel, Ordering::Relaxed) {
            Ok(_) => return true,
            Err(other) => now = PageWord::from_bits(other),
        }
        if !now.same_stay(seen) {
            return false;
        }
    }
}

/// A load that this thread has begun. Dropped unended, it fails with [`Loading::ABANDONED`], so that nobody waits for
/// ever.
#[derive(Debug)]
pub struct Loading<'a> {
    pub(crate) map: &'a PageMap,
    pub(crate) index: usize,
    /// What the word was before, and is again if the load fails.
    pub(crate) before: PageWord,
    pub(crate) ended: bool,
}

impl<'a> Loading<'a> {
    /// The failure that waiters get from a loader that unwound.
    pub const ABANDONED: LoadFailure = LoadFailure(i32::MIN);

    /// The shadow that the page's last eviction left; 0 if there was none.
    #[must_use]
    pub fn shadow(&self) -> u64 {
        match self.before.state() {
            PageState::Vacant { shadow } => shadow,
            _ => 0,
        }
    }

    /// The entry of a page that was swapped out.
    #[must_use]
    pub fn swapped(&self) -> Option<u64> {
        match self.before.state() {
            PageState::Swapped { entry } => Some(entry),
            _ => None,
        }
    }

    /// The number of the page's word among all page words.
    #[must_use]
    pub fn word_number(&self) -> u64 {
        self.index as u64
    }

    /// Makes the page resident in `frame`, which holds its bytes, and wakes who waits. The frame is returned
    /// isolated: put it on its list. With `pin`, the loader has the page pinned as well.
    ///
    /// # Panics
    /// If the frame has held a page since it was allocated (I4 of `frame_table`), or is another [`Frames`]'.
    pub fn publish(self, frame: OwnedFrame<'a>, labels: Labels, pin: bool) -> (IsolatedFrame, Option<PinnedFrame<'a>>) {
        self.publish_as(frame, labels, pin, false)
    }

    /// As [`publish`](Self::publish), with a pin that outlives the borrow of the map.
    ///
    /// # Panics
    /// As [`publish`](Self::publish).
    pub fn publish_pinned(self, frame: OwnedFrame<'a>, labels: Labels) -> (IsolatedFrame, KeptPin) {
        let (frames, id) = (&self.map.shared.frames, frame.id());
        let (isolated, pin) = self.publish_as(frame, labels, true, false);
        (isolated, KeptPin::new(frames, id, pin.expect("asked for")))
    }

    /// As [`publish`](Self::publish), of a page whose file doesn't have these bytes.
    ///
    /// # Panics
    /// As [`publish`](Self::publish).
    pub fn publish_dirty(self, frame: OwnedFrame<'a>, labels: Labels) -> IsolatedFrame {
        self.publish_as(frame, labels, false, true).0
    }

    fn publish_as(
        mut self,
        frame: OwnedFrame<'a>,
        labels: Labels,
        pin: bool,
        dirty: bool,
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
        frames.table.unfreeze(id, u32::from(pin));
        let pin = pin.then(|| PinnedFrame::new(frames.table.record(id), frames.bytes(id)));
        let resident = PageWord::resident(id, frames.table.generation(id));
        let resident = if dirty { resident.with_written() } else { resident };
        frames.waits.end_load(self.index, &frames.words.words[self.index], resident, Ok(()));
        (IsolatedFrame::new(id), pin)
    }

    /// Leaves the load to somebody else.
    pub(crate) fn give_up(mut self) {
        self.ended = true;
    }

    /// Ends the load without a page. Everybody who waits gets `failure`.
    pub fn fail(mut self, failure: LoadFailure) {
        self.end(failure);
    }

    fn end(&mut self, failure: LoadFailure) {
        self.ended = true;
        let frames = &self.map.shared.frames;
        frames.waits.end_load(self.index, &frames.words.words[self.index], self.before, Err(failure));
        if self.swapped().is_none() {
            frames.words.chunks.leave(self.index, false);
        }
    }
}

impl Drop for Loading<'_> {
    fn drop(&mut self) {
        if !self.ended {
            self.end(Self::ABANDONED);
        }
    }
}

impl Frames {
    /// The word of the page that an isolated frame holds.
    pub(crate) fn word_of(&self, frame: FrameId) -> (usize, &AtomicU64) {
        let index = self.table.word(frame) as usize;
        (index, &self.words.words[index])
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
