//! The way of a write: page by page into memory, from where it is written back some time.
//!
//! - A page that is written as a whole, or that its file has nothing of, isn't read first.
//! - L1. Writes past the end, and `set_len`, take turns (`extension`). The length grows after the bytes are there, and
//!   pages beyond the end that are still in memory, read when the file was longer, go before that. What is written back
//!   ends at the length, so a page becomes dirty, once more if need be, after the length has grown.
//! - L2. Writes within the file don't take turns with `set_len` (`set_len`): they look at the length again once they
//!   have the page, or its word in *loading*. `set_len` lowers the length first, then waits for such pages. So a write is
//!   before the cut, and cut off, or after it, and goes past the end.
//! - L3. `set_len` may fail, and gives the old length back then. A page that isn't in the file as a whole is therefore changed
//!   in place only by who has looked at the length in the turn; else its guard would be too short, and leave old bytes behind
//!   new ones.
//!
//! Lock order: `extension` → (a frame obtained) → the page. See `writeback` for the other one.

use std::time::Duration;

use arrayvec::ArrayVec;
use frames::{BeginLoad, BeginWrite, Detach, Labels, OwnedFrame, PageState, Writing};
use sync::atomic::Backoff;
use sync::thread::sleep;

use crate::error::Error;
use crate::file::Handle;
use crate::file_state::FileState;
use crate::load::{Call, ROOM_ATTEMPTS};
use crate::rank::Rank;
use crate::shadow::Level;
use crate::stats::Counters;
use crate::stripe::BATCH_MAX;

/// How often a page is found pinned or being written to while that may be over in moments,
pub(crate) const SPINS: u32 = 20;
/// and how often after that, a millisecond apart.
const WAITS_MAX: u32 = 4_000;

/// What came of writing to one page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Written {
    Done,
    /// The file has become shorter: the bytes lie past its end.
    PastEnd,
    /// Who wanted it mustn't, any more.
    Refused,
}

/// Whether a write may happen, asked once nobody else has the page: whoever takes the permission away waits for those who
/// have one.
pub(crate) type Permitted<'p> = &'p dyn Fn() -> bool;

impl Handle {
    /// The whole of [`File::write_at`](crate::File::write_at).
    pub(crate) fn write_pages(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.check_writable()?;
        if buf.is_empty() {
            return Ok(());
        }
        let capacity = self.file.map.pages() << self.file.page_shift();
        let fits = offset.checked_add(buf.len() as u64).filter(|&end| end <= capacity);
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
        let manager = &*self.file.manager;
        manager.wait_for_clean(self)?;
        let end = at + piece.len() as u64;
        if end > self.file.len() || self.write_page(piece, at, Some(end), &|| true)? == Written::PastEnd {
            let _turn = self.file.extension.lock();
            self.file.forget_beyond_end(at..end)?;
            self.write_page(piece, at, None, &|| true)?;
        }
        manager.pace(self);
        Ok(())
    }

    /// Writes bytes within one page that the file has.
    pub(crate) fn overwrite(&self, piece: &[u8], at: u64, permitted: Permitted<'_>) -> Result<Written, Error> {
        self.check_writable()?;
        self.file.manager.wait_for_clean(self)?;
        let written = self.write_page(piece, at, Some(at + piece.len() as u64), permitted)?;
        self.file.manager.pace(self);
        Ok(written)
    }

    /// Does `write` to bytes that the file has to have.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if it hasn't; those of `write`.
    pub(crate) fn within_file(
        &self,
        at: u64,
        len: u64,
        write: impl FnOnce() -> Result<Written, Error>,
    ) -> Result<Written, Error> {
        let end = at.saturating_add(len);
        // Another process may have made it longer.
        if end > self.file.len() && end > self.refreshed_len(end - 1)? {
            return Err(self.past_end(at, len));
        }
        write()
    }

