//! Writes to pages in memory, concurrently with readers that take no lock.
//!
//! A writer freezes the frame. From then on, the page has no pin, and no other writer, evictor or
//! pinner can get the frame (I1, I2 of `frame_table`). But a reader that takes neither a lock nor a
//! pin (*reading without a trace*, see `page_map`) may copy from the frame at the same time. Such
//! readers detect the writer by a version in the frame's record, which is odd while a thread
//! writes:
//! ```text
//!   writer (frame frozen)                          reader
//!   word: (f, g) → (f, g, WRITTEN)   first change  a = word.load(Acquire)      not written: as in `page_map`
//!   version: even → odd              Relaxed       v = version.load(Acquire)   odd: a thread is writing
//!   fence(Release)                                 copy bytes of frame(a)      Relaxed
//!   bytes                            Relaxed       fence(Acquire)
//!   version: → even                  Release       version.load(Relaxed) == v, word.load(Relaxed) == a? good
//!   write state: → dirty             Release
//! ```
//! - V1. If a reader copies a byte that a writer is writing, the reader's fence synchronises with
//!   the writer's fence. So when the reader loads word and version again, it sees the writer's
//!   change to one of them: if the word wasn't `WRITTEN` before, it is `WRITTEN` now; if it was,
//!   the version has changed.
//! - V2. If a reader loads the same version, and the same word, before and after its copy, then no
//!   writer changed the bytes during the copy. The reason: the version has 64 bits and never
//!   repeats within a stay, and a resident word is never reused (`page_word`).
//! - V3. While the word is `WRITTEN`, the frame belongs to this page, and so does the version in
//!   the frame's record. The reader's Acquire load of the word pairs with the Release that made the
//!   word `WRITTEN`, so the reader sees no version from before this stay.
//!
//! A reader of a written page also reads the frame's record: one cache line more than for other
//! pages. Therefore a page of a file doesn't stay `WRITTEN`: once the file has the page's bytes,
//! `writeback` *settles* the page, that is, removes `WRITTEN` from its word. So most hits on pages
//! of files find a word without `WRITTEN`. The fast path of a [`PageMap`] handles only such words,
//! which keeps the path short.
//!
//! Pages that belong to no file are never settled, so their readers need a fast path for written
//! pages. These readers find the page by its map's number. Therefore only the lookup by number
//! (`Lookup::read_hot_or_written`) has a fast path for written pages. It serves pages of files as
//! well.
//! - V4. A reader that must check a further condition, `still`, checks it after the copy and before
//!   it loads the version again. If word and version are then unchanged, the page was in its frame,
//!   with the copied bytes, when `still` was checked. If the reader checked `still` after the
//!   second load of the version, the page might have changed in between:
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

/// The maximum number of attempts to copy a page while threads keep writing to it. If all of these
/// attempts fail, the caller should pin the page.
const READ_ATTEMPTS: u32 = 8;

/// The result of [`PageMap::begin_write`].
#[derive(Debug)]
pub enum BeginWrite<'a> {
    /// This thread may write to the page.
    Begun(Writing<'a>),
    /// The page isn't in memory.
    Absent,
    /// The page is pinned.
    Pinned,
    /// Another thread has the page's frame frozen, for example to write to the page or to evict it,
    /// or has changed the page's state during this call.
    Busy,
}

/// A thread that waits to write to a page. Pins that overlap without a gap could starve the writer.
/// So from its second failed attempt on, the writer keeps new pinners out most of the time.
///
/// The writer must let pinners in from time to time, to prevent a deadlock: a thread that holds a
/// pin of the page may wait for another pin of the same page, while the writer waits for the first
/// pin to end.
///
/// So pinners are kept out for about 30 ms, then let in for 8 ms, and both times about double from
/// round to round. While pinners are kept out, the writer waits only for the existing pins to end.
/// As the times grow, pinners are eventually kept out for longer than these pins last, and the
/// writer gets the page.
#[derive(Debug)]
pub struct Writer<'a> {
    frames: &'a Frames,
    place: Place<'a>,
    attempts: u32,
    /// The frame whose new pinners are kept out.
    closed: Option<FrameId>,
}

