//! Writing to a page in memory, beside readers that take no lock.
//!
//! A writer freezes the frame: no pin is left, and no other writer, evictor or pinner gets in (I1,
//! I2 of `frame_table`). Only readers that leave no trace may be copying meanwhile; they find out
//! by themselves:
//! ```text
//!   writer (frame frozen)                          reader
//!   word: (f, g) → (f, g, WRITTEN)   first change  a = word.load(Acquire)      not written: as in `page_map`
//!   version: even → odd              Relaxed       v = version.load(Acquire)   odd: a thread is writing
//!   fence(Release)                                 copy bytes of frame(a)      Relaxed
//!   bytes                            Relaxed       fence(Acquire)
//!   version: → even                  Release       version.load(Relaxed) == v, word.load(Relaxed) == a? good
//!   write state: → dirty             Release
//! ```
//! - V1. A reader that copied a byte which is being written synchronises, fence to fence, with the
//!   writer, and so finds the word `WRITTEN` if it saw it clean, or another version if it saw it
//!   written.
//! - V2. A reader whose two looks at the version agree, with the word the same before and after,
//!   copied what one writer left and before the next one began: P1. The version has 64 bits and
//!   never comes back within a stay; the word never does (`page_word`).
//! - V3. While the word says `WRITTEN`, the frame is this page's, so the version looked at is.
//!   Loading the word with Acquire pairs with the Release that made it written; so the version is
//!   that of this stay.
//!
//! Readers of written pages touch the frame's record, one cache line more than the others. That is
//! why pages of files don't stay `WRITTEN`: `writeback` settles them. Pages that no file has are
//! never settled, so lookups by a map's number have a short way for written pages as well
//! (`Lookup::read_hot_or_written`); it also serves pages of files that are looked up so. A
//! [`PageMap`]'s own short way, which serves most hits of files, is shorter because it leaves
//! written pages out.
//! - V4. A reader that has to ask a third thing, `still`, asks it between the copy and the second
//!   look at the version. At that moment the page is in its frame, and its bytes are those that
//!   were copied, because the word and the version are the same before and after. If the reader
//!   asked after the second look, the answer could be about something later:
//!   ```text
//!     reader                            others
//!     word, version                     permitted: no;  bytes = x
//!     copies x
//!     version the same                  bytes = y;  permitted: yes
//!     permitted? yes: returns x, which was there only while reading wasn't permitted
//!   ```

use sync::atomic::{AtomicU64, Backoff, Ordering, fence};

use crate::frame_id::FrameId;
use crate::frame_table::FrameRecord;
use crate::frames::Frames;
use crate::page_map::PageMap;
use crate::page_word::PageWord;
use crate::write_state::Ahead;

/// How often a reader tries to copy a page that is written to all the time. Then it had better pin
/// it.
const READ_ATTEMPTS: u32 = 8;

/// What [`PageMap::begin_write`] found.
#[derive(Debug)]
pub enum BeginWrite<'a> {
    /// The page is this thread's to write to.
    Begun(Writing<'a>),
    /// It isn't in memory.
    Absent,
    /// It is pinned.
    Pinned,
    /// Another thread writes to it, or checks whether to evict it.
    Busy,
}

/// A thread that wants to write to a page, and waits for it. While it lives, new pinners of the
/// page are kept out most of the time, once it has found the page pinned for a second time, so pins
/// that overlap end.
///
/// Most of the time only: a thread that waits for another pin of a page that it has pinned already
/// would wait for itself. So pinners are kept out for some 30 ms, let in for 8 ms, kept out for
/// twice as long, let in for twice as long, and so on. A pin that is shorter than such a time keeps
/// the writer out no longer than until it ends.
#[derive(Debug)]
pub struct Writer<'a> {
    frames: &'a Frames,
    place: Place<'a>,
    attempts: u32,
    /// The frame whose pinners are kept out.
    closed: Option<FrameId>,
}

