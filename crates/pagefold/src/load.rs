//! The way of a miss: from a page that isn't in memory to its bytes.
//!
//! The order matters (lock order in ARCHITECTURE.md): the charge and the frame first, which may take reclaim; then the
//! page word; then the read. So whoever has a word in *loading* depends on nothing but the device.

use std::cell::{Cell, RefCell};
use std::ops::Range;

use frames::{Ahead, BeginLoad, Labels, LoadFailure, Loading, OwnedFrame, PageState, PinError, PinnedFrame};
use sync::SharedBytes;
use sync::atomic::Backoff;

use crate::error::Error;
use crate::file::{Handle, PinnedPage};
use crate::flight::{Launched, Purpose};
use crate::io::{IoError, Queue, read_full};
use crate::manager::ChargedFrame;
use crate::rank::Rank;
use crate::shadow::Level;
use crate::stats::Counters;
use crate::write::Patience;

/// How often a thread makes room for a part of the page map before it gives up: others may take the room.
pub(crate) const ROOM_ATTEMPTS: u32 = 64;
/// How often a page is loaded again because the file became shorter meanwhile: others may go on changing it.
const SHORT_ATTEMPTS: u32 = 8;

/// What is wanted of a page.
enum Want<'b> {
    /// Some of its bytes, from `at` in the file on.
    Copy { at: u64, into: &'b mut [u8] },
    /// A pin.
    Pin,
    /// That it is in memory.
    Presence,
}

/// What came of a load.
enum Loaded<'a> {
    /// The page is in memory, and pinned if that was wanted.
    Page(Option<PinnedFrame<'a>>),
    /// The file turned out to be shorter than was known. Its length was taken over, and the page isn't in memory: its
    /// zeros would be taken for bytes of the file.
    FileIsShorter,
}

/// One call's way through its pages: what it has done for those to come.
#[derive(Debug, Default)]
pub(crate) struct Call {
    /// The pages that it wants.
    pages: Range<u64>,
    /// Those before this one were launched.
    launched: u64,
    /// Pages that it had loaded and has yet to come to: they were counted as misses, and aren't hits as well.
    pub(crate) counted: u64,
    /// Read-ahead knows of it, or needn't.
    told: bool,
    /// Where to help with what it launched last.
    pub(crate) queue: Option<Queue>,
}

impl Call {
    /// A call that wants `pages` in this order; there are some.
    pub(crate) fn reading(pages: Range<u64>) -> Self {
        Self { pages, ..Self::default() }
    }

    /// A call that had pages loaded which it will come to, in some order.
    pub(crate) fn launched(launched: Launched) -> Self {
        let mut call = Self { told: true, ..Self::default() };
        call.add(launched);
        call
    }

    /// It had more loaded.
    pub(crate) fn add(&mut self, launched: Launched) {
        self.counted += launched.pages;
        self.queue = launched.queue.or(self.queue);
    }

    /// Goes on with `pages`.
    pub(crate) fn begin(&mut self, pages: Range<u64>) {
        (self.pages, self.launched) = (pages, 0);
    }

    /// The same of a user who knows what comes next.
    pub(crate) fn told(pages: Range<u64>) -> Self {
        Self { pages, told: true, ..Self::default() }
    }
}

impl Handle {
    /// The way of [`File::read_at`](crate::File::read_at) when one page in memory won't do.
    #[cold]
    pub(crate) fn read_pages(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        self.read_in_call(&mut Call::reading(self.pages_of(offset, buf.len())), buf, offset)
    }

    /// The pages with `len` bytes at `offset`, as far as the file has them: at least one.
    pub(crate) fn pages_of(&self, offset: u64, len: usize) -> Range<u64> {
        let shift = self.file.page_shift();
        let end = offset.saturating_add(len as u64).min(self.file.len());
        let first = offset >> shift;
        first..(end.div_ceil(1 << shift)).max(first + 1)
    }

