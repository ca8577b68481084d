//! A file's length, in memory and on the device, and how Pagefold adopts a length that another
//! process has set.
//!
//! A file has two lengths here. `len`, in the page map, is the length that readers see. `disk_len`
//! is the length that the file is known to have on its device. `len` is greater than `disk_len`
//! while appended bytes wait for write-back.
//!
//! # Invariants
//! - N1. `len` and `disk_len` change only under `extension`, except that write-back raises
//!   `disk_len`, up to `len`.
//! - N2. Every byte from `disk_len` to `len` was written by a caller of Pagefold. So write-back
//!   never fills a gap with zeros; such zeros could overwrite bytes that another process has
//!   appended. A write that would leave a gap first makes the file longer on its device
//!   ([`FileState::close_gap`]).
//! - N3. Past `len`, a page in memory may hold anything: stale bytes from when the file was longer,
//!   or bytes that were read before the file grew. Before `len` grows, the bytes between the old
//!   and the new `len` are corrected: either the write that makes the file longer overwrites them,
//!   or they are read from the file ([`FileState::hold_end`]). Pages that lie entirely past the old
//!   `len` are removed from memory.
//! - N4. Write-back writes nothing past `len`. If another process appended to the page with the
//!   end, write-back writes only the part before `len`.
//! - N5. A thread that looks for a truncation reads `disk_len` first, and then asks the system for
//!   the file's length. In between, write-back may raise `disk_len`, but never makes the file
//!   shorter. So if the file is shorter than the `disk_len` that the thread has read, another
//!   process has truncated the file.
//!
//!   While a truncation is adopted, no write may be in flight. Everything past the new end is
//!   dropped. If this drops changes that weren't written back, each handle's next `sync` reports
//!   [`IoError::CutOff`].
//! - N6. If the file grows on its device, `disk_len` is raised before `len`. If the file is cut
//!   off, `len` is lowered before `disk_len`. (The lengths are stored with Release and read with
//!   Acquire.) So a page that starts below `len` has bytes on the device, or is in memory (N2).
//!
//!   A load never brings in a page that starts at or past `disk_len`. If a thread has put a page's
//!   word in *loading*, and only then finds that the page starts at or past `disk_len`, the file
//!   was cut off after the thread had compared the page with `len`. By now another process may have
//!   appended bytes to the file, and Pagefold may be about to raise the lengths. If the thread
//!   published the page as zeros, the zeros would stay in place of the appended bytes. So the
//!   thread gives the load up, and compares the page with `len` again.
//!
//! Lock order: `extension` → `writeback`'s `turn` → the page.
//!
//! When the length grows, the page with the old end may be pinned, or being loaded or changed.
//! [`FileState::refresh_len`] releases `extension` while it waits for that page. A caller that must
//! keep `extension` (for example `close_gap`) waits at most some seconds for a page in use, and
//! then fails. For a page that is being loaded, it waits without a limit.
//!
//! ```text
//!   takes over growth (extension held)          loader of the page with the old end
//!   asks for the length: it has grown
//!   page is in memory: drops or completes it
//!   page is loading: lets go, tries again       began before: perhaps without the bytes that were appended
//!   page is vacant                              begins now: reads what was appended, too
//!   disk_len = len = the new one
//! ```
//! A writer that holds `extension` doesn't read a page if it overwrites the page's bytes up to the
//! file's end. A writer without `extension` has to read such a page: another process may append
//! bytes to the page, and without the read the page would lack these bytes. So a writer that
//! doesn't hold `extension` reads every page that starts below `disk_len`, unless it overwrites the
//! whole page (`Handle::needs_reading`).

use std::ops::Range;

use frames::{BeginWrite, PageState, Writer, Writing};
use sync::SharedBytes;
use sync::atomic::{Backoff, Ordering, fence};

use crate::error::Error;
use crate::file::state::{Dropped, FileState};
use crate::file::watch::{Pace, Watch};
use crate::stats::Counters;
use io::{IoError, failing_if_it_panics, read_full, uninterrupted};

/// The most bytes that a file may have: as many as the system can count.
pub(crate) const LEN_MAX: u64 = i64::MAX as u64;

/// The result of an attempt to prepare the pages at the file's end for a longer file.
pub(crate) enum Attempt<T> {
    Done(T),
    /// This page is pinned, or being loaded or changed.
    Busy(u64),
}

/// Waits for the load of a page: [`FileState::wait_for_page`], or in an errand
/// [`FileState::wait_for_page_in_errand`].
pub(crate) type LoadWait = fn(&FileState, u64) -> Result<(), Error>;

