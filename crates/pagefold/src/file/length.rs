//! How long a file is, here and where it is kept, and how a length that another process has given
//! it is taken over.
//!
//! Two lengths are known of a file. `len`, in the page map, is what readers see. `disk_len` is what
//! the file is known to have where it is kept; `len` is longer while bytes that were appended wait
//! for write-back.
//!
//! # Invariants
//! - N1. Both change under `extension` alone; but write-back raises `disk_len`, up to `len`.
//! - N2. Every byte from `disk_len` to `len` was written through Pagefold. So write-back puts no
//!   zeros of its own over what another process appends. A write that would leave a gap makes the
//!   file longer first ([`FileState::close_gap`]).
//! - N3. Behind `len`, a page in memory may hold anything: bytes of a file that was longer, or that
//!   has grown. Before `len` grows, what comes to lie below it is made right: overwritten by the
//!   write that makes the file longer, or completed from the file ([`FileState::hold_end`]); pages
//!   that lie behind `len` as a whole leave memory.
//! - N4. Write-back writes nothing behind `len`. Of a page in which another process appended, it
//!   writes what lies before.
//! - N5. `disk_len` is read before the file is asked for its length. If the file has fewer bytes,
//!   it was cut off: write-back never makes it shorter. Nothing may be on its way to it while that
//!   is taken over; everything behind the new end goes, and if there were changes among it that
//!   weren't written back, each handle's next `sync` reports [`IoError::CutOff`].
//!
//! Lock order: `extension` → `writeback`'s `turn` → the page. A page with the old end that is
//! pinned, or being loaded or changed, isn't waited for with `extension` held: the caller lets go
//! and tries again, or refuses.
//!
//! ```text
//!   takes over growth (extension held)          loader of the page with the old end
//!   asks for the length: it has grown
//!   page is in memory: drops or completes it
//!   page is loading: lets go, tries again       began before: perhaps without the bytes that were appended
//!   page is vacant                              begins now: reads what was appended, too
//!   len = the new one
//! ```
//! A writer that makes this page without reading it, because it overwrites all that the file has of
//! it, would miss the bytes that were appended: therefore it needs `extension`
//! (`Handle::needs_reading`).

use std::ops::Range;

use frames::{BeginWrite, PageState, Writer, Writing};
use sync::SharedBytes;
use sync::atomic::{Backoff, Ordering};

use crate::error::Error;
use crate::file::state::{Dropped, FileState};
use crate::stats::Counters;
use io::{IoError, read_full, uninterrupted};

/// Bytes that a file may have: as many as the system can count.
pub(crate) const LEN_MAX: u64 = i64::MAX as u64;

/// What came of an attempt to make the pages at the file's end fit a longer file.
pub(crate) enum Attempt<T> {
    Done(T),
    /// This page is pinned, or being loaded or changed.
    Busy(u64),
}

/// A thread that wants to make the file longer, and finds the page with the old end in use.
#[derive(Debug, Default)]
pub(crate) struct EndWait<'a> {
    backoff: Backoff,
    /// Keeps new pinners out of that page.
    writer: Option<(u64, Writer<'a>)>,
}

impl<'a> EndWait<'a> {
    /// Waits a moment for `page`. Pins of it that overlap end in the meantime.
    ///
    /// # Errors
    /// [`Error::PageBusy`], if that has gone on for seconds.
    pub(crate) fn wait(&mut self, file: &'a FileState, page: u64) -> Result<(), Error> {
        if self.writer.as_ref().is_some_and(|(of, _)| *of != page) {
            self.writer = None;
        }
        let (_, writer) = self.writer.get_or_insert_with(|| (page, file.map.writer(page)));
        drop(writer.begin()); // The next attempt takes the page as it needs it.
        self.backoff.wait_or(|| file.page_busy(page))
    }
}

/// The page with the file's end, as far as it is in memory.
pub(crate) enum End<'a> {
    /// It isn't, or lies before the end as a whole.
    Gone,
    /// It was changed, and stays.
    Held(Writing<'a>),
}