    /// As [`read_pages`](Self::read_pages), as a part of `call`.
    pub(crate) fn read_in_call(&self, call: &mut Call, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            if at >= self.file.len() && at >= self.refreshed_len(at)? {
                break;
            }
            let wanted = self.clip(at, buf.len() - done);
            // Fewer than wanted if the load found out that the file has become shorter.
            let there = self.read_page(call, &mut buf[done..done + wanted], at)?;
            done += there;
            if there < wanted {
                break;
            }
            let end = at + there as u64;
            if done < buf.len() && !end.is_multiple_of(self.file.page_bytes()) {
                // The file's end, within a page. If it has grown since, what was copied and the rest are of two moments.
                if end >= self.file.len() && end >= self.refreshed_len(end)? {
                    break;
                }
                done -= there;
            }
        }
        Ok(done)
    }

    pub(crate) fn refreshed_len(&self, at: u64) -> Result<u64, Error> {
        if self.file.manager.frames.forked() {
            return Err(Error::Forked);
        }
        self.file.refresh_len(at)
    }

    /// How many of `wanted` bytes at `at` lie in the same page and in the file.
    pub(crate) fn clip(&self, at: u64, wanted: usize) -> usize {
        let page = 1_u64 << self.file.page_shift();
        let in_page = page - (at & (page - 1));
        in_page.min(self.file.len().saturating_sub(at)).min(wanted as u64) as usize
    }

    /// Reads bytes of one page, and says how many of them the file has.
    fn read_page(&self, call: &mut Call, into: &mut [u8], at: u64) -> Result<usize, Error> {
        if self.read_in_memory(at, into) {
            self.count_hit(call);
            return Ok(into.len());
        }
        let page = at >> self.file.page_shift();
        self.fault(call, page, Want::Copy { at, into }).map(|(copied, _)| copied)
    }

    /// Copies bytes of a page that is in memory.
    fn read_in_memory(&self, at: u64, into: &mut [u8]) -> bool {
        let mut ahead = Ahead::No;
        let there = self.file.map.read_first(at, into, &mut ahead);
        if ahead == Ahead::Marked {
            self.mark_reached(at >> self.file.page_shift());
        }
        there
    }

    fn count_hit(&self, call: &mut Call) {
        match call.counted.checked_sub(1) {
            Some(rest) => call.counted = rest,
            None => self.hits.counter.add(1),
        }
    }

    /// The way of [`File::page`](crate::File::page) for a page that isn't in memory, or is the file's last.
    #[cold]
    pub(crate) fn pin_page(&self, page: u64) -> Result<PinnedPage<'_>, Error> {
        let shift = self.file.page_shift();
        let past_end = || self.past_end(page.saturating_mul(1 << shift), 1);
        let start = page.checked_mul(1 << shift).ok_or_else(past_end)?;
        if start >= self.file.len() && start >= self.refreshed_len(start)? {
            return Err(past_end());
        }
        let frame = match self.pin_in_memory(page)? {
            Some(frame) => {
                self.hits.counter.add(1);
                Some(frame)
            }
            None => self.fault(&mut Call::reading(page..page + 1), page, Want::Pin)?.1,
        };
        let len = self.clip(start, 1 << shift);
        // A file that became shorter while the page was read may not have it any more.
        frame.filter(|_| len > 0).map(|frame| PinnedPage { frame, len }).ok_or_else(past_end)
    }

    /// Pins a page that is in memory, waiting if somebody writes to it.
    fn pin_in_memory(&self, page: u64) -> Result<Option<PinnedFrame<'_>>, Error> {
        let (mut patience, mut ahead) = (Patience::default(), Ahead::No);
        loop {
            match self.file.map.pin_first(page, &mut ahead) {
                Ok(pinned) => {
                    if ahead == Ahead::Marked {
                        self.mark_reached(page);
                    }
                    return Ok(pinned);
                }
                Err(PinError::TooMany) => return Err(self.too_many_pins(page)),
                Err(PinError::Busy) => patience.wait(|| self.file.page_busy(page))?,
            }
        }
    }

    /// Copies bytes of a page that is in memory, and written to all the time: a pin keeps writers off. False if the page
    /// isn't there, or the file doesn't have all of the bytes any more.
    fn read_pinned(&self, page: u64, at: u64, into: &mut [u8]) -> Result<bool, Error> {
        let Some(frame) = self.pin_in_memory(page)? else { return Ok(false) };
        frame.copy_to((at - (page << self.file.page_shift())) as usize, into);
        Ok(self.clip(at, into.len()) == into.len())
    }

    /// Has a page in memory.
    pub(crate) fn bring_in(&self, call: &mut Call, page: u64) -> Result<(), Error> {
        match self.file.map.state(page) {
            PageState::Resident { .. } => Ok(()),
            _ => self.fault(call, page, Want::Presence).map(|_| ()),
        }
    }

    /// A page that the call wants isn't in memory: has what else it wants, and what may come after that, loaded too. True if
    /// the page may be on its way by now.
    fn miss(&self, call: &mut Call, page: u64) -> bool {
        if !self.has_device() {
            return false;
        }
        if !std::mem::replace(&mut call.told, true) {
            self.read_ahead_of(call.pages.clone(), page);
        }
        let end = call.pages.end.min(page + self.launch_max());
        let is_vacant = |page| matches!(self.file.map.state(page), PageState::Vacant { .. });
        if page < call.launched || !(page + 1..end).any(is_vacant) {
            return false;
        }
        call.launched = end;
        let launched = self.launch(page..end, Purpose::Use);
        call.add(launched);
        launched.pages > 0
    }

    /// Loads a page, or waits for whoever does, and takes from it what is wanted. Says how many bytes were copied: fewer
    /// than wanted, and no pin, if the file has become shorter.
    fn fault(&self, call: &mut Call, page: u64, mut want: Want<'_>) -> Result<(usize, Option<PinnedFrame<'_>>), Error> {
        let manager = &*self.file.manager;
        if manager.frames.forked() {
            return Err(Error::Forked);
        }
        let (mut rooms_made, mut shortened) = (0, 0);
        let mut waited = false;
        let mut backoff = Backoff::new();
        loop {
            // Somebody may have found out that the file has become shorter. A page past its end is never found.
            let there = self.clip_want(page, &mut want);
            if there == 0 {
                return Ok((0, None));
            }
            let state = self.file.map.state(page);
            if state == PageState::Loading {
                waited = true;
                self.wait(call, page)?;
            } else if let PageState::Vacant { .. } = state {
                if self.miss(call, page) {
                    continue;
                }
                let frame = manager.take_frame(self.group.state())?;
                match self.file.map.begin_load(page) {
                    BeginLoad::Begun(loading) => {
                        match self.load(page, loading, frame, &mut want)? {
                            Loaded::Page(pin) => return Ok((there, pin)),
                            Loaded::FileIsShorter if shortened < SHORT_ATTEMPTS => shortened += 1,
                            Loaded::FileIsShorter => {
                                return Err(self.file.read_failed(page, IoError::NoProgress));
                            }
                        }
                        continue;
                    }
                    BeginLoad::Resident => {}
                    BeginLoad::Busy => {
                        drop(frame);
                        waited = true;
                        self.wait(call, page)?;
                    }
                    BeginLoad::NoRoom => {
                        drop(frame);
                        rooms_made += 1;
                        if rooms_made > ROOM_ATTEMPTS {
                            return Err(manager.limit_reached(self.group.state()));
                        }
                        manager.make_room(self.group.state())?;
                        continue;
                    }
                }
            }
            // Another thread has loaded it. It may be gone again already: then it is our turn. Or somebody writes to it.
            let mut pinned = None;
            let found = match &mut want {
                Want::Copy { at, into } => self.read_in_memory(*at, into) || self.read_pinned(page, *at, into)?,
                Want::Pin => {
                    pinned = self.pin_in_memory(page)?;
                    pinned.is_some()
                }
                Want::Presence => true,
            };
            if found {
                self.count_found(call, waited);
                return Ok((there, pinned));
            }
            backoff.wait();
        }
    }

    /// Cuts what is wanted of a page down to what the file has of it, and says how much that is.
    fn clip_want(&self, page: u64, want: &mut Want<'_>) -> usize {
        match want {
            Want::Copy { at, into } => {
                let there = self.clip(*at, into.len());
                *into = &mut std::mem::take(into)[..there];
                there
            }
            Want::Pin | Want::Presence => self.clip(page << self.file.page_shift(), 1 << self.file.page_shift()),
        }
    }

    /// Counts a lookup whose page another thread has just loaded, unless the call had it loaded.
    fn count_found(&self, call: &mut Call, waited: bool) {
        if waited && call.counted == 0 {
            Counters::add(&self.file.counters.waits, 1);
            Counters::add(&self.group.state().counters.waits, 1);
        } else {
            self.count_hit(call);
        }
    }

    /// Waits until the load of the page is over that somebody has begun: helps with what the call launched, or read-ahead did,
    /// because the page is probably part of that.
    fn wait(&self, call: &mut Call, page: u64) -> Result<(), Error> {
        let Some(waiting) = self.file.map.begin_wait(page, None) else { return Ok(()) };
        let outcome = Cell::new(None);
        let waiting = RefCell::new(waiting);
        if let Some(queue) = call.queue.or_else(|| self.read_ahead.queue()) {
            self.file.backing.help(queue, &|| {
                outcome.set(outcome.get().or_else(|| waiting.borrow_mut().outcome()));
                outcome.get().is_some()
            });
        }
        match outcome.get().unwrap_or_else(|| waiting.into_inner().sleep()) {
            Ok(()) => Ok(()),
            // Its loader unwound, or found no end to it: the next attempt loads the page itself.
            Err(failure) if failure == Loading::ABANDONED => Ok(()),
            Err(failure) => {
                self.count_found(call, true);
                Err(self.file.read_failed(page, decode(failure)))
            }
        }
    }

    /// Loads a page.
    fn load<'a>(
        &'a self,
        page: u64,
        loading: Loading<'a>,
        frame: ChargedFrame<'a>,
        want: &mut Want<'_>,
    ) -> Result<Loaded<'a>, Error> {
        let (file, group) = (&*self.file, self.group.state());
        let start = page << file.page_shift();
        let expected = self.expected(page);
        let read =
            if expected == 0 { Ok(zeros_into(&frame, start, want)) } else { self.read_into(&frame, start, want) };
        let got = match read {
            Ok(got) => got,
            Err(error) => {
                loading.fail(encode(error));
                Counters::add(&file.counters.errors, 1);
                Counters::add(&group.counters.errors, 1);
                return Err(file.read_failed(page, error));
            }
        };
        if got < expected {
            drop(loading); // Who waits looks again.
            drop(frame);
            file.refresh_len(start)?;
            return Ok(Loaded::FileIsShorter);
        }
        Ok(Loaded::Page(self.publish(loading, frame, got, matches!(want, Want::Pin))))
    }

    /// Bytes of the page that the file has where it is kept. For whoever has the page's word in *loading*: what was written
    /// past that is in memory, or was written back, and then the file has it.
    pub(crate) fn expected(&self, page: u64) -> usize {
        let start = page << self.file.page_shift();
        let kept = usize::try_from(self.file.disk_len().saturating_sub(start)).unwrap_or(usize::MAX);
        self.clip(start, 1 << self.file.page_shift()).min(kept)
    }

    /// Puts a page into memory of which `got` bytes were read.
    pub(crate) fn publish<'a>(
        &self,
        loading: Loading<'a>,
        frame: ChargedFrame<'a>,
        got: usize,
        pin: bool,
    ) -> Option<PinnedFrame<'a>> {
        let (file, group) = (&*self.file, self.group.state());
        let (level, refault) = group.welcome(loading.shadow());
        let level = if self.is_sequential() { Level::default() } else { level };
        file.counters.loaded(got, refault);
        group.counters.loaded(got, refault);
        let rank = Rank::young(level).bits();
        let labels = Labels { group: group.id, owner: file.owner, rank, ..Labels::default() };
        let (isolated, pin) = loading.publish(frame.into_frame(), labels, pin);
        file.manager.enter(group, isolated);
        pin
    }

    /// Reads the page at `start` into `frame`, and what is wanted of it to where it is wanted.
    fn read_into(&self, frame: &OwnedFrame<'_>, start: u64, want: &mut Want<'_>) -> Result<usize, IoError> {
        let backing = &*self.file.backing;
        // A copy made by the CPU is made into the caller's buffer, which is probably in its caches, and from there past
        // the caches into the frame, which isn't: that saves fetching the frame's old bytes.
        if let Want::Copy { into, .. } = want
            && into.len() == 1 << self.file.page_shift()
            && backing.reads_by_copy()
            && let Some(bytes) = SharedBytes::of(into)
        {
            let got = read_full(backing, start, bytes)?;
            frame.fill(|bytes| bytes.stream_from(into));
            return Ok(got);
        }
        let got = frame.fill(|bytes| read_full(backing, start, bytes))?;
        if let Want::Copy { at, into } = want {
            frame.copy_to((*at - start) as usize, into);
        }
        Ok(got)
    }

    pub(crate) fn past_end(&self, offset: u64, wanted: u64) -> Error {
        Error::PastEnd { path: self.file.path.clone(), len: self.file.len(), offset, wanted }
    }

    pub(crate) fn too_many_pins(&self, page: u64) -> Error {
        Error::TooManyPins { path: self.file.path.clone(), page }
    }
}

/// In place of reading the page at `start`, of which the file has nothing yet. Says so.
fn zeros_into(frame: &OwnedFrame<'_>, start: u64, want: &mut Want<'_>) -> usize {
    frame.fill(|bytes| bytes.zero_from(0));
    if let Want::Copy { at, into } = want {
        frame.copy_to((*at - start) as usize, into);
    }
    0
}

/// An [`IoError`] in the number that waiters get. Error numbers of the system are positive.
pub(crate) fn encode(error: IoError) -> LoadFailure {
    LoadFailure(error.errno().unwrap_or(-1))
}

pub(crate) fn decode(failure: LoadFailure) -> IoError {
    if failure.0 > 0 { IoError::Os(failure.0) } else { IoError::NoProgress }
}