/// The wait of a thread that wants to make the file longer, but finds the page with the old end in
/// use.
#[derive(Debug, Default)]
pub(crate) struct EndWait<'a> {
    backoff: Backoff,
    /// Keeps new pins off that page.
    writer: Option<(u64, Writer<'a>)>,
}

impl<'a> EndWait<'a> {
    /// Waits a moment for `page`, and keeps new pins off it meanwhile. Otherwise the wait would
    /// never end if each pin of the page began before the previous one ended. If the page is being
    /// loaded, calls `load` instead, which waits for that load.
    ///
    /// # Errors
    /// [`Error::PageBusy`] if the page has been in use for seconds; those of `load`.
    pub(crate) fn wait(&mut self, file: &'a FileState, page: u64, load: LoadWait) -> Result<(), Error> {
        if file.map.state(page) == PageState::Loading {
            self.writer = None;
            return load(file, page);
        }
        if self.writer.as_ref().is_some_and(|(of, _)| *of != page) {
            self.writer = None;
        }
        let (_, writer) = self.writer.get_or_insert_with(|| (page, file.map.writer(page)));
        drop(writer.begin()); // The next attempt takes the page again.
        self.backoff.wait_or(|| file.page_busy(page))
    }
}

/// The page with the file's end, after its preparation for a longer file.
pub(crate) enum End<'a> {
    /// The page isn't in memory, or the end is at a page boundary.
    Gone,
    /// The page was changed, so it stays in memory. The caller holds it as a writer.
    Held(Writing<'a>),
}

