//! The way of a miss: from a page that isn't in memory to its bytes.
//!
//! The order matters (lock order in ARCHITECTURE.md): the charge and the frame first, which may take reclaim; then the
//! page word; then the read. So whoever has a word in *loading* depends on nothing but the device.

use frames::{BeginLoad, Labels, LoadFailure, Loading, OwnedFrame, PageState, PinError, PinnedFrame};
use sync::SharedBytes;
use sync::atomic::Backoff;

use crate::error::Error;
use crate::file::{Handle, PinnedPage};
use crate::group_lists::Rank;
use crate::io::{IoError, read_full};
use crate::manager::ChargedFrame;
use crate::shadow::Level;
use crate::stats::Counters;
use crate::write::Patience;

/// How often a thread makes room for a part of the page map before it gives up: others may take the room.
const ROOM_ATTEMPTS: u32 = 64;
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

impl Handle {
    /// The way of [`File::read_at`](crate::File::read_at) when one page in memory won't do.
    #[cold]
    pub(crate) fn read_pages(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            if at >= self.file.len() && at >= self.refreshed_len(at)? {
                break;
            }
            let wanted = self.clip(at, buf.len() - done);
            // Fewer than wanted if the load found out that the file has become shorter.
            let there = self.read_page(&mut buf[done..done + wanted], at)?;
            done += there;
            if there < wanted {
                break;
            }
        }
        Ok(done)
    }

    fn refreshed_len(&self, at: u64) -> Result<u64, Error> {
        if self.file.manager.frames.forked() {
            return Err(Error::Forked);
        }
        self.file.refresh_len(at)
    }

    /// How many of `wanted` bytes at `at` lie in the same page and in the file.
    fn clip(&self, at: u64, wanted: usize) -> usize {
        let page = 1_u64 << self.file.page_shift();
        let in_page = page - (at & (page - 1));
        in_page.min(self.file.len().saturating_sub(at)).min(wanted as u64) as usize
    }

    /// Reads bytes of one page, and says how many of them the file has.
    fn read_page(&self, into: &mut [u8], at: u64) -> Result<usize, Error> {
        if self.file.map.read(at, into) {
            self.hits.counter.add(1);
            return Ok(into.len());
        }
        let page = at >> self.file.page_shift();
        self.fault(page, Want::Copy { at, into }).map(|(copied, _)| copied)
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
            None => self.fault(page, Want::Pin)?.1,
        };
        let len = self.clip(start, 1 << shift);
        // A file that became shorter while the page was read may not have it any more.
        frame.filter(|_| len > 0).map(|frame| PinnedPage { frame, len }).ok_or_else(past_end)
    }

    /// Pins a page that is in memory, waiting if somebody writes to it.
    fn pin_in_memory(&self, page: u64) -> Result<Option<PinnedFrame<'_>>, Error> {
        let mut patience = Patience::default();
        loop {
            match self.file.map.pin(page) {
                Ok(pinned) => return Ok(pinned),
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
    pub(crate) fn bring_in(&self, page: u64) -> Result<(), Error> {
        match self.file.map.state(page) {
            PageState::Resident { .. } => Ok(()),
            _ => self.fault(page, Want::Presence).map(|_| ()),
        }
    }

    /// Loads a page, or waits for whoever does, and takes from it what is wanted. Says how many bytes were copied: fewer
    /// than wanted, and no pin, if the file has become shorter.
    fn fault(&self, page: u64, mut want: Want<'_>) -> Result<(usize, Option<PinnedFrame<'_>>), Error> {
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
                self.wait(page)?;
            } else if let PageState::Vacant { .. } = state {
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
                        self.wait(page)?;
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
                Want::Copy { at, into } => self.file.map.read(*at, into) || self.read_pinned(page, *at, into)?,
                Want::Pin => {
                    pinned = self.pin_in_memory(page)?;
                    pinned.is_some()
                }
                Want::Presence => true,
            };
            if found {
                self.count_found(waited);
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

    /// Counts a lookup whose page another thread has just loaded.
    fn count_found(&self, waited: bool) {
        if waited {
            Counters::add(&self.file.counters.waits, 1);
            Counters::add(&self.group.state().counters.waits, 1);
        } else {
            self.hits.counter.add(1);
        }
    }

    /// Waits until another thread's load of the page is over.
    fn wait(&self, page: u64) -> Result<(), Error> {
        match self.file.map.wait(page) {
            Ok(()) => Ok(()),
            // Its loader unwound: the next attempt loads the page itself.
            Err(failure) if failure == Loading::ABANDONED => Ok(()),
            Err(failure) => {
                self.count_found(true);
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
        // What was written past that is in memory, or was written back, and then the file has it.
        let expected = self.clip(start, 1 << file.page_shift());
        let expected = expected.min(usize::try_from(file.disk_len().saturating_sub(start)).unwrap_or(usize::MAX));
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
        let (level, refault) = group.welcome(loading.shadow());
        let level = if self.is_sequential() { Level::default() } else { level };
        file.counters.loaded(got, refault);
        group.counters.loaded(got, refault);
        let pin = matches!(want, Want::Pin);
        let labels = Labels { group: group.id, owner: file.owner, rank: Rank::young(level).bits() };
        let (isolated, pin) = loading.publish(frame.into_frame(), labels, pin);
        file.manager.enter(group, isolated);
        Ok(Loaded::Page(pin))
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

    fn too_many_pins(&self, page: u64) -> Error {
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
fn encode(error: IoError) -> LoadFailure {
    LoadFailure(error.errno().unwrap_or(-1))
}

fn decode(failure: LoadFailure) -> IoError {
    if failure.0 > 0 { IoError::Os(failure.0) } else { IoError::NoProgress }
}