/// How a writer finds its page.
#[derive(Clone, Copy, Debug)]
enum Place<'a> {
    /// The page's word, and the word's index.
    Word(usize, &'a AtomicU64),
    /// A page that had no word at the last check.
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

    /// Begins to write to the page if this is possible now.
    #[inline]
    pub fn begin(&mut self) -> BeginWrite<'a> {
        let begun = match self.place {
            Place::Word(index, word) => self.frames.begin_write_word(index, word),
            Place::Page(map, page) => self.begin_without_word(map, page),
        };
        // The usual case skips this: the page was available at once.
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

    /// Keeps new pinners out, or lets them in, depending on the result and the number of attempts.
    #[cold]
    fn note(&mut self, begun: &BeginWrite<'_>) {
        self.attempts = self.attempts.saturating_add(1);
        let mut close = None;
        if matches!(begun, BeginWrite::Pinned) && keeps_pinners_out(self.attempts) {
            close = self.resident_frame();
        }
        // The page may be in another frame now, or this thread has the frame frozen.
        if self.closed != close {
            self.let_pinners_in();
        }
        self.closed = close;
        if let Some(frame) = close {
            // Repeats this each time, because another writer may have cleared the flag.
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

/// Returns whether the writer keeps pinners out after this number of attempts. The writer does so
/// from the second attempt on. But from attempt 64 on, it lets pinners in from time to time: during
/// the first eighth of the attempts from 64 to 127, of those from 128 to 255, and so on. These
/// attempts are about a millisecond apart.
fn keeps_pinners_out(attempts: u32) -> bool {
    match attempts {
        0 | 1 => false,
        2..64 => true,
        _ => attempts >> (attempts.ilog2() - 3) & 7 != 0,
    }
}

/// A page in memory that only this thread may write to. Other threads can read it without a trace,
/// but can't pin it.
#[derive(Debug)]
pub struct Writing<'a> {
    frames: &'a Frames,
    frame: FrameId,
    /// The index of the page's word if the word must still be made `WRITTEN`, or `None` if it is
    /// `WRITTEN` already. The word becomes `WRITTEN` only when the page's bytes are first changed.
    /// If no byte is changed, the word must stay as it is: the page is clean, and a clean page
    /// causes no writeback that would remove `WRITTEN` again.
    unwritten: Option<usize>,
}

impl PageMap {
    /// Creates a [`Writer`], which may wait for the page for any length of time.
    #[must_use]
    pub fn writer(&self, page: u64) -> Writer<'_> {
        let place = self.word(page).map_or(Place::Page(self, page), |(index, word)| Place::Word(index, word));
        Writer::new(&self.shared.frames, place)
    }

    /// Begins to write to a page that is in memory; the page may be past the object's length.
    #[must_use]
    pub fn begin_write(&self, page: u64) -> BeginWrite<'_> {
        match self.word(page) {
            Some((index, word)) => self.shared.frames.begin_write_word(index, word),
            None => BeginWrite::Absent,
        }
    }

    /// Copies bytes like [`read_word`](Self::read_word), but from a page that was written to.
    /// Compares the page's version before and after the copy (V2), and retries a few times.
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
                // The page was settled, or is gone; at worst the caller finds it vacant.
                return before.frame().is_some() && self.read_word(word, offset, into, ahead, still);
            }
            if self.lookup.copy_version(self.frames(), (word, before), offset, into, &still) {
                self.lookup.frame(self.frames(), before).0.write_state.count_use();
                return true;
            }
            backoff.wait();
        }
        false
    }
}

impl Frames {
    /// Begins to write to the page with this word and this index.
    #[inline]
    pub(crate) fn begin_write_word(&self, index: usize, word: &AtomicU64) -> BeginWrite<'_> {
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        let Some(frame) = before.frame() else { return BeginWrite::Absent };
        let table = &self.table;
        if !table.freeze(frame) {
            return if table.is_pinned(frame) { BeginWrite::Pinned } else { BeginWrite::Busy };
        }
        let mut writing = Writing { frames: self, frame, unwritten: None };
        // Checks that the frame still holds this page. The frame may have gone to another page
        // before this thread froze it; the page's word then no longer names the frame. A Relaxed
        // load is enough: `freeze` is Acquire, and if the word still names the frame, other threads
        // change at most the word's hot bit while the frame is frozen.
        let now = PageWord::from_bits(word.load(Ordering::Relaxed));
        if !before.same_stay(now) {
            return BeginWrite::Busy;
        }
        table.record(frame).write_state.take_ahead();
        writing.unwritten = (!now.is_written()).then_some(index);
        BeginWrite::Begun(writing)
    }
}