impl FileState {
    /// The length in bytes, as far as is known.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.map.len()
    }

    /// How long the file is where it is kept, as far as is known. Acquire pairs with
    /// `written_up_to`: a thread that finds that a page was evicted after its write-back also finds
    /// that the file has it.
    pub(crate) fn disk_len(&self) -> u64 {
        self.disk_len.load(Ordering::Acquire)
    }

    /// The file has bytes up to `end`.
    pub(crate) fn written_up_to(&self, end: u64) {
        self.disk_len.fetch_max(end, Ordering::AcqRel);
    }

    /// The file has `len` bytes, if it hasn't more. For the caller that holds `extension`, like the
    /// next two.
    pub(crate) fn grow_to(&self, len: u64) {
        if len > self.len() {
            self.map.set_len(len);
        }
    }

    /// The file has `len` bytes, here and where it is kept.
    pub(crate) fn length_is(&self, len: u64) {
        self.disk_len.store(len, Ordering::Release);
        self.map.set_len(len);
    }

    /// The file has `len` bytes, and fewer than it had.
    pub(crate) fn shrink_to(&self, len: u64) {
        self.map.set_len(len);
    }

    /// Asks the system for the length, which another process may have changed, takes it over and
    /// returns it. What we have written past the end, and not written back yet, counts as well.
    /// Waits for the page with the old end if need be.
    ///
    /// # Errors
    /// The system's; [`Error::PageBusy`].
    pub(crate) fn refresh_len(&self) -> Result<u64, Error> {
        self.refresh_len_by(|| self.try_refresh_len())
    }

    /// [`refresh_len`](Self::refresh_len), in this thread however long the device takes.
    pub(crate) fn refresh_len_here(&self) -> Result<u64, Error> {
        self.refresh_len_by(|| self.refresh_len_once())
    }

    fn refresh_len_by(&self, attempt: impl Fn() -> Result<Attempt<u64>, Error>) -> Result<u64, Error> {
        let mut end = EndWait::default();
        loop {
            match attempt()? {
                Attempt::Done(len) => return Ok(len),
                Attempt::Busy(page) => end.wait(self, page)?,
            }
        }
    }

    /// [`refresh_len`](Self::refresh_len), without waiting for a page.
    pub(crate) fn try_refresh_len(&self) -> Result<Attempt<u64>, Error> {
        // Most often nothing has changed, and to know that takes no device.
        if self.watch().is_some() && self.is_len_sure()? {
            return Ok(Attempt::Done(self.len()));
        }
        self.in_time(|file| file.refresh_len_once())
    }

    /// Whether the system has another length than is known.
    fn has_other_len(&self) -> Result<bool, Error> {
        let known = self.disk_len(); // N5
        let actual = self.ask_len()?;
        Ok(actual < known || self.len() < actual)
    }

    /// Whether the system has no other length than is known, as far as it says so at once.
    pub(crate) fn is_len_sure(&self) -> Result<bool, Error> {
        Ok(self.backing.tells_len_at_once() && !self.has_other_len()?)
    }

    pub(crate) fn refresh_len_once(&self) -> Result<Attempt<u64>, Error> {
        if !self.has_other_len()? {
            return Ok(Attempt::Done(self.len()));
        }
        // Relaxed: a hint that spares the caller waiting for the cut, before which the length is
        // lowered (Z1 of `set_len`).
        if self.is_cutting.load(Ordering::Relaxed) {
            return Ok(Attempt::Done(self.len()));
        }
        let _turn = self.extension.lock();
        self.take_over_whole()
    }

    /// [`refresh_len`](Self::refresh_len), for the caller that holds `extension`.
    pub(crate) fn refresh_len_in_turn(&self) -> Result<u64, Error> {
        let mut end = EndWait::default();
        loop {
            match self.take_over_whole()? {
                Attempt::Done(len) => return Ok(len),
                Attempt::Busy(page) => end.wait(self, page)?,
            }
        }
    }

    fn take_over_whole(&self) -> Result<Attempt<u64>, Error> {
        Ok(match self.take_over(None)? {
            Attempt::Done(()) => Attempt::Done(self.len()),
            Attempt::Busy(page) => Attempt::Busy(page),
        })
    }

    /// Before a write of `piece`, which lies behind the end, for the caller that holds `extension`:
    /// takes over what another process has appended. If there still is a gap before the piece, the
    /// file becomes longer up to the piece's end, and `len` up to its start. From then on other
    /// processes append behind both (N2).
    ///
    /// # Errors
    /// As [`refresh_len`](Self::refresh_len); [`Error::WriteFailed`].
    pub(crate) fn close_gap(&self, piece: Range<u64>) -> Result<(), Error> {
        let Some(writer) = self.writer() else { return Ok(()) };
        if piece.start <= self.refresh_len_in_turn()? {
            return Ok(());
        }
        let (mut end, mut backoff) = (EndWait::default(), Backoff::new());
        loop {
            uninterrupted(|| writer.lengthen(piece.end)).map_err(|error| self.write_failed(error))?;
            match self.take_over(Some(&piece))? {
                Attempt::Done(()) if piece.start <= self.len() => return Ok(()),
                // Another process has cut the file off again.
                Attempt::Done(()) => backoff.wait_or(|| self.write_failed(IoError::NoProgress))?,
                Attempt::Busy(page) => end.wait(self, page)?,
            }
        }
    }

    /// Takes over the length that the file has, for the caller that holds `extension`. A file that
    /// ends with `piece` counts as if it ended before: the caller is about to write that.
    fn take_over(&self, piece: Option<&Range<u64>>) -> Result<Attempt<()>, Error> {
        let known = self.disk_len(); // N5
        let mut actual = self.ask_len()?;
        if actual < known {
            let _no_write_back = self.writeback.pause();
            actual = self.ask_len()?;
            if actual < self.disk_len() {
                self.take_over_cut(actual);
            }
        }
        let before = self.len();
        let wanted = piece.filter(|piece| piece.end == actual).map_or(actual, |piece| piece.start);
        let now = wanted.min(LEN_MAX).max(before);
        if now > before {
            match self.hold_end(before..now)? {
                Attempt::Done(mut end) => {
                    if piece.is_some() {
                        self.fill_own_end(&mut end, before..now);
                    } else if !self.fill_end(&mut end, before..now)? {
                        return Ok(Attempt::Busy(before >> self.page_shift())); // Cut off again: the caller looks again.
                    }
                }
                Attempt::Busy(page) => return Ok(Attempt::Busy(page)),
            }
        }
        self.written_up_to(actual);
        self.grow_to(now);
        Ok(Attempt::Done(()))
    }

    /// Another process has cut the file off (N5). Nothing is on its way to the file. Bytes from
    /// `len` on that the file still has are growth, as ever.
    fn take_over_cut(&self, len: u64) {
        self.disk_len.store(len, Ordering::Release);
        if len >= self.len() {
            return;
        }
        self.map.set_len(len);
        let tail = (len & (self.page_bytes() - 1)) as usize;
        // One wait is for all pages.
        let mut backoff = Backoff::new();
        let mut lost = tail > 0 && self.cut_page(len >> self.page_shift(), tail, &mut backoff);
        for page in self.map.pages_in_memory(len.div_ceil(self.page_bytes())..self.map.pages()) {
            lost |= self.cut_off_page(page, &mut backoff);
        }
        if lost && self.writer().is_some() {
            Counters::add(&self.counters.write_errors, 1);
            // Sometimes: a file was cut off under what is dirty.
            self.note_outcome(Some(IoError::CutOff));
        }
    }

    /// Takes a page out of memory that isn't the file's any more. Returns whether changes are lost
    /// with it: also if another thread is changing it, and goes on for longer than this waits.
    fn cut_off_page(&self, page: u64, backoff: &mut Backoff) -> bool {
        loop {
            match self.drop_page_if(page, false) {
                Dropped::Gone => return false,
                Dropped::Pinned => return self.may_be_dirty(page),
                Dropped::InUse => {}
            }
            match self.drop_page_if(page, true) {
                Dropped::Gone => return true,
                Dropped::Pinned => return self.may_be_dirty(page),
                Dropped::InUse => {}
            }
            if !backoff.wait_shortly() {
                return self.map.state(page) != PageState::Loading;
            }
        }
    }

    /// The same for the page that the new end is in: its `tail` goes. A page that stays as it is,
    /// because it is in use, is completed when the file grows (N3).
    fn cut_page(&self, page: u64, tail: usize, backoff: &mut Backoff) -> bool {
        loop {
            if self.drop_page_if(page, false) == Dropped::Gone {
                return false;
            }
            match self.map.begin_write(page) {
                BeginWrite::Begun(mut writing) => {
                    writing.zero_from(tail);
                    return !writing.is_clean();
                }
                BeginWrite::Absent => return false,
                BeginWrite::Pinned => return self.may_be_dirty(page),
                BeginWrite::Busy if backoff.wait_shortly() => {}
                BeginWrite::Busy => return true,
            }
        }
    }

    /// Whether a page that is pinned, and so can't be looked at closely, may have changes that the
    /// file hasn't.
    pub(crate) fn may_be_dirty(&self, page: u64) -> bool {
        self.map.next_written(page..page + 1).is_some()
    }

    /// Whether another process has cut the file off, and that wasn't taken over yet.
    pub(crate) fn is_cut_off(&self) -> Result<bool, IoError> {
        let known = self.disk_len(); // N5
        Ok(uninterrupted(|| self.backing.len())? < known)
    }

    /// If another process has cut the file off, and no other thread changes its length just now:
    /// takes the new length over.
    pub(crate) fn try_notice_cut(&self) {
        if self.is_cut_off() == Ok(true)
            && let Some(_turn) = self.extension.try_lock()
        {
            let _ = self.take_over(None); // Write-back reports errors.
        }
    }

    /// Before the file grows by `range`, which starts at its end: takes pages that lie in there as
    /// a whole out of memory, and the page that the end is in too, or holds it (N3).
    pub(crate) fn hold_end(&self, range: Range<u64>) -> Result<Attempt<End<'_>>, Error> {
        let beyond = range.start.div_ceil(self.page_bytes())..range.end.div_ceil(self.page_bytes());
        for page in self.map.pages_in_memory(beyond) {
            if self.drop_page_if(page, true) != Dropped::Gone {
                return Ok(Attempt::Busy(page));
            }
        }
        let page = range.start >> self.page_shift();
        if range.start.is_multiple_of(self.page_bytes()) || self.drop_page_if(page, false) == Dropped::Gone {
            return Ok(Attempt::Done(End::Gone));
        }
        Ok(match self.map.begin_write(page) {
            BeginWrite::Begun(writing) => Attempt::Done(End::Held(writing)),
            BeginWrite::Absent if self.map.state(page) != PageState::Loading => Attempt::Done(End::Gone),
            BeginWrite::Absent | BeginWrite::Pinned | BeginWrite::Busy => Attempt::Busy(page),
        })
    }

    /// After this Pagefold has made the file longer by `range`: there are zeros, but for what
    /// another process appended between the look at the length and that. If it can't be read, there
    /// are zeros: the file is longer, so the call mustn't fail.
    pub(crate) fn fill_own_end(&self, end: &mut End<'_>, range: Range<u64>) {
        let from = (range.start & (self.page_bytes() - 1)) as usize;
        if !matches!(self.fill_end(end, range), Ok(true))
            && let End::Held(writing) = end
        {
            writing.zero_from(from);
        }
    }

    /// Completes the page that the file's end was in from the file, which has grown by `range`.
    /// False if it turns out not to have.
    fn fill_end(&self, end: &mut End<'_>, range: Range<u64>) -> Result<bool, Error> {
        let End::Held(writing) = end else { return Ok(true) };
        let (page, page_bytes) = (range.start >> self.page_shift(), self.page_bytes() as usize);
        let start = page << self.page_shift();
        let mut bytes = self.read_apart(start)?;
        if bytes.len() < ((range.end - start) as usize).min(page_bytes) {
            return Ok(false);
        }
        let from = (range.start - start) as usize;
        bytes.resize(page_bytes, 0);
        writing.complete(from, &bytes[from..]);
        Ok(true)
    }

    /// Reads the page at `start`, as far as the file has it, past memory.
    pub(crate) fn read_apart(&self, start: u64) -> Result<Vec<u8>, Error> {
        let (page, page_bytes) = (start >> self.page_shift(), self.page_bytes() as usize);
        // Aligned as direct I/O wants it.
        let mut buffer = vec![0; 2 * page_bytes];
        let at = buffer.as_ptr().align_offset(page_bytes);
        let bytes = &mut buffer[at..at + page_bytes];
        let shared = SharedBytes::of(bytes).ok_or_else(|| self.read_failed(page, IoError::INVALID))?;
        let got = read_full(&*self.backing, start, shared).map_err(|error| self.read_failed(page, error))?;
        Ok(bytes[..got].to_vec())
    }

    fn ask_len(&self) -> Result<u64, Error> {
        uninterrupted(|| self.backing.len()).map_err(|error| self.read_failed(self.len() >> self.page_shift(), error))
    }
}