    /// Has `change` run with a page for this thread alone, if the file reaches to `within`. It says whether the page was
    /// clean until then.
    pub(crate) fn change_within(
        &self,
        page: u64,
        within: u64,
        permitted: Permitted<'_>,
        change: impl FnOnce(&mut Writing<'_>) -> bool,
    ) -> Result<Written, Error> {
        self.check_writable()?;
        self.file.manager.wait_for_clean(self)?;
        let Some((mut writing, _)) = self.hold_page(page, Some(within))? else { return Ok(Written::PastEnd) };
        if !permitted() {
            return Ok(Written::Refused);
        }
        let was_clean = change(&mut writing);
        self.file.count(was_clean, &writing);
        Ok(Written::Done)
    }

    /// Writes bytes within one page, if the file reaches to `within`; if that is `None`, whether or not it does: then the
    /// caller has the turn to make it longer.
    fn write_page(
        &self,
        piece: &[u8],
        at: u64,
        within: Option<u64>,
        permitted: Permitted<'_>,
    ) -> Result<Written, Error> {
        let file = &*self.file;
        let page = at >> file.page_shift();
        let start = page << file.page_shift();
        let past_end = || within.is_some_and(|end| end > file.len());
        let refused = || match past_end() {
            true => Some(Written::PastEnd), // L2
            false => (!permitted()).then_some(Written::Refused),
        };
        let mut patience = Patience::default();
        let mut rooms_made = 0;
        loop {
            match file.map.begin_write(page) {
                BeginWrite::Begun(mut writing) => {
                    if let Some(refused) = refused() {
                        return Ok(refused);
                    }
                    file.count(writing.write((at - start) as usize, piece), &writing);
                    if within.is_none() {
                        file.grow_to(at + piece.len() as u64);
                        file.count(writing.write(0, &[]), &writing); // L1
                    }
                    drop(writing);
                    self.hits.counter.add(1);
                    return Ok(Written::Done);
                }
                BeginWrite::Pinned | BeginWrite::Busy => patience.wait(|| file.page_busy(page))?,
                BeginWrite::Absent if past_end() => return Ok(Written::PastEnd),
                BeginWrite::Absent if self.needs_reading(at, at + piece.len() as u64) => {
                    self.bring_in(&mut Call::default(), page)?;
                }
                BeginWrite::Absent => {
                    if let Some(written) = self.make_page(piece, at, within.is_none(), refused, &mut rooms_made)? {
                        return Ok(written);
                    }
                }
            }
        }
    }

    /// Whether the file has bytes of the page, which isn't in memory, besides those from `at` to `to` within it, which are
    /// overwritten.
    pub(crate) fn needs_reading(&self, at: u64, to: u64) -> bool {
        let file = &*self.file;
        let start = at >> file.page_shift() << file.page_shift();
        let len = file.len();
        let end = len.min(start + file.page_bytes());
        start < file.disk_len().min(len) && (at > start || to < end)
    }

    /// Puts a page that isn't in memory there without reading it: zeros, and `piece`. If it `grows` the file, that is as
    /// long as the piece reaches then. `None` if the page is there by now.
    fn make_page(
        &self,
        piece: &[u8],
        at: u64,
        grows: bool,
        refused: impl Fn() -> Option<Written>,
        rooms_made: &mut u32,
    ) -> Result<Option<Written>, Error> {
        let (file, group) = (&*self.file, self.group.state());
        let page = at >> file.page_shift();
        if file.map.state(page) == PageState::Loading {
            let _ = file.map.wait(page); // If that load failed, we don't need it.
            return Ok(None);
        }
        let frame = file.manager.take_frame(group)?;
        let loading = match file.map.begin_load(page) {
            BeginLoad::Begun(loading) => loading,
            BeginLoad::Resident | BeginLoad::Busy => return Ok(None),
            BeginLoad::NoRoom => {
                drop(frame);
                *rooms_made += 1;
                if *rooms_made > ROOM_ATTEMPTS {
                    return Err(file.manager.limit_reached(group));
                }
                file.manager.make_room(group)?;
                return Ok(None);
            }
        };
        if let Some(refused) = refused() {
            return Ok(Some(refused)); // Dropped, the load is none.
        }
        if self.needs_reading(at, at + piece.len() as u64) {
            return Ok(None); // Meanwhile somebody wrote to the page, and it was written back and evicted.
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
        let (level, refault) = group.welcome(loading.shadow());
        let level = if self.is_sequential() { Level::default() } else { level };
        file.counters.made(refault);
        group.counters.made(refault);
        let labels =
            Labels { group: group.id, owner: file.owner, rank: Rank::young(level).bits(), ..Labels::default() };
        if grows {
            file.grow_to(at + piece.len() as u64); // L1; readers wait for the page.
        }
        let isolated = loading.publish_dirty(frame.into_frame(), labels);
        file.manager.became_unclean(file, group.id);
        file.manager.enter(group, isolated);
        Ok(Some(Written::Done))
    }

    /// A page of the file to be changed, and how much of it the file has.
    pub(crate) fn change_page(&self, page: u64) -> Result<(Writing<'_>, usize), Error> {
        let file = &*self.file;
        self.check_writable()?;
        file.manager.wait_for_clean(self)?;
        let past_end = || self.past_end(u64::MAX, 1);
        let end = page.checked_add(1).and_then(|end| end.checked_mul(file.page_bytes())).ok_or_else(past_end)?;
        // The length may be one that `set_len` tries and takes back. For a page that lies in the file as a whole that is no
        // matter: `set_len` waits for it. For others the length is looked at while nobody changes it (L3).
        if end <= file.len()
            && let Some(held) = self.hold_page(page, Some(end))?
        {
            return Ok(held);
        }
        let _turn = file.extension.lock();
        self.hold_page(page, None)?.ok_or_else(|| self.past_end(end - file.page_bytes(), 1))
    }

    /// As [`change_page`](Self::change_page), if the file reaches to `within`; if that is `None`, whether or not it does: then
    /// the caller has the turn to change the length. `None` if the file has nothing of the page, or less than wanted.
    fn hold_page(&self, page: u64, within: Option<u64>) -> Result<Option<(Writing<'_>, usize)>, Error> {
        let file = &*self.file;
        let start = page << file.page_shift();
        let mut patience = Patience::default();
        loop {
            if file.len() <= start || within.is_some_and(|end| file.len() < end) {
                return Ok(None);
            }
            match file.map.begin_write(page) {
                BeginWrite::Begun(writing) => {
                    let len = file.len().saturating_sub(start).min(file.page_bytes());
                    if within.is_none_or(|end| file.len() >= end) && len > 0 {
                        return Ok(Some((writing, len as usize)));
                    }
                }
                BeginWrite::Pinned | BeginWrite::Busy => patience.wait(|| file.page_busy(page))?,
                BeginWrite::Absent => self.bring_in(&mut Call::default(), page)?,
            }
        }
    }
}

/// What came of an attempt to take a page out of memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// It isn't there any more.
    Gone,
    /// Somebody has it pinned.
    Pinned,
    /// Somebody loads it, writes to it or looks at it, or its file doesn't have it.
    InUse,
}

/// Waiting for a page that others use: moments at first, then in sleep, and not for ever.
#[derive(Default)]
pub(crate) struct Patience {
    backoff: Backoff,
}

impl Patience {
    /// # Errors
    /// `busy`, when it has taken seconds.
    pub(crate) fn wait(&mut self, busy: impl FnOnce() -> Error) -> Result<(), Error> {
        if self.backoff.turns() >= SPINS {
            if self.backoff.turns() > SPINS + WAITS_MAX {
                return Err(busy());
            }
            sleep(Duration::from_millis(1));
        }
        self.backoff.wait();
        Ok(())
    }
}

impl FileState {
    /// Counts the page, if it was clean until now.
    pub(crate) fn count(&self, was_clean: bool, writing: &Writing<'_>) {
        if was_clean {
            self.manager.became_unclean(self, writing.group());
        }
    }

