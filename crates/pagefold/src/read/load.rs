//! The path of a miss: loads a page that isn't in memory.
//!
//! To load a page, a thread first obtains the charge and the frame, and reclaims memory if need be.
//! Then it puts the page word in *loading*, and finally it reads the page (lock order in
//! ARCHITECTURE.md). All reclaim comes before *loading*. So a thread that has a word in *loading*
//! waits for nothing but the device, and can't deadlock.

use std::cell::{Cell, RefCell};

use frames::{BeginLoad, Loading, OwnedFrame, PageState, PinnedFrame, Waiting};
use sync::SharedBytes;
use sync::atomic::Backoff;
use sync::time::{Duration, Instant};

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::state::FileState;
use crate::file::watch::{Pace, Watch};
use crate::manager::reclaim::room::RoomsMade;
use crate::memory::charges::ChargedFrame;
use crate::read::call::{Call, HELPING, Purpose, Want};
use crate::read::load_error::{decode, encode};
use crate::stats::Counters;
use crate::timers::counted_wait;
use io::{Helping, IoError, read_full};

/// The most times that a thread loads a page again because the file has become shorter. Without a
/// limit, other processes could keep a reader here forever.
const SHORT_ATTEMPTS: u32 = 8;

/// The outcome of a load.
enum Loaded<'a> {
    /// The page is in memory, and pinned if that was wanted. The file has this many of the wanted
    /// bytes.
    Page(usize, Option<PinnedFrame<'a>>),
    /// The file is shorter than was known. The page isn't put into memory: its zeros would be taken
    /// for bytes of the file.
    FileIsShorter,
    /// The page was in memory a moment ago.
    InMemory,
}

impl Handle {
    /// Loads a page unless it is in memory.
    pub(crate) fn bring_in(&self, call: &mut Call, page: u64) -> Result<(), Error> {
        match self.file.map.state(page) {
            PageState::Resident { .. } => Ok(()),
            _ => self.fault(call, page, Want::Presence).map(|_| ()),
        }
    }

