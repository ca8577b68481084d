//! Writing to a page in memory, beside readers who take no lock.
//!
//! A writer freezes the frame: no pin is left, and no other writer, evictor or pinner gets in (I1, I2 of
//! `frame_table`). Only readers that leave no trace may be copying meanwhile; they find out by themselves:
//! ```text
//!   writer (frame frozen)                          reader
//!   word: (f, g) → (f, g, WRITTEN)   once          a = word.load(Acquire)      not written: as in `page_map`
//!   version: even → odd              Relaxed       v = version.load(Acquire)   odd: somebody writes
//!   fence(Release)                                 copy bytes of frame(a)      Relaxed
//!   bytes                            Relaxed       fence(Acquire)
//!   version: → even                  Release       version.load(Relaxed) == v, word.load(Relaxed) == a? good
//!   write state: → dirty             Release
//! ```
//! - V1. A reader that copied a byte which is being written synchronises, fence to fence, with the writer, and so finds
//!   the word `WRITTEN` if it saw it clean, or another version if it saw it written.
//! - V2. A reader whose two looks at the version agree, with the word the same before and after, copied what one writer left
//!   and before the next one began: P1. The version has 64 bits and never comes back within a stay; the word never does
//!   (`page_word`).
//! - V3. While the word says `WRITTEN`, the frame is this page's, so the version looked at is. Loading the word with
//!   Acquire pairs with the Release that made it written; so the version is that of this stay.
//!
//! Readers of written pages touch the frame's record, a line more than the others, which is why pages of files don't stay
//! `WRITTEN`: `writeback` settles them. Nobody settles pages that no file has, so what looks them up by a map's number has a short
//! way for written pages as well (`Lookup::read_hot_or_written`), and so have files' pages that are found so. A [`PageMap`]'s own short
//! way, that of most files' hits, is the shorter for not knowing of it.
//! - V4. Who asks for a third thing, `still`, does so between the copy and the second look at the version. At that moment the page is
//!   in its frame, and its bytes are those that were copied: the word and the version are the same before and after. Asked after
//!   the version, a reader might go by what came later:
//!   ```text
//!     reader                            others
//!     word, version                     permitted: no;  bytes = x
//!     copies x
//!     version the same                  bytes = y;  permitted: yes
//!     permitted? yes: returns x, which was there only while nobody was permitted to read
//!   ```

use sync::atomic::{AtomicU64, Backoff, Ordering, fence};

use crate::frame_table::{FrameId, FrameRecord};
use crate::frames::Frames;
use crate::page_map::PageMap;
use crate::page_word::PageWord;
use crate::write_state::Ahead;

/// How often a reader tries to copy a page that is written to all the time. Then it had better pin it.
const READ_ATTEMPTS: u32 = 8;

/// What [`PageMap::begin_write`] found.
#[derive(Debug)]
pub enum BeginWrite<'a> {
    /// The page is this thread's to write to.
    Begun(Writing<'a>),
    /// It isn't in memory.
    Absent,
    /// Somebody has it pinned.
    Pinned,
    /// Somebody else writes to it, or looks whether to evict it.
    Busy,
}

/// A page in memory that this thread alone may write to. Others read it without a trace, but can't pin it.
#[derive(Debug)]
pub struct Writing<'a> {
    frames: &'a Frames,
    frame: FrameId,
}

impl PageMap {
    /// Starts to write to a page that is in memory; it may be past the object's length.
    #[must_use]
    pub fn begin_write(&self, page: u64) -> BeginWrite<'_> {
        let Some((index, word)) = self.word(page) else { return BeginWrite::Absent };
        let before = PageWord::from_bits(word.load(Ordering::Acquire));
        let Some(frame) = before.frame() else { return BeginWrite::Absent };
        let table = &self.shared.frames.table;
        if !table.freeze(frame) {
            return if table.is_pinned(frame) { BeginWrite::Pinned } else { BeginWrite::Busy };
        }
        let writing = Writing::new(&self.shared.frames, frame);
        // The frame may have gone to another page before it was frozen. If it hasn't, the word stays but for the
        // referenced bit. Relaxed: the Acquire of `freeze`.
        let now = PageWord::from_bits(word.load(Ordering::Relaxed));
        if !before.same_stay(now) {
            return BeginWrite::Busy;
        }
        table.record(frame).write_state.take_ahead();
        if !now.is_written() {
            self.shared.frames.words.chunks.add_written(index);
            become_written(word, now, table.record(frame));
        }
        BeginWrite::Begun(writing)
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

/// Makes a frozen page's word a written one, and notes in its record whether it was referenced.
fn become_written(word: &AtomicU64, seen: PageWord, record: &FrameRecord) {
    let mut now = seen;
    loop {
        // Release pairs with the Acquire loads of readers (V3). Relaxed on failure: a reader has set the referenced bit.
        let written = now.with_written().bits();
        match word.compare_exchange(now.bits(), written, Ordering::Release, Ordering::Relaxed) {
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
    /// Of a frame that the caller owns.
    pub(crate) fn new(frames: &'a Frames, frame: FrameId) -> Self {
        Self { frames, frame }
    }

    /// Leaves the frame, one of `frames`, to the caller.
    pub(crate) fn give_up(self, frames: &Frames) -> FrameId {
        assert!(std::ptr::eq(self.frames, frames), "the page is in other frames");
        let frame = self.frame;
        std::mem::forget(self);
        frame
    }
}

impl Writing<'_> {
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

    /// The same of a page that no file has, and so nobody holds for long: one that is dirty stays so, whoever is about (S3 of
    /// `write_state`).
    ///
    /// # Panics
    /// As [`write`](Self::write).
    pub fn write_unfiled(&mut self, offset: usize, from: &[u8]) {
        let bytes = self.frames.bytes(self.frame);
        assert!(offset.checked_add(from.len()).is_some_and(|end| end <= bytes.len()), "range outside of the page");
        self.change_bytes(|| bytes.copy_from(offset, from));
        self.record().write_state.written_unfiled();
    }

    /// Zeroes the page from `offset` on. Says whether the page was clean until now.
    #[must_use = "who counts unclean pages has to count this one"]
    pub fn zero_from(&mut self, offset: usize) -> bool {
        let bytes = self.frames.bytes(self.frame);
        self.change(|| bytes.zero_from(offset.min(bytes.len())))
    }

    fn change(&self, change: impl FnOnce()) -> bool {
        self.change_bytes(change);
        self.record().write_state.written()
    }

    fn change_bytes(&self, change: impl FnOnce()) {
        let record = self.record();
        // Relaxed: the frame is frozen, so this thread alone changes the version.
        let version = record.version.load(Ordering::Relaxed);
        record.version.store(version + 1, Ordering::Relaxed);
        // Pairs with the fence in `read_written`, and with those in `Lookup::read_hot` and `PageMap::read` (V1).
        fence(Ordering::Release);
        change();
        // Release pairs with the Acquire load of `read_written` (V2).
        record.version.store(version + 2, Ordering::Release);
    }

    /// Copies from the page.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.frames.bytes(self.frame).copy_to(offset, into);
    }

    /// The group that is charged for the page.
    #[must_use]
    pub fn group(&self) -> u32 {
        self.frames.group(self.frame)
    }
}

impl Drop for Writing<'_> {
    fn drop(&mut self) {
        self.frames.table.unfreeze(self.frame, 0);
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
