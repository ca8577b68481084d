//! The path of a write. The bytes are written to pages in memory, one page at a time. Write-back
//! later writes these pages to the file.
//!
//! - A page isn't read first if all of it is written, or if the file has no bytes of it.
//! - L1. A thread that writes past the end, or calls `set_len`, holds the lock `extension`. A
//!   writer past the end makes the page's version odd, changes first the bytes and then the length,
//!   and makes the version even again. A reader discards bytes that it copied while the version was
//!   odd. So if a reader keeps any of the new bytes, the length had grown before it copied them. A
//!   reader that took the old length for the file's end finds the length grown, and looks at the
//!   page again.
//!
//!   Before a write past the end, the writer drops pages beyond the end that are still in memory
//!   from when the file was longer.
//!
//!   The page becomes dirty only after the length has grown. Write-back writes a page only up to
//!   the length; if the page became dirty earlier, write-back could write it without the new bytes.
//! - L2. A writer within the file doesn't hold `extension`, so `set_len` may run at the same time.
//!   The writer first gets hold of the page (or, if the page isn't in memory, puts its word in
//!   *loading*), and then checks the length again. `set_len` first lowers the length, and then
//!   waits until no thread holds a page beyond the new length. So there are two cases. If the
//!   writer was first, `set_len` waits for it, and then cuts off the written bytes. Otherwise the
//!   writer sees the new length, and writes past the end, as in L1.
//! - L3. `set_len` lowers the length, and restores the old length if it fails. A guard (`PageMut`)
//!   covers its page only up to the length at the time when the guard is made. A guard that is made
//!   while the length is lowered for a moment is too short once the old length is restored: its
//!   user would change only the page's first bytes, and old bytes would follow these. So before a
//!   thread makes a guard of a page that doesn't lie wholly within the length, it must hold
//!   `extension` and check the length again.
//! - L4. A page is charged to the group that makes it dirty, and stays charged to that group until
//!   it is clean. If a clean page is charged to another group, the writer first recharges the page
//!   to its own group. So the dirty pages of one group never count towards another group's limit. A
//!   writer is throttled, or its call fails, only because of its own group's pages.
//! - L5. If another process has truncated the file, the thread that adopts the new length first
//!   lowers the length and counts the truncation, and then looks at the pages past the new end.
//!   That thread waits for none of the pages, and assumes that a page in *loading* is being read,
//!   and so has no changes. But a writer may be creating such a page without reading it. Therefore
//!   the writer reads the count before it puts the page's word in *loading*, and again once the
//!   page is in memory and dirty. Each of the two threads has a fence between its two steps. So
//!   either the adopting thread finds the dirty page, or the writer finds another count, and looks
//!   at the page again. If the file now ends before the page, the writer writes past the end (see
//!   L1). If both happen, the next sync fails with `CutOff`, although these bytes are in the file.
//!
//!   Comparing only the length wouldn't suffice. If the file has grown again since the truncation,
//!   the thread that adopted this growth has discarded the page. In one case the writer is done
//!   without a second look: only one truncation was counted, and it spared the bytes. In that case
//!   another thread may already have read and overwritten the bytes, so the writer must not write
//!   them again. After several truncations, the writer writes its bytes again in any case. If
//!   another write has changed the page in between, the result is as if that write had come first.
//!
//! Lock order: `extension` → (a frame obtained) → the page. See `writeback` for its lock order.

mod at_exit;
pub(crate) mod cycle;
pub(crate) mod dirty;
pub(crate) mod dirty_part;
pub(crate) mod flusher;
pub(crate) mod page_mut;
pub(crate) mod request;
pub(crate) mod writeback;

use std::ops::Range;