/// Makes the word of a frozen page a written one, and moves its hot bit to the record.
fn become_written(word: &AtomicU64, record: &FrameRecord) {
    // Relaxed: the Acquire of `freeze` makes the word's last change visible.
    let seen = PageWord::from_bits(word.load(Ordering::Relaxed));
    let mut now = seen;
    loop {
        // Release pairs with the Acquire loads of readers (V3). Relaxed on failure: a reader has
        // set the hot bit.
        let written = now.with_written().bits();
        match word.compare_exchange(now.bits(), written, Ordering::Release, Ordering::Relaxed) {
            // Transition: page word, resident → written.
            Ok(_) => break,
            Err(other) => now = PageWord::from_bits(other),
        }
        debug_assert!(now.same_stay(seen), "a frozen frame's word changed");
    }
    if now.is_hot() {
        record.write_state.set_hot();
    }
}

impl<'a> Writing<'a> {
    /// Rebinds the page to a borrow of `frames`, which must be the same frames.
    pub(crate) fn in_frames(self, frames: &Frames) -> Writing<'_> {
        assert!(std::ptr::eq(self.frames, frames), "the page is in other frames");
        let (frame, unwritten) = self.into_parts();
        Writing { frames, frame, unwritten }
    }

    /// Gives up the guard but not the access: the caller must unfreeze the frame.
    pub(crate) fn into_parts(self) -> (FrameId, Option<usize>) {
        let parts = (self.frame, self.unwritten);
        std::mem::forget(self);
        parts
    }

    /// Wraps what [`into_parts`](Self::into_parts) returned.
    pub(crate) fn of_parts(frames: &'a Frames, frame: FrameId, unwritten: Option<usize>) -> Self {
        Self { frames, frame, unwritten }
    }

    pub(crate) fn unwritten(&self) -> Option<usize> {
        self.unwritten
    }
}

impl Writing<'_> {
    #[inline]
    fn record(&self) -> &FrameRecord {
        self.frames.table.record(self.frame)
    }

    /// Overwrites the page's bytes from `offset` on. Returns whether the page was clean before.
    ///
    /// # Panics
    /// If the range isn't within the page.
    #[must_use = "the caller counts unclean pages, and has to count this one"]
    pub fn write(&mut self, offset: usize, from: &[u8]) -> bool {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change(|| bytes.copy_from(offset, from))
    }

    /// Writes like [`write`](Self::write), and then calls `grow` while the version is still odd. So
    /// a reader that copies any of the new bytes sees what `grow` did.
    ///
    /// # Panics
    /// If the range isn't within the page.
    #[must_use = "the caller counts unclean pages, and has to count this one"]
    pub fn write_and(&mut self, offset: usize, from: &[u8], grow: impl FnOnce()) -> bool {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change(|| {
            bytes.copy_from(offset, from);
            grow();
        })
    }

    /// Copies bytes into the page, from `offset` on. The page's file already has these bytes, so
    /// the page's write state doesn't change.
    ///
    /// # Panics
    /// If the range isn't within the page.
    pub fn complete(&mut self, offset: usize, from: &[u8]) {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change_bytes(|| bytes.copy_from(offset, from));
    }

    /// Writes like [`write`](Self::write), but for a page that belongs to no file. If the page is
    /// already dirty and hot, leaves its write state unchanged, which saves a read-modify-write.
    /// This loses no change, because no flusher writes the page anywhere. A flusher can only hold
    /// the page by mistake, for a moment, and then makes the page dirty again (S3, S4 of
    /// `write_state`).
    ///
    /// # Panics
    /// If the range isn't within the page.
    #[inline]
    pub fn write_unfiled(&mut self, offset: usize, from: &[u8]) {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change_bytes(|| bytes.copy_from(offset, from));
        self.record().write_state.written_unfiled();
    }

    /// Zeroes the page from `offset` on; the file ends there. The page's write state doesn't
    /// change.
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
        // Relaxed: the frame is frozen, so only this thread changes the version.
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

    /// Returns whether this is a forked child process, in which the parent's frame reads as zeros.
    #[must_use]
    pub fn forked(&self) -> bool {
        self.frames.forked()
    }

    /// Returns whether the page is clean: its file has the page's bytes, including all changes up
    /// to now. A clean page stays clean until this thread changes it. A page that isn't clean may
    /// become clean at any moment.
    #[must_use]
    pub fn is_clean(&self) -> bool {
        self.record().write_state.is_clean()
    }

    /// Returns the group that is charged for the page.
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