    /// Has pages leave memory, whatever they hold.
    fn drop_pages(&self, pages: std::ops::Range<u64>) -> Result<(), Error> {
        for page in self.map.pages_in_memory(pages) {
            let mut patience = Patience::default();
            while self.drop_page_if(page, true) != Dropped::Gone {
                patience.wait(|| self.page_busy(page))?;
            }
        }
        Ok(())
    }

    /// Before the file grows by `range`, which starts at its end or after: pages that were read, or written to, when it
    /// was longer must not come back with what they had.
    pub(crate) fn forget_beyond_end(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        let first = self.len().div_ceil(self.page_bytes());
        let end = range.end.div_ceil(self.page_bytes());
        if first < end { self.drop_pages(first..end) } else { Ok(()) }
    }

    /// Takes a page out of memory. What its file doesn't have is thrown away if `discard` says so; else such a page stays.
    pub(crate) fn drop_page_if(&self, page: u64, discard: bool) -> Dropped {
        let mut gone = Gone::new();
        let dropped = self.detach_page(page, discard, &mut gone);
        self.manager.free_gone(gone);
        dropped
    }

    /// Takes pages out of memory that their file has, and that aren't pinned or in use: many at a time off their lists.
    pub(crate) fn drop_clean(&self, pages: std::ops::Range<u64>) {
        let mut gone = Gone::new();
        for page in self.map.pages_in_memory(pages) {
            self.detach_page(page, false, &mut gone);
            if gone.is_full() {
                self.manager.free_gone(std::mem::take(&mut gone));
            }
        }
        self.manager.free_gone(gone);
    }

    /// Takes a page out of memory; its frame, if it is on a list, is added to `gone`.
    fn detach_page<'a>(&'a self, page: u64, discard: bool, gone: &mut Gone<'a>) -> Dropped {
        let mut backoff = Backoff::new();
        loop {
            match self.map.detach(page, 0, discard) {
                Detach::Vacant | Detach::Swapped { .. } => return Dropped::Gone,
                Detach::Orphaned { group, discarded, .. } => {
                    self.discarded(group, discarded);
                    return Dropped::Gone;
                }
                Detach::Listed { frame, discarded, .. } => {
                    self.discarded(self.manager.frames.group(frame.id()), discarded);
                    gone.push(frame);
                    return Dropped::Gone;
                }
                // Whoever has it frozen most often doesn't wait for anything; or it may be somebody who looks at the page
                // and finds that it isn't the one he wanted.
                Detach::Busy | Detach::Pinned if backoff.turns() < SPINS => backoff.wait(),
                Detach::Pinned => return Dropped::Pinned,
                Detach::Busy | Detach::Loading | Detach::Unclean => return Dropped::InUse,
            }
        }
    }

    fn discarded(&self, group: u32, discarded: bool) {
        if discarded {
            self.manager.became_clean(self, self.manager.groups.get(group).as_deref(), 1);
        }
    }
}

/// Frames whose pages are gone, and that are still on their lists.
pub(crate) type Gone<'a> = ArrayVec<OwnedFrame<'a>, BATCH_MAX>;

impl Counters {
    /// Counts a page made without reading.
    fn made(&self, refault: bool) {
        self.misses.add(1);
        if refault {
            self.refaults.add(1);
        }
    }
}