    /// Handles a miss of `call`: launches loads of the missing page, of the call's further pages,
    /// and of pages to read ahead. Returns whether loads of the call's pages were launched. If so,
    /// the missing page may be loading.
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
        let launched = self.launch(page..end, Purpose::Use, &call.batch());
        let some = launched.pages > 0;
        call.add(launched);
        some
    }

    /// Loads a page, or waits for the thread that is loading it. Then copies or pins the page, as
    /// `want` requests. Returns the number of bytes copied, and the pin. If the file has become
    /// shorter, copies fewer bytes than requested. If the file no longer has any byte of the page,
    /// returns no pin.
    pub(crate) fn fault(
        &self,
        call: &mut Call,
        page: u64,
        mut want: Want<'_>,
    ) -> Result<(usize, Option<PinnedFrame<'_>>), Error> {
        let manager = &*self.file.manager;
        if manager.memory.frames.forked() {
            return Err(Error::Forked);
        }
        let (mut rooms_made, mut shortened) = (RoomsMade::default(), 0);
        let mut waited = false;
        let mut backoff = Backoff::new();
        loop {
            // Checked in each iteration, because another thread may have found that the file has
            // become shorter. A page past the end never comes into memory, so this thread must not
            // go on trying to load it.
            let there = self.clip_want(page, &mut want);
            if there == 0 {
                return Ok((0, None));
            }
            let state = self.file.map.state(page);
            if state == PageState::Loading {
                waited = true;
                if !self.wait(call, page)? {
                    continue;
                }
            } else if let PageState::Vacant { .. } = state {
                if self.miss(call, page) {
                    continue;
                }
                self.file.check_device()?;
                let group = self.group.state();
                let frame = self.file.wait_for_memory(call.turn, || manager.take_frame(group))?;
                match self.file.map.begin_load(page) {
                    BeginLoad::Begun(loading) => {
                        let expected = self.expected(page);
                        if expected == 0 {
                            // Sometimes: a page is cut off before it is loaded.
                            self.abandon(loading);
                            continue;
                        }
                        let loaded = if self.file.watch().is_none() || !self.has_device() {
                            let loaded = self.load(page, loading, frame, expected, &mut want);
                            self.file.answers().heard();
                            loaded?
                        } else {
                            self.load_in_time(call, page, loading, frame, expected)?
                        };
                        match loaded {
                            Loaded::Page(there, pin) => return Ok((there, pin.filter(|_| there > 0))),
                            Loaded::InMemory => {}
                            Loaded::FileIsShorter if shortened < SHORT_ATTEMPTS => {
                                shortened += 1;
                                self.take_over_shorter(call)?;
                            }
                            Loaded::FileIsShorter => {
                                return Err(self.file.read_failed(page, IoError::NoProgress));
                            }
                        }
                        continue;
                    }
                    BeginLoad::Resident => {}
                    BeginLoad::Busy => {
                        // Sometimes: two threads miss one page at once.
                        drop(frame);
                        waited = true;
                        if !self.wait(call, page)? {
                            continue;
                        }
                    }
                    BeginLoad::NoPlace => return Err(self.file.too_large(page << self.file.page_shift())),
                    BeginLoad::NoRoom => {
                        drop(frame);
                        let make_room = || manager.make_room_for_word(group, &mut rooms_made);
                        self.file.wait_for_memory(call.turn, make_room)?;
                        continue;
                    }
                }
            }
            // Another thread has loaded the page. If the page has been evicted since, this thread
            // loads the page in the next iteration. If a writer holds the page, this thread
            // retries.
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

    /// Cuts `want` down to the bytes of the page that the file has. Returns their number.
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

    /// Counts a lookup of a page that was being loaded, or that another thread has just loaded. If
    /// the call waited for another thread's load, this counts as a wait, otherwise like a hit.
    fn count_found(&self, call: &mut Call, waited: bool) {
        if waited && call.counted == 0 {
            Counters::add(&self.file.counters.waits, 1);
            Counters::add(&self.group.state().counters.waits, 1);
        } else {
            self.count_hit(call);
        }
    }

    /// Waits until the load of the page has completed, whichever thread launched it. First helps
    /// for a while to process requests: those that the call launched or, if none of them is left,
    /// those of the readahead window that contains the page. If the load is still in progress after
    /// that, sleeps until it has completed.
    ///
    /// Returns whether the load brought the page into memory. If it didn't, or if the page wasn't
    /// being loaded any more, the caller has to look at the page again. A load brings no page if
    /// its thread unwound, if the file turned out to be shorter, or if the read of several pages
    /// failed (F4 of `flight`).
    fn wait(&self, call: &mut Call, page: u64) -> Result<bool, Error> {
        match self.file.map.begin_wait(page, None) {
            Some(waiting) => self.await_load(call, page, waiting),
            None => Ok(false),
        }
    }

    /// Waits for a load that `waiting` is registered for. Returns whether the page came into
    /// memory. See also [`wait`](Self::wait).
    fn await_load(&self, call: &mut Call, page: u64, waiting: Waiting<'_>) -> Result<bool, Error> {
        let outcome = Cell::new(None);
        let waiting = RefCell::new(waiting);
        let watch = self.file.watch();
        // If the call has already waited its full time limit for earlier pages, it doesn't get that
        // time again for each further page.
        let mut waited = watch.map_or(Duration::ZERO, Watch::time) * u32::from(std::mem::take(&mut call.is_late));
        if let Some(queue) = call.unfinished().cloned().or_else(|| self.read_ahead.queue_of(page))
            && !watch.is_some_and(Watch::is_silent)
        {
            let start = Instant::now();
            let helping = self.helping();
            self.file.backing.help_as(&queue, helping, &|| {
                outcome.set(outcome.get().or_else(|| waiting.borrow_mut().outcome()));
                outcome.get().is_some()
            });
            waited += counted_wait(helping.at_most, start); // WATCH-4
        }
        let outcome = match outcome.get() {
            Some(outcome) => outcome,
            None => self.file.wait_for_load(waiting.into_inner(), waited)?,
        };
        if call.turn {
            self.file.progresses(Pace::Length);
        }
        match outcome {
            Ok(()) => Ok(true),
            Err(failure) if failure == Loading::ABANDONED => Ok(false),
            Err(failure) => {
                self.count_found(call, true);
                Err(self.file.read_failed(page, decode(failure)))
            }
        }
    }

    /// Returns how this thread helps while it waits. If the wait is limited, this thread makes no
    /// system calls that may take longer than the limit, and leaves these calls to other threads.
    pub(crate) fn helping(&self) -> Helping {
        match self.file.watch() {
            None => HELPING,
            Some(watch) => {
                Helping { at_most: HELPING.at_most.map(|most| most.min(watch.time())), waits_only: true, ..HELPING }
            }
        }
    }

    /// Launches the load of a page, and waits for it for a limited time. This thread can give up
    /// waiting, because the load completes without it.
    fn load_in_time(
        &self,
        call: &mut Call,
        page: u64,
        loading: Loading<'_>,
        frame: ChargedFrame<'_>,
        expected: usize,
    ) -> Result<Loaded<'_>, Error> {
        // Registered before the load can complete, so that a failure isn't missed.
        let Some(waiting) = self.file.map.begin_wait(page, None) else { return Ok(Loaded::InMemory) };
        let launched = self.launch_loading(loading, frame, expected, &call.batch());
        call.add(launched);
        let came = self.await_load(call, page, waiting)?;
        Ok(if came { Loaded::InMemory } else { Loaded::FileIsShorter })
    }

    /// Loads a page, of which the device has `expected` bytes, in this thread.
    fn load<'a>(
        &'a self,
        page: u64,
        loading: Loading<'a>,
        frame: ChargedFrame<'a>,
        expected: usize,
        want: &mut Want<'_>,
    ) -> Result<Loaded<'a>, Error> {
        let (file, group) = (&*self.file, self.group.state());
        let got = match self.read_into(&frame, page << file.page_shift(), want) {
            Ok(got) => got,
            Err(error) => {
                // Sometimes: a load fails.
                loading.fail(encode(error));
                Counters::add(&file.counters.errors, 1);
                Counters::add(&group.counters.errors, 1);
                return Err(file.read_failed(page, error));
            }
        };
        if got < expected {
            // Sometimes: a page is short because the file was cut off.
            drop(loading); // Waiting threads look again.
            drop(frame);
            return Ok(Loaded::FileIsShorter);
        }
        // `want` was compared with the file's length before the read. If the file has been cut off
        // within this page since, `expected` may be only the number of bytes that are left, and
        // zeros follow them in the frame. So `want` is compared with the length again. This
        // comparison can't miss the cut: a cut lowers the length before it lowers `disk_len`, from
        // which `expected` was computed (N6 of `length`). And the file can't grow within this page
        // while the page's word is in *loading* (N3).
        let there = self.clip_want(page, want);
        Ok(Loaded::Page(there, self.publish(loading, frame, got, matches!(want, Want::Pin))))
    }

    /// Gives up the load of a page of which the device has no byte (N6 of `length`). Threads that
    /// wait for the page look it up again.
    pub(crate) fn abandon(&self, loading: Loading<'_>) {
        drop(loading);
        self.file.answers().heard();
    }

    fn take_over_shorter(&self, call: &Call) -> Result<(), Error> {
        let file = &*self.file;
        if call.turn { file.refresh_len_in_turn(FileState::wait_for_page) } else { file.refresh_len() }.map(|_| ())
    }

    /// Returns how many bytes of the page the file has on its device. The caller must own the
    /// page's word in *loading*.
    ///
    /// While the word is in *loading*, the page has no bytes but those on the device. If a writer
    /// had added bytes, the page would still be in memory, or it would have been written back. The
    /// page isn't in memory, because its word is in *loading*. If it was written back, the device
    /// has the added bytes, and they are counted here.
    ///
    /// So if this returns 0, the page lies past the file's end, and must not come into memory (N6
    /// of `length`).
    ///
    /// The length in memory isn't used: `set_len` may have lowered it, and may still restore it.
    pub(crate) fn expected(&self, page: u64) -> usize {
        let kept = self.file.disk_len().saturating_sub(page << self.file.page_shift());
        kept.min(self.file.page_bytes()) as usize
    }

    /// Puts a page of which `got` bytes were read into memory.
    pub(crate) fn publish<'a>(
        &self,
        loading: Loading<'a>,
        frame: ChargedFrame<'a>,
        got: usize,
        pin: bool,
    ) -> Option<PinnedFrame<'a>> {
        let (file, group) = (&*self.file, self.group.state());
        let arrival = group.arrival(file.owner, loading.shadow(), self.is_sequential());
        file.counters.loaded(got, arrival.history.is_refault);
        group.counters.loaded(got, arrival.history.is_refault);
        file.manager.memory.admit(group, loading, frame.into_frame(), arrival, pin)
    }

    /// Reads the page at `start` into `frame`, and copies the bytes that `want` requests.
    fn read_into(&self, frame: &OwnedFrame<'_>, start: u64, want: &mut Want<'_>) -> Result<usize, IoError> {
        let backing = &*self.file.backing;
        // If a read is a copy by the CPU, the bytes are copied twice: first into the caller's
        // buffer, which is probably in the CPU's caches, and then from the buffer into the frame.
        // The second copy uses stores that bypass the caches, so the CPU doesn't fetch the frame's
        // old bytes.
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

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use test_disks::SimulatedDisk;

    /// Regression: a thread that held `extension` loaded one page after another, and the device
    /// answered each load in time. Threads that waited for `extension` took the device for silent.
    #[test]
    fn a_load_of_a_thread_with_extension_is_an_answer_for_those_that_wait_for_it() {
        for turn in [false, true] {
            let disk = SimulatedDisk::default();
            disk.add_bytes("file", vec![1; 2 * 4096]);
            let mm = Pagefold::builder().memory("4MiB").backend(disk.clone());
            let mm = mm.io_timeout(Duration::from_secs(3600)).build().unwrap();
            let file = mm.group("a").build().unwrap().open_options().write(true).open("file").unwrap();
            let (handle, state) = (file.handle(), &file.handle().file);
            disk.answer_by_hand();
            file.prefetch(4096..2 * 4096);
            let waiting = state.map.begin_wait(1, None).unwrap();
            assert!(disk.answer_next());
            while state.manager.memory.now_ms() == 0 {
                std::thread::yield_now();
            }
            assert!(handle.await_load(&mut Call::writing(1, turn), 1, waiting).unwrap());
            assert_eq!(state.watch().unwrap().last_ms(Pace::Length, 1) > 0, turn);
        }
    }
}