use frames::{BeginLoad, BeginWrite, PageState, Writing};
use sync::atomic::{Backoff, Ordering, fence};
use sync::lock::MutexGuard;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::length::LEN_MAX;
use crate::file::recharge::{self, Recharge};
use crate::file::watch::Pace;
use crate::lru::admission::Arrival;
use crate::manager::reclaim::room::RoomsMade;
use crate::read::call::Call;
use crate::stats::Counters;
use io::IoError;

/// The outcome of writing to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// The file has become shorter: the bytes would lie past its end.
    PastEnd,
    /// The caller has lost the permission to write there.
    Refused,
}

/// A callback that returns whether a write may happen. The writer calls it once it holds the page
/// exclusively. A thread that withdraws the permission must then wait for writers whose writes may
/// have been permitted before. These are the writers that have a page frozen at that time, and
/// those that are creating a page in memory ([`FileState::has_makers`]).
pub(crate) type Permitted<'p> = &'p dyn Fn() -> bool;

impl Handle {
    /// Implements [`File::write_at`](crate::File::write_at).
    pub(crate) fn write_pages(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.check_writable()?;
        if buf.is_empty() {
            return Ok(());
        }
        let fits = offset.checked_add(buf.len() as u64).filter(|&end| end <= LEN_MAX);
        let end = fits.ok_or_else(|| self.file.too_large(offset))?;
        let mut at = offset;
        while at < end {
            let page_end = ((at >> self.file.page_shift()) + 1) << self.file.page_shift();
            let piece = &buf[(at - offset) as usize..(end.min(page_end) - offset) as usize];
            self.write_piece(piece, at)?;
            at += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes bytes within one page.
    fn write_piece(&self, piece: &[u8], at: u64) -> Result<(), Error> {
        self.at_its_pace(|| {
            let end = at + piece.len() as u64;
            if end > self.file.len() || self.write_page(piece, at, Some(end), None)? == Written::PastEnd {
                let mut backoff = Backoff::new();
                loop {
                    let turn = self.turn_without_gap(at..end)?;
                    self.file.forget_beyond_end(at..end)?;
                    if self.write_page(piece, at, None, None)? != Written::PastEnd {
                        break;
                    }
                    // Sometimes: a write finds that another process has just cut the file off.
                    drop(turn);
                    backoff.wait_or(|| self.file.write_failed(IoError::NoProgress))?;
                }
            }
            Ok(())
        })
    }

    /// Calls `write`, which writes to one page. Waits before and after it if the group has many
    /// dirty pages.
    fn at_its_pace<T>(&self, write: impl FnOnce() -> Result<T, Error>) -> Result<T, Error> {
        let manager = &*self.file.manager;
        // Most often the group has few dirty pages. Then this one check saves both waits.
        let few_are_dirty = dirty::has_few_dirty(manager, self.group.state());
        if !few_are_dirty {
            dirty::wait_for_clean(manager, self)?;
        }
        let written = write()?;
        if !few_are_dirty {
            dirty::pace(manager, self);
        }
        Ok(written)
    }

    /// Locks `extension` for a write of `piece`, and fills any gap between the file's end and the
    /// piece.
    fn turn_without_gap(&self, piece: Range<u64>) -> Result<MutexGuard<'_, ()>, Error> {
        loop {
            let turn = self.file.lock_extension()?;
            if piece.start <= self.file.len() {
                return Ok(turn);
            }
            if self.file.watch().is_none() {
                self.file.close_gap(piece)?;
                return Ok(turn);
            }
            // Filling the gap may have to wait for the device without a limit. So a worker fills
            // the gap, and this call waits for the worker for a limited time. Then the loop checks
            // again whether there is a gap, because another thread may truncate the file before
            // this thread holds the lock again.
            drop(turn);
            let piece = piece.clone();
            self.file.in_time(Pace::Length, move |file| {
                let _turn = file.lock_extension_in_errand();
                if piece.start > file.len() { file.close_gap(piece) } else { Ok(()) }
            })?;
        }
    }

    /// Writes bytes within one page, if the file reaches to the end of these bytes.
    pub(crate) fn overwrite(&self, piece: &[u8], at: u64, permitted: Permitted<'_>) -> Result<Written, Error> {
        self.check_writable()?;
        self.at_its_pace(|| self.write_page(piece, at, Some(at + piece.len() as u64), Some(permitted)))
    }

    /// Calls `write` if the file has the `len` bytes at `at`, which `write` overwrites.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the file ends before the last of these bytes; the errors of `write`.
    pub(crate) fn within_file(
        &self,
        at: u64,
        len: u64,
        write: impl FnOnce() -> Result<Written, Error>,
    ) -> Result<Written, Error> {
        let end = at.saturating_add(len);
        // Another process may have made the file longer.
        if end > self.file.len() && end > self.refreshed_len()? {
            return Err(self.past_end(at, len));
        }
        write()
    }

    /// Calls `change` with exclusive access to a page, if the file's length is at least `within`.
    /// `change` returns whether the page was clean before.
    pub(crate) fn change_within(
        &self,
        page: u64,
        within: u64,
        permitted: Permitted<'_>,
        change: impl FnOnce(&mut Writing<'_>) -> bool,
    ) -> Result<Written, Error> {
        self.check_writable()?;
        dirty::wait_for_clean(&self.file.manager, self)?;
        let Some((mut writing, _)) = self.hold_page(page, Some(within))? else { return Ok(Written::PastEnd) };
        if !permitted() {
            return Ok(Written::Refused);
        }
        let was_clean = change(&mut writing);
        self.count(was_clean, &writing);
        Ok(Written::Done)
    }

    /// Writes bytes within one page, if the file's length is at least `within`. If `within` is
    /// `None`, the bytes begin at the file's end or before it, and may make the file longer; in
    /// this case the caller must hold `extension`. Returns [`Written::PastEnd`] if the bytes would
    /// leave a gap, because another process has just truncated the file.
    fn write_page(
        &self,
        piece: &[u8],
        at: u64,
        within: Option<u64>,
        permitted: Option<Permitted<'_>>,
    ) -> Result<Written, Error> {
        // Most often the page is in memory, and this thread gets it at once.
        if let BeginWrite::Begun(writing) = self.file.map.begin_write(at >> self.file.page_shift())
            && !self.is_foreign(&writing)
        {
            return Ok(self.overwrite_page(writing, piece, at, within, permitted, true));
        }
        self.write_page_patiently(piece, at, within, permitted)
    }

    /// Does the work of [`write_page`](Self::write_page) for a page that is in use, isn't in
    /// memory, or is charged to another group.
    fn write_page_patiently(
        &self,
        piece: &[u8],
        at: u64,
        within: Option<u64>,
        permitted: Option<Permitted<'_>>,
    ) -> Result<Written, Error> {
        let file = &*self.file;
        let page = at >> file.page_shift();
        let past_end = || self.ends_before(within);
        let (mut writer, mut backoff) = (file.map.writer(page), Backoff::new());
        let (mut rooms_made, mut is_counted) = (RoomsMade::default(), false);
        loop {
            match writer.begin() {
                BeginWrite::Begun(writing) if self.is_foreign(&writing) => {
                    drop(writing);
                    self.adopt(page, within.is_none(), &mut backoff)?;
                }
                BeginWrite::Begun(writing) => {
                    return Ok(self.overwrite_page(writing, piece, at, within, permitted, !is_counted));
                }
                BeginWrite::Pinned if file.take_kept_pin(page) => {}
                BeginWrite::Pinned | BeginWrite::Busy => {
                    if within.is_none() {
                        file.progresses(Pace::Length);
                    }
                    backoff.wait_or(|| file.page_busy(page))?;
                }
                BeginWrite::Absent if past_end() => return Ok(Written::PastEnd),
                BeginWrite::Absent if self.needs_reading(at, at + piece.len() as u64, within.is_none()) => {
                    self.bring_in(&mut Call::writing(page, within.is_none()), page)?;
                    if within.is_none() && at > file.len() {
                        return Ok(Written::PastEnd);
                    }
                    is_counted = true;
                }
                BeginWrite::Absent => {
                    if let Some(written) = self.make_page(piece, at, within, permitted, &mut rooms_made)? {
                        return Ok(written);
                    }
                }
            }
        }
    }

    /// Writes bytes to a page in memory, unless `refused` finds a reason not to.
    #[inline]
    fn overwrite_page(
        &self,
        mut writing: Writing<'_>,
        piece: &[u8],
        at: u64,
        within: Option<u64>,
        permitted: Option<Permitted<'_>>,
        is_hit: bool,
    ) -> Written {
        if let Some(refused) = self.refused(within, permitted) {
            return refused;
        }
        let grow = || {
            if within.is_none() {
                self.file.grow_to(at + piece.len() as u64); // L1
            }
        };
        let offset = at & (self.file.page_bytes() - 1);
        self.count(writing.write_and(offset as usize, piece, grow), &writing);
        drop(writing);
        self.hits.counter.add(u64::from(is_hit));
        Written::Done
    }

    fn refused(&self, within: Option<u64>, permitted: Option<Permitted<'_>>) -> Option<Written> {
        match self.ends_before(within) {
            true => Some(Written::PastEnd), // L2
            false => permitted.filter(|permitted| !permitted()).map(|_| Written::Refused),
        }
    }

    /// Returns whether the file ends before `within`.
    fn ends_before(&self, within: Option<u64>) -> bool {
        within.is_some_and(|end| end > self.file.len())
    }

    /// Returns whether a page that isn't in memory must be read before the bytes from `at` to `to`
    /// are written to it. The page must be read if the file has bytes of it that this write doesn't
    /// replace. `turn` is set if the caller holds `extension`. If the caller doesn't, the file may
    /// have become longer than the known length (`length`), so this function assumes that the file
    /// reaches at least to the page's end.
    pub(crate) fn needs_reading(&self, at: u64, to: u64, turn: bool) -> bool {
        let file = &*self.file;
        let start = at >> file.page_shift() << file.page_shift();
        let (len, page_end) = (file.len(), start.saturating_add(file.page_bytes()));
        let end = if turn { len.min(page_end) } else { page_end };
        start < file.disk_len() && (at > start || to < end)
    }

    /// Creates a page in memory without reading it from the file: zeros, with `piece` copied in. If
    /// `within` is `None`, makes the file long enough to contain the piece. Returns `None` if the
    /// caller has to look at the page again: another thread has the page, the page must be read
    /// after all, room had to be made for the page's word, or another process has truncated the
    /// file.
    fn make_page(
        &self,
        piece: &[u8],
        at: u64,
        within: Option<u64>,
        permitted: Option<Permitted<'_>>,
        rooms_made: &mut RoomsMade,
    ) -> Result<Option<Written>, Error> {
        let (file, group) = (&*self.file, self.group.state());
        let (page, grows) = (at >> file.page_shift(), within.is_none());
        if file.map.state(page) == PageState::Loading {
            file.wait_for_page(page)?; // Whether the load succeeded doesn't matter here.
            if grows {
                file.progresses(Pace::Length);
            }
            return Ok(None);
        }
        let frame = file.wait_for_memory(grows, || file.manager.take_frame(group))?;
        // A thread that withdraws the permission to write waits for threads that are adding a page,
        // such as this one. It doesn't wait for threads that only read a page, because they may be
        // waiting for the device.
        let maker = permitted.map(|_| file.counted_maker());
        // Acquire pairs with the Release in `take_over_cut`: if this thread finds a truncation
        // counted, it also sees the length that was adopted at that truncation, or a later length.
        let cuts = file.cuts.load(Ordering::Acquire);
        // Declared before `loading`, so that `lone` is dropped after `loading`, when the load is
        // over.
        let lone = file.load_without_device();
        let loading = match file.map.begin_load(page) {
            BeginLoad::Begun(loading) => loading,
            BeginLoad::Resident | BeginLoad::Busy => return Ok(None),
            BeginLoad::NoPlace => return Err(file.too_large(at)),
            BeginLoad::NoRoom => {
                drop((frame, maker, lone));
                file.wait_for_memory(grows, || file.manager.make_room_for_word(group, rooms_made))?;
                return Ok(None);
            }
        };
        if let Some(refused) = self.refused(within, permitted) {
            return Ok(Some(refused)); // Dropping `loading` cancels the load.
        }
        if self.needs_reading(at, at + piece.len() as u64, grows) {
            return Ok(None); // The page was written, written back and evicted meanwhile.
        }
        let offset = (at - (page << file.page_shift())) as usize;
        frame.fill(|bytes| {
            if piece.len() == bytes.len() {
                bytes.stream_from(piece); // The frame is in no cache.
            } else {
                bytes.zero_from(0);
                bytes.copy_from(offset, piece);
            }
        });
        let arrival = group.arrival(file.owner, loading.shadow(), self.is_sequential());
        file.counters.made(arrival.history.is_refault);
        group.counters.made(arrival.history.is_refault);
        if grows {
            file.grow_to(at + piece.len() as u64); // L1; readers wait for the page.
        }
        file.manager.memory.admit(group, loading, frame.into_frame(), Arrival { is_dirty: true, ..arrival }, false);
        self.became_dirty(group.id);
        // If another process has truncated the file, the thread that adopted the new length may
        // have assumed that this page is being read, and has no changes. If so, this thread finds
        // the truncation counted, and looks at the page again (L5).
        fence(Ordering::SeqCst);
        let is_kept = within.is_none_or(|end| file.cuts_spared(end, cuts));
        Ok(is_kept.then_some(Written::Done))
    }

    /// Obtains exclusive access to a page of the file, for a change by the caller. Also returns how
    /// many of the page's bytes lie within the file.
    pub(crate) fn change_page(&self, page: u64) -> Result<(Writing<'_>, usize), Error> {
        let file = &*self.file;
        self.check_writable()?;
        dirty::wait_for_clean(&file.manager, self)?;
        let past_end = || self.past_end(u64::MAX, 1);
        let end = page.checked_add(1).and_then(|end| end.checked_mul(file.page_bytes())).ok_or_else(past_end)?;
        // `set_len` may have lowered the length for a moment, and may restore the old one (L3). If
        // the page lies wholly within even the lowered length, the guard covers the whole page, and
        // `set_len` cuts off none of its bytes before the page is released. Otherwise the guard
        // could be too short, so this thread checks the length again while it holds `extension`.
        if end <= file.len()
            && let Some(held) = self.hold_page(page, Some(end))?
        {
            return Ok(held);
        }
        let _turn = file.lock_extension()?;
        self.hold_page(page, None)?.ok_or_else(|| self.past_end(end - file.page_bytes(), 1))
    }

    /// Obtains exclusive access to a page like [`change_page`](Self::change_page), if that is
    /// possible at once.
    pub(crate) fn try_change_page(&self, page: u64) -> Option<(Writing<'_>, usize)> {
        let file = &*self.file;
        if self.check_writable().is_err() || dirty::has_too_many_dirty(&file.manager, self.group.state()) {
            return None;
        }
        let end = page.checked_add(1)?.checked_mul(file.page_bytes())?;
        // As in `change_page`, a page that doesn't lie wholly within the file needs `extension`. If
        // another thread holds `extension`, the length may be about to change, so this attempt
        // fails.
        let whole = end <= file.len();
        let _turn = if whole { None } else { Some(file.extension.try_lock()?) };
        let BeginWrite::Begun(writing) = file.map.begin_write(page) else { return None };
        let len = file.len().saturating_sub(end - file.page_bytes()).min(file.page_bytes());
        if self.is_foreign(&writing) || len == 0 || whole && file.len() < end {
            return None;
        }
        self.hits.counter.add(1);
        Some((writing, len as usize))
    }

    /// Obtains exclusive access to a page for [`change_page`](Self::change_page). Returns `None` if
    /// the file ends before `within`, or has no byte of the page. If `within` is `None`, the caller
    /// must hold `extension`, and only the second condition applies.
    fn hold_page(&self, page: u64, within: Option<u64>) -> Result<Option<(Writing<'_>, usize)>, Error> {
        let file = &*self.file;
        let start = page << file.page_shift();
        let (mut writer, mut backoff) = (file.map.writer(page), Backoff::new());
        let mut is_counted = false;
        loop {
            if file.len() <= start || within.is_some_and(|end| file.len() < end) {
                return Ok(None);
            }
            match writer.begin() {
                BeginWrite::Begun(writing) if self.is_foreign(&writing) => {
                    drop(writing);
                    self.adopt(page, within.is_none(), &mut backoff)?;
                }
                BeginWrite::Begun(writing) => {
                    let len = file.len().saturating_sub(start).min(file.page_bytes());
                    if within.is_none_or(|end| file.len() >= end) && len > 0 {
                        self.hits.counter.add(u64::from(!is_counted));
                        return Ok(Some((writing, len as usize)));
                    }
                }
                BeginWrite::Pinned if file.take_kept_pin(page) => {}
                BeginWrite::Pinned | BeginWrite::Busy => {
                    if within.is_none() {
                        file.progresses(Pace::Length);
                    }
                    backoff.wait_or(|| file.page_busy(page))?;
                }
                BeginWrite::Absent => {
                    self.bring_in(&mut Call::writing(page, within.is_none()), page)?;
                    is_counted = true;
                }
            }
        }
    }
}

impl Handle {
    /// Counts the page as dirty, if it was clean until now.
    pub(crate) fn count(&self, was_clean: bool, writing: &Writing<'_>) {
        if was_clean {
            self.became_dirty(writing.group());
        }
    }

    /// Returns whether the page has to be charged to the handle's group before it becomes dirty
    /// (L4).
    fn is_foreign(&self, writing: &Writing<'_>) -> bool {
        writing.group() != self.group.state().id && writing.is_clean()
    }

    /// Tries to charge a clean page to the handle's group. The attempt fails if the page has left
    /// memory, or is in use at this moment. In any case the caller must look at the page again.
    /// `turn` is set if the caller holds `extension`.
    ///
    /// # Errors
    /// [`Error::LimitReached`]; [`Error::PageBusy`] if the page was in use at each attempt, for
    /// seconds.
    fn adopt(&self, page: u64, turn: bool, backoff: &mut Backoff) -> Result<(), Error> {
        let (file, group) = (&*self.file, self.group.state());
        let manager = &*file.manager;
        // `take_frame` makes room for one more page of the group, just as for a page that is
        // loaded: it reclaims, and waits for the group's own dirty pages to become clean. The page
        // needs only the charge of the frame, not the frame itself.
        let charge = file.wait_for_memory(turn, || manager.take_frame(group))?.into_page_charge();
        manager.memory.drain_entries(); // Only pages on lists can change their group.
        let PageState::Resident { frame } = file.map.state(page) else { return Ok(()) };
        if recharge::recharge_page(manager, file, page, frame, group) == Recharge::Moved {
            charge.hand_over();
            return Ok(());
        }
        drop(charge);
        if turn {
            file.progresses(Pace::Length);
        }
        backoff.wait_or(|| file.page_busy(page))
    }
}

impl Counters {
    /// Counts a page made without reading.
    fn made(&self, refault: bool) {
        self.misses.add(1);
        if refault {
            self.refaults.add(1);
        }
    }
}