/// Where a writer's page is.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// The page's word, and its number.
    Word(usize, &'a AtomicU64),
    /// A page that had no word when that was last looked for.
    Page(&'a PageMap, u64),
}

impl<'a> Writer<'a> {
    #[inline]
    pub(crate) fn of_word(frames: &'a Frames, index: usize, word: &'a AtomicU64) -> Self {
        Self::new(frames, Place::Word(index, word))
    }

    #[inline]
    fn new(frames: &'a Frames, place: Place<'a>) -> Self {
        Self { frames, place, attempts: 0, closed: None }
    }

    /// Starts to write to the page, if it can be had now.
    #[inline]
    pub fn begin(&mut self) -> BeginWrite<'a> {
        let begun = match self.place {
            Place::Word(index, word) => self.frames.begin_write_word(index, word),
            Place::Page(map, page) => self.begin_without_word(map, page),
        };
        // Most often at once.
        if self.closed.is_some() || matches!(begun, BeginWrite::Pinned | BeginWrite::Busy) {
            self.note(&begun);
        }
        begun
    }

    #[cold]
    fn begin_without_word(&mut self, map: &'a PageMap, page: u64) -> BeginWrite<'a> {
        let Some((index, word)) = map.word(page) else { return BeginWrite::Absent };
        self.place = Place::Word(index, word);
        self.frames.begin_write_word(index, word)
    }

    /// Keeps pinners out, or lets them in.
    #[cold]
    fn note(&mut self, begun: &BeginWrite<'_>) {
        self.attempts = self.attempts.saturating_add(1);
        let mut close = None;
        if matches!(begun, BeginWrite::Pinned) && keeps_pinners_out(self.attempts) {
            close = self.resident_frame();
        }
        // The page may have another frame by now, or this thread has it frozen.
        if self.closed != close {
            self.let_pinners_in();
        }
        self.closed = close;
        if let Some(frame) = close {
            // Each time: another writer may have ended it.
            self.frames.table.keep_pinners_out(frame);
        }
    }

    fn resident_frame(&self) -> Option<FrameId> {
        let Place::Word(_, word) = self.place else { return None };
        PageWord::from_bits(word.load(Ordering::Acquire)).frame()
    }

    #[cold]
    fn let_pinners_in(&mut self) {
        if let Some(frame) = self.closed.take() {
            self.frames.table.let_pinners_in(frame);
        }
    }
}

impl Drop for Writer<'_> {
    #[inline]
    fn drop(&mut self) {
        if self.closed.is_some() {
            self.let_pinners_in();
        }
    }
}

/// Whether pinners are kept out after so many attempts, the later of which are a millisecond apart:
/// from the second on, but for the first eighth of those from 64 to 127, from 128 to 255, and so
/// on.
fn keeps_pinners_out(attempts: u32) -> bool {
    match attempts {
        0 | 1 => false,
        2..64 => true,
        _ => attempts >> (attempts.ilog2() - 3) & 7 != 0,
    }
}

/// A page in memory that this thread alone may write to. Others read it without a trace, but can't
/// pin it.
#[derive(Debug)]
pub struct Writing<'a> {
    frames: &'a Frames,
    frame: FrameId,
    /// The number of the page's word, while that isn't a written page's: it becomes one with the
    /// first change, as no write-back comes by to settle a page that has none.
    unwritten: Option<usize>,
}

impl PageMap {
    /// A thread that wants to write to a page, however long it may have to wait for that.
    #[must_use]
    pub fn writer(&self, page: u64) -> Writer<'_> {
        let place = self.word(page).map_or(Place::Page(self, page), |(index, word)| Place::Word(index, word));
        Writer::new(&self.shared.frames, place)
    }

    /// Starts to write to a page that is in memory; it may be past the object's length.
    #[must_use]
    pub fn begin_write(&self, page: u64) -> BeginWrite<'_> {
        match self.word(page) {
            Some((index, word)) => self.shared.frames.begin_write_word(index, word),
            None => BeginWrite::Absent,
        }
    }

    /// As [`read_word`](Self::read_word), of a page that was written to.
    pub(crate) fn read_written(
        &self,
        word: &AtomicU64,
        offset: usize,
        into: &mut [u8],
        ahead: &mut Ahead,
        still: impl Fn() -> bool,
    ) -> bool {
        let mut backoff = Backoff::new();
        while backoff.turns() < READ_ATTEMPTS {
            let before = PageWord::from_bits(word.load(Ordering::Acquire));
            if !before.is_written() {
                // Settled, or gone: at worst the caller finds it vacant.
                return before.frame().is_some() && self.read_word(word, offset, into, ahead, still);
            }
            if self.lookup.copy_version(self.frames(), (word, before), offset, into, &still) {
                self.lookup.frame(self.frames(), before).0.write_state.reference();
                return true;
            }
            backoff.wait();
        }
        false
    }
}

impl Frames {
    /// Starts to write to the page with that word, which has that number among all.
    #[inline]
    pub(crate) fn begin_write_word(&self, index: usize, word: &AtomicU64) -> BeginWrite<'_> {
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        let Some(frame) = before.frame() else { return BeginWrite::Absent };
        let table = &self.table;
        if !table.freeze(frame) {
            return if table.is_pinned(frame) { BeginWrite::Pinned } else { BeginWrite::Busy };
        }
        let mut writing = Writing { frames: self, frame, unwritten: None };
        // The frame may have gone to another page before it was frozen. If it hasn't, the word
        // stays but for the referenced bit. Relaxed: the Acquire of `freeze`.
        let now = PageWord::from_bits(word.load(Ordering::Relaxed));
        if !before.same_stay(now) {
            return BeginWrite::Busy;
        }
        table.record(frame).write_state.take_ahead();
        writing.unwritten = (!now.is_written()).then_some(index);
        BeginWrite::Begun(writing)
    }
}