impl FileState {
    /// Returns the length that readers see, in bytes.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.map.len()
    }

    /// Returns the length on the device, as far as it is known. Acquire pairs with `written_up_to`:
    /// if a thread has seen that a page was written back and evicted, the length that it gets here
    /// includes the page.
    pub(crate) fn disk_len(&self) -> u64 {
        self.disk_len.load(Ordering::Acquire)
    }

    /// Notes that the file has bytes up to `end` on its device.
    pub(crate) fn written_up_to(&self, end: u64) {
        self.disk_len.fetch_max(end, Ordering::AcqRel);
    }

    /// Raises `len` to the given length, unless it is that high already. The caller must hold
    /// `extension`; so must the callers of the next two functions.
    pub(crate) fn grow_to(&self, len: u64) {
        if len > self.len() {
            self.map.set_len(len);
        }
    }

    /// Sets both lengths, `disk_len` first (N6). If the file becomes shorter, the caller has
    /// already lowered `len`.
    pub(crate) fn length_is(&self, len: u64) {
        self.disk_len.store(len, Ordering::Release);
        self.map.set_len(len);
    }

    /// Lowers `len`; `disk_len` stays.
    pub(crate) fn shrink_to(&self, len: u64) {
        self.map.set_len(len);
    }

    /// Asks the system for the file's length, adopts it if another process has changed it, and
    /// returns the length that readers see. The returned length includes bytes past the file's end
    /// on its device: those that were written through Pagefold and aren't written back yet. Waits
    /// for the page with the old end if necessary.
    ///
    /// # Errors
    /// The system's; [`Error::PageBusy`]; [`Error::DeviceTimeout`].
    pub(crate) fn refresh_len(&self) -> Result<u64, Error> {
        let mut end = EndWait::default();
        loop {
            match self.try_refresh_len()? {
                Attempt::Done(len) => return Ok(len),
                Attempt::Busy(page) => end.wait(self, page, Self::wait_for_page)?,
            }
        }
    }

    /// Refreshes the length like [`refresh_len`](Self::refresh_len), but without waiting for a
    /// page.
    pub(crate) fn try_refresh_len(&self) -> Result<Attempt<u64>, Error> {
        // Usually nothing has changed, and this can be known without asking the device.
        let is_other =
            if self.is_len_cheap() { self.has_other_len() } else { self.in_time(Pace::Answer, Self::has_other_len) };
        if !is_other? || self.is_being_cut() {
            return Ok(Attempt::Done(self.len()));
        }
        self.in_time(Pace::Length, Self::adopt_len)
    }

    /// Returns whether the system reports another length than the known one.
    fn has_other_len(&self) -> Result<bool, Error> {
        let known = self.disk_len(); // N5
        let actual = self.ask_len()?;
        Ok(actual < known || self.len() < actual)
    }

    /// Returns whether the known length is right. False if the system can't tell without the
    /// device.
    pub(crate) fn is_len_sure(&self) -> Result<bool, Error> {
        Ok(self.is_len_cheap() && !self.has_other_len()?)
    }

    /// Refreshes the length like [`try_refresh_len`](Self::try_refresh_len), but waits for the
    /// device without a limit. So if there is a timeout, only workers call this.
    pub(crate) fn refresh_len_once(&self) -> Result<Attempt<u64>, Error> {
        if !self.has_other_len()? || self.is_being_cut() {
            return Ok(Attempt::Done(self.len()));
        }
        self.adopt_len()
    }

    /// Returns whether `set_len` is truncating the file. While it is, `len` is already the file's
    /// new length (Z1 of `set_len`), or is about to be. Relaxed: only a hint, which saves the
    /// caller a wait for `extension`.
    fn is_being_cut(&self) -> bool {
        self.is_cutting.load(Ordering::Relaxed)
    }

    /// Adopts the length that the file has on its device. Waits for the device without a limit. So
    /// if there is a timeout, only workers call this.
    pub(crate) fn adopt_len(&self) -> Result<Attempt<u64>, Error> {
        let _turn = self.lock_extension_in_errand();
        self.take_over_whole()
    }

    /// Refreshes the length like [`refresh_len`](Self::refresh_len). The caller must hold
    /// `extension`. `load` waits for the load of a page, and may limit this wait. All other waits
    /// for the device have no limit.
    pub(crate) fn refresh_len_in_turn(&self, load: LoadWait) -> Result<u64, Error> {
        let mut end = EndWait::default();
        loop {
            match self.take_over_whole()? {
                Attempt::Done(len) => return Ok(len),
                Attempt::Busy(page) => self.wait_for_end(&mut end, page, load)?,
            }
        }
    }

    /// Waits a moment for a page at the file's end. The caller must hold `extension`.
    fn wait_for_end<'a>(&'a self, end: &mut EndWait<'a>, page: u64, load: LoadWait) -> Result<(), Error> {
        end.wait(self, page, load)?;
        self.progresses(Pace::Length);
        Ok(())
    }

    fn take_over_whole(&self) -> Result<Attempt<u64>, Error> {
        Ok(match self.take_over(None)? {
            Attempt::Done(()) => Attempt::Done(self.len()),
            Attempt::Busy(page) => Attempt::Busy(page),
        })
    }

    /// Prepares a write of `piece`, which lies past the end. The caller must hold `extension`.
    /// First adopts the length if another process has changed it. If there is still a gap before
    /// `piece`, makes the file longer up to the end of `piece`, and raises `len` to the start of
    /// `piece`. After that, other processes append after `piece`, not into the gap (N2).
    ///
    /// # Errors
    /// Those of [`refresh_len`](Self::refresh_len); [`Error::WriteFailed`].
    pub(crate) fn close_gap(&self, piece: Range<u64>) -> Result<(), Error> {
        let Some(writer) = self.writer() else { return Ok(()) };
        if piece.start <= self.refresh_len_in_turn(Self::wait_for_page_in_errand)? {
            return Ok(());
        }
        let (mut end, mut backoff) = (EndWait::default(), Backoff::new());
        loop {
            let lengthened = failing_if_it_panics(|| uninterrupted(|| writer.lengthen(piece.end)));
            self.was_answered(Pace::Length);
            lengthened.map_err(|error| self.write_failed(error))?;
            match self.take_over(Some(&piece))? {
                Attempt::Done(()) if piece.start <= self.len() => return Ok(()),
                // Another process has truncated the file again.
                Attempt::Done(()) => backoff.wait_or(|| self.write_failed(IoError::NoProgress))?,
                Attempt::Busy(page) => self.wait_for_end(&mut end, page, Self::wait_for_page_in_errand)?,
            }
        }
    }

    /// Adopts the length that the file has on its device. The caller must hold `extension`. `piece`
    /// is set if the caller has made the file longer up to the end of `piece`, and is about to
    /// write `piece`. If the file still ends at the end of `piece`, no other process has appended
    /// to it. Then `len` is raised only to the start of `piece`, and the caller's write raises it
    /// further.
    fn take_over(&self, piece: Option<&Range<u64>>) -> Result<Attempt<()>, Error> {
        let known = self.disk_len(); // N5
        let mut actual = self.ask_len_in_turn()?;
        if actual < known {
            let _no_write_back = self.pause_write_back();
            actual = self.ask_len_in_turn()?;
            self.progresses(Pace::Cycle);
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
                        self.fill_own_end(&mut end, before..now)?;
                    } else if !self.fill_end(&mut end, before..now)? {
                        return Ok(Attempt::Busy(before >> self.page_shift())); // Cut off again.
                    }
                }
                Attempt::Busy(page) => return Ok(Attempt::Busy(page)),
            }
        }
        self.written_up_to(actual);
        self.grow_to(now);
        Ok(Attempt::Done(()))
    }

    /// Adopts a truncation by another process to `len` bytes (N5). The caller must ensure that no
    /// write is in flight. `disk_len` can be greater than the length that readers see, so the
    /// truncated file may still be at least as long as the readers' length. In that case readers
    /// lose nothing, and only `disk_len` changes. The caller then treats the file's bytes past the
    /// readers' length as growth.
    pub(super) fn take_over_cut(&self, len: u64) {
        let before = self.len();
        if len < before {
            self.map.set_len(len); // First (N6).
        }
        self.disk_len.store(len, Ordering::Release);
        if self.latch.cut_adopted() {
            self.can_be_written_again();
        }
        if len >= before {
            return;
        }
        // L5 of `write`. Relaxed: only the holder of `extension` changes `cuts`. Release pairs with
        // the Acquire in `make_page`.
        let number = self.cuts.load(Ordering::Relaxed) + 1;
        *self.last_cut.lock() = (number, len);
        self.cuts.store(number, Ordering::Release);
        fence(Ordering::SeqCst);
        let tail = (len & (self.page_bytes() - 1)) as usize;
        // One wait, shared by all pages.
        let mut backoff = Backoff::new();
        let mut lost = tail > 0 && self.cut_page(len >> self.page_shift(), tail, &mut backoff);
        for page in self.map.pages_in_memory(len.div_ceil(self.page_bytes())..self.map.pages()) {
            lost |= self.cut_off_page(page, &mut backoff);
            self.progresses(Pace::Cycle); // There may be very many.
        }
        if lost && self.writer().is_some() {
            // Also logged, because no call reports the error if the file has no handle.
            tracing::warn!(file = %self.path.display(), len, "another process cut off changes that were not written");
            Counters::add(&self.counters.write_errors, 1);
            // Sometimes: a file was cut off under what is dirty.
            self.latch.cut_off();
        }
    }

    /// Returns true in two cases: no truncation was adopted since the caller read the count `cuts`;
    /// or exactly one was adopted, and it left the bytes before `end` in place. Returns false after
    /// several truncations. The caller has executed a fence (L5 of `write`).
    pub(crate) fn cuts_spared(&self, end: u64, cuts: u64) -> bool {
        // Relaxed: ordered by the caller's fence.
        self.cuts.load(Ordering::Relaxed) == cuts || {
            let (number, len) = *self.last_cut.lock();
            number == cuts + 1 && end <= len
        }
    }

    /// Removes a page past the new end from memory. Returns whether changes to the page are lost,
    /// or may be lost.
    ///
    /// A page that is in use may stay in memory. In that case this function returns true if the
    /// page is pinned and may be dirty. It also returns true if `backoff` runs out while another
    /// thread is still using the page for anything but loading it.
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

    /// Removes the page with the new end from memory if the page is clean; otherwise zeroes the
    /// page from `tail` on. Returns whether changes are lost, or may be lost. If the page is in
    /// use, its bytes past `tail` stay, and are corrected when the file grows (N3).
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

    /// Returns whether a page may have changes that the file lacks. Looks only at the page's word,
    /// so this works even for a pinned page, which can't be held.
    pub(crate) fn may_be_dirty(&self, page: u64) -> bool {
        self.map.next_written(page..page + 1).is_some()
    }

    /// Returns whether the system knows the file's length without asking a device or a server.
    pub(crate) fn is_len_cheap(&self) -> bool {
        self.backing.tells_len_at_once()
    }

    /// Returns whether another process has truncated the file, and this wasn't adopted yet.
    pub(crate) fn is_cut_off(&self) -> Result<bool, IoError> {
        let known = self.disk_len(); // N5
        Ok(uninterrupted(|| self.backing.len())? < known)
    }

    /// Adopts a truncation by another process, before the file is written back. Ignores a failure
    /// to adopt it: the write-back then finds the truncation itself and fails (B6 of `writeback`),
    /// so it doesn't bring the truncated bytes back.
    pub(crate) fn notice_cut(&self) {
        if self.writer().is_none() {
            return;
        }
        let ask = |file: &Self| Ok(file.is_cut_off() == Ok(true));
        let is_cut = if self.is_len_cheap() { ask(self) } else { self.in_time(Pace::Answer, ask) };
        if is_cut.unwrap_or(false) {
            let _ = self.refresh_len();
        }
    }

    /// Adopts a truncation like [`notice_cut`](Self::notice_cut), for a thread that closes the
    /// file. Waits for the device without a limit.
    pub(crate) fn notice_cut_in_closing(&self) {
        let is_cut = self.writer().is_some() && self.is_cut_off() == Ok(true);
        self.progresses(Pace::Closing);
        let _needs_extension = self.watch().filter(|_| is_cut).map(Watch::closing_at_length);
        let mut end = EndWait::default();
        while is_cut
            && let Ok(Attempt::Busy(page)) = self.adopt_len()
            && end.wait(self, page, Self::wait_for_page_in_errand).is_ok()
        {
            self.progresses(Pace::Closing);
        }
    }

    /// Takes over a truncation by another process, unless another thread is changing the file's
    /// length.
    pub(crate) fn try_notice_cut(&self) {
        if self.is_cut_off() == Ok(true)
            && let Some(_turn) = self.extension.try_lock()
        {
            let _ = self.take_over(None); // Write-back reports the error.
        }
    }

    /// Prepares the pages like [`hold_end`](Self::hold_end), and waits for those that are in use.
    /// For `set_len`, which keeps `extension` locked and write-back paused during the wait.
    ///
    /// # Errors
    /// [`Error::PageBusy`].
    pub(crate) fn await_end(&self, range: Range<u64>) -> Result<End<'_>, Error> {
        let mut wait = EndWait::default();
        loop {
            match self.hold_end(range.clone())? {
                Attempt::Done(end) => return Ok(end),
                Attempt::Busy(page) => wait.wait(self, page, Self::wait_for_page_in_errand)?,
            }
            self.progresses(Pace::Cycle);
        }
    }

    /// Prepares the pages for the file to grow by `range`, which starts at the file's end (N3).
    /// Returns [`Attempt::Busy`] if one of these pages is in use.
    ///
    /// Removes the pages of `range` that lie entirely past the old end. Also removes the page with
    /// the old end, unless that page is dirty. A dirty page can't be removed: this function holds
    /// it the way a writer does and returns it, so that the caller can fill in its new bytes.
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

    /// Fills in the new bytes of the page with the old end, after this Pagefold has made the file
    /// longer by `range`. Reads these bytes from the file: another process may have appended some
    /// of them before this Pagefold made the file longer. The others are zeros.
    ///
    /// # Errors
    /// [`Error::ReadFailed`]. The caller must then leave the known length as it is. The next
    /// refresh of the length reads the new bytes, as if another process had appended all of them.
    pub(crate) fn fill_own_end(&self, end: &mut End<'_>, range: Range<u64>) -> Result<(), Error> {
        let from = (range.start & (self.page_bytes() - 1)) as usize;
        if !self.fill_end(end, range)?
            && let End::Held(writing) = end
        {
            writing.zero_from(from);
        }
        Ok(())
    }

    /// Fills in the new bytes of the page with the old end. Reads them from the file, which has
    /// grown by `range`. Returns false if the file turns out to be too short.
    fn fill_end(&self, end: &mut End<'_>, range: Range<u64>) -> Result<bool, Error> {
        let End::Held(writing) = end else { return Ok(true) };
        let (page, page_bytes) = (range.start >> self.page_shift(), self.page_bytes() as usize);
        let start = page << self.page_shift();
        let read = self.read_apart(start);
        self.was_answered(Pace::Length);
        let mut bytes = read?;
        if bytes.len() < ((range.end - start) as usize).min(page_bytes) {
            return Ok(false);
        }
        let from = (range.start - start) as usize;
        bytes.resize(page_bytes, 0);
        writing.complete(from, &bytes[from..]);
        Ok(true)
    }

    /// Reads the page at `start` into a buffer of its own, as far as the file has it.
    pub(crate) fn read_apart(&self, start: u64) -> Result<Vec<u8>, Error> {
        let (page, page_bytes) = (start >> self.page_shift(), self.page_bytes() as usize);
        // Aligned, as direct I/O requires.
        let mut buffer = vec![0; 2 * page_bytes];
        let at = buffer.as_ptr().align_offset(page_bytes);
        let bytes = &mut buffer[at..at + page_bytes];
        let shared = SharedBytes::of(bytes).ok_or_else(|| self.read_failed(page, IoError::INVALID))?;
        let got = read_full(&*self.backing, start, shared).map_err(|error| self.read_failed(page, error))?;
        Ok(bytes[..got].to_vec())
    }

    /// Asks the system for the file's length. The caller must hold `extension`.
    fn ask_len_in_turn(&self) -> Result<u64, Error> {
        let len = self.ask_len();
        // An answer from memory takes no time, and says nothing of a silent device.
        if !self.is_len_cheap() {
            self.was_answered(Pace::Length);
        }
        len
    }

    fn ask_len(&self) -> Result<u64, Error> {
        uninterrupted(|| self.backing.len()).map_err(|error| self.read_failed(self.len() >> self.page_shift(), error))
    }
}