/// Makes a frozen page's word a written one, and notes in its record whether it was referenced.
fn become_written(word: &AtomicU64, record: &FrameRecord) {
    // Relaxed: the Acquire of `freeze`.
    let seen = PageWord::from_bits(word.load(Ordering::Relaxed));
    let mut now = seen;
    loop {
        // Release pairs with the Acquire loads of readers (V3). Relaxed on failure: a reader has
        // set the referenced bit.
        let written = now.with_written().bits();
        match word.compare_exchange(now.bits(), written, Ordering::Release, Ordering::Relaxed) {
            // Transition: page word, resident → written.
            Ok(_) => break,
            Err(other) => now = PageWord::from_bits(other),
        }
        debug_assert!(now.same_stay(seen), "a frozen frame's word changed");
    }
    if now.is_referenced() {
        record.write_state.reference();
    }
}

impl<'a> Writing<'a> {
    /// Hands the page over to a borrower of `frames`, which are the same.
    pub(crate) fn in_frames(self, frames: &Frames) -> Writing<'_> {
        assert!(std::ptr::eq(self.frames, frames), "the page is in other frames");
        let (frame, unwritten) = (self.frame, self.unwritten);
        std::mem::forget(self);
        Writing { frames, frame, unwritten }
    }
}

impl Writing<'_> {
    #[inline]
    fn record(&self) -> &FrameRecord {
        self.frames.table.record(self.frame)
    }

    /// Overwrites the page's bytes from `offset` on. Says whether the page was clean until now.
    ///
    /// # Panics
    /// If the range leaves the page.
    #[must_use = "who counts unclean pages has to count this one"]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> bool {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change(|| bytes.copy_from(offset, from))
    }

    /// As [`write`](Self::write); runs `grow` in the same step of the version. A reader that copies
    /// any of the new bytes therefore sees what `grow` did.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[must_use = "the caller counts unclean pages, and has to count this one"]
    pub fn write_and(&mut self, offset: usize, from: &[u8], grow: impl FnOnce()) -> bool {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change(|| {
            bytes.copy_from(offset, from);
            grow();
        })
    }

    /// Puts the file's own bytes into the page from `offset` on. The page stays as clean or dirty
    /// as it is, because its file has these bytes.
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn complete(&mut self, offset: usize, from: &[u8]) {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change_bytes(|| bytes.copy_from(offset, from));
    }

    /// As [`write`](Self::write), for a page that no file has. A flusher holds such a page only by
    /// mistake and for a moment: a page that was dirty is dirty again afterwards (S3, S4 of
    /// `write_state`).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    #[inline]
    pub fn write_unfiled(&mut self, offset: usize, from: &[u8]) {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change_bytes(|| bytes.copy_from(offset, from));
        self.record().write_state.written_unfiled();
    }

    /// Zeroes the page from `offset` on, where its file ends. The page stays as clean or dirty as
    /// it is.
    pub fn zero_from(&mut self, offset: usize) {
        let bytes = self.frames.bytes(self.frame);
        self.change_bytes(|| bytes.zero_from(offset.min(bytes.len())));
    }

    fn change(&mut self, change: impl FnOnce()) -> bool {
        self.change_bytes(change);
        self.record().write_state.written()
    }

    #[inline]
    fn change_bytes(&mut self, change: impl FnOnce()) {
        if let Some(index) = self.unwritten.take() {
            let words = &self.frames.words;
            words.chunks.add_written(index);
            become_written(&words.words[index], self.record());
        }
        let record = self.record();
        // Relaxed: the frame is frozen, so this thread alone changes the version.
        let version = record.version.load(Ordering::Relaxed);
        record.version.store(version + 1, Ordering::Relaxed);
        // Pairs with the fences in `Lookup::copy_version` and `copy_and_look` (V1).
        fence(Ordering::Release);
        change();
        // Release pairs with the Acquire load of `Lookup::copy_version` (V2).
        record.version.store(version + 2, Ordering::Release);
    }

    /// Copies from the page.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.frames.bytes(self.frame).copy_to(offset, into);
    }

    /// Whether the frame is a parent process's, and this one has nothing of it.
    #[must_use]
    pub fn forked(&self) -> bool {
        self.frames.forked()
    }

    /// Whether the file has the page's bytes, as far as they were written to before. A page that
    /// isn't clean may become so at any moment, but not the other way round.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.record().write_state.is_clean()
    }

    /// The group that is charged for the page.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.frames.group(self.frame)
    }
}

impl Drop for Writing<'_> {
    #[inline]
    fn drop(&mut self) {
        self.frames.table.unfreeze(self.frame, 0);
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
