//! Loads in flight: the launching thread goes on while the device reads.
//!
//! To load pages, a thread first obtains frames for all of them. Then it puts the page words in
//! *loading*, in the order of the file, and forms runs: neighbouring pages are one run of up to 1
//! MiB. Finally it submits all runs together.
//!
//! After that no thread of Pagefold has to wait for the load. The load itself owns its words, its
//! frames, their charge and a reference to its file (`frames`' `loading_run`). The load completes,
//! or *lands*, in whichever thread first sees the device's answer.
//!
//! - F1. While a thread launches loads, it has no page words in *loading* except those of the pages
//!   that it launches. It does all its reclaiming before it puts the first of these words in
//!   *loading*. If threads waited for other pages, or reclaimed, while they had words in
//!   *loading*, two threads could each wait for a page that the other is loading.
//! - F2. Completing a load waits for no thread and allocates neither frames nor charges.
//! - F3. A completed load drops its reference to the file before the count of the file's loads in
//!   flight is lowered (`file::in_flight`).
//! - F4. If a read of a run of several pages fails, no error is reported, and none of the pages
//!   comes into memory. A reader that wants one of the pages then reads that page alone. So a bad
//!   page causes errors only for its own readers.

use std::ops::Range;

use arrayvec::ArrayVec;
use frames::{Ahead, BeginLoad, Loading, LoadingRun, PageState};
use sync::Arc;
use sync::atomic::Ordering;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::in_flight::Flying;
use crate::file::state::FileState;
use crate::file::watch::Pace;
use crate::lru::admission::Arrival;
use crate::manager::mailbox::{LoadMailbox, Outcome, Reply};
use crate::manager::reclaim::unwanted::Looks;
use crate::memory::charges::ChargedFrame;
use crate::memory::charges::ChargedPages;
use crate::read::call::{Launched, Purpose};
use crate::read::load_error::encode;
use crate::stats::Counters;
use io::{Batch, IoError, Queue, Request};

/// The most pages and bytes in one request.
const RUN_PAGES: usize = 256;
const RUN_BYTES: usize = 1 << 20;
/// The most pages that one call launches at a time.
const LAUNCH_PAGES: u64 = 4096;
/// A call also launches at most 1/`LIMIT_SHARE` of the pages that its group may have in memory.
const LIMIT_SHARE: u64 = 4;

/// Completes a run when its read ends. If a `Landing` is dropped before its run is submitted, the
/// run's frames are freed first, and then their pages are uncharged.
///
/// Fields are dropped in the order of their declaration. `file` is declared before `_flying` to
/// ensure F3.
struct Landing {
    charge: ChargedPages,
    /// The number of the run's bytes that the device had, as far as was known at the launch.
    expected: usize,
    purpose: Purpose,
    /// The user advised that the file is read in sequence. The pages then enter memory without
    /// history: the records of their earlier evictions (shadows) are ignored.
    sequential: bool,
    file: Arc<FileState>,
    _flying: Flying,
}

/// Why a page map has no word for a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum NoWord {
    /// There is no room now for the part of the map that holds the word.
    NoRoom,
    /// The map can't hold a word for this page.
    NoPlace,
}

/// A run that isn't submitted yet.
struct Run {
    pages: LoadingRun,
    expected: usize,
}

impl Handle {
    /// Returns whether it is worthwhile to load many pages at once, and to read ahead. Returns
    /// false if every read is a copy in memory, because then there is no device to wait for.
    pub(crate) fn has_device(&self) -> bool {
        !self.file.backing.reads_by_copy()
    }

    /// Returns how many pages one call should have in flight at most.
    pub(crate) fn launch_max(&self) -> u64 {
        (self.page_limit() / LIMIT_SHARE).clamp(1, LAUNCH_PAGES)
    }

    /// Returns the number of pages that this handle's group may have in memory.
    pub(crate) fn page_limit(&self) -> u64 {
        let manager = &self.file.manager;
        self.group.state().max().min(manager.memory.frames.budget().max() >> self.file.page_shift())
    }

    /// Begins to load those of `pages` that aren't in memory. `pages` must be in ascending order.
    /// Loads as many as there are frames for. Frames that can be reclaimed without waiting for
    /// loads or write-back count, too. The requests belong to `batch`.
    pub(crate) fn launch(&self, pages: impl IntoIterator<Item = u64>, purpose: Purpose, batch: &Batch) -> Launched {
        self.launch_by(pages, purpose, batch, None)
    }

    /// Begins to load pages like [`launch`](Self::launch), for an advice. To get frames for them,
    /// evicts no page that is in use.
    pub(crate) fn launch_advised(&self, pages: Range<u64>, batch: &Batch, looks: &mut Looks) -> Launched {
        self.launch_by(pages, Purpose::Use, batch, Some(looks))
    }

    fn launch_by(
        &self,
        pages: impl IntoIterator<Item = u64>,
        purpose: Purpose,
        batch: &Batch,
        looks: Option<&mut Looks>,
    ) -> Launched {
        let (file, group) = (&*self.file, self.group.state());
        let is_vacant = |page: &u64| matches!(file.map.state(*page), PageState::Vacant { .. });
        let vacant: Vec<_> = pages.into_iter().filter(is_vacant).take(self.launch_max() as usize).collect();
        // A silent device gets no more requests, which would keep their frames until it answers.
        if vacant.is_empty() || file.manager.memory.frames.forked() || file.is_device_silent() {
            return Launched::default();
        }
        let mut frames = Vec::with_capacity(vacant.len());
        match looks {
            None => file.manager.spare_frames(group, vacant.len(), &mut frames), // F1
            Some(looks) => file.manager.frames_beside_use(group, vacant.len(), looks, &mut frames),
        }
        let is_short = frames.len() < vacant.len();
        let (runs, refused) = self.begin_runs(vacant, frames);
        let mark = match purpose {
            Purpose::ReadAhead(first) => {
                let begun = runs.iter().flat_map(|run| run.pages.pages());
                begun.min_by_key(|page| page.abs_diff(first))
            }
            _ => None,
        };
        let pages = runs.iter().map(|run| run.pages.len() as u64).sum();
        let again = || mark.map_or(Purpose::Use, Purpose::ReadAhead);
        let mut requests = Vec::with_capacity(runs.len());
        requests.extend(runs.into_iter().filter_map(|run| Some(self.request(run, again())?.in_batch(batch))));
        Launched { pages, queue: self.submit(&mut requests), is_short: is_short || refused.is_some() }
    }

    /// Begins to load one page into `frame`. The outcome will be put into the mailbox `load`.
    /// Returns false and frees the frame if this thread can't load the page: the page is in memory
    /// or being loaded, the file has become shorter, or the page map has no word for the page.
    ///
    /// # Errors
    /// [`Error::FileTooLarge`].
    pub(crate) fn launch_for(
        &self,
        page: u64,
        frame: ChargedFrame<'_>,
        load: &Arc<LoadMailbox>,
    ) -> Result<bool, Error> {
        let (mut runs, refused) = self.begin_runs(vec![page], vec![frame]);
        if let Some(NoWord::NoPlace) = refused {
            return Err(self.file.too_large(page << self.file.page_shift()));
        }
        let Some(run) = runs.pop() else { return Ok(false) };
        self.file.manager.file_io.mailboxes.add(load);
        let mut requests = Vec::from_iter(self.request(run, Purpose::Future(Reply::to(load))));
        self.submit(&mut requests);
        Ok(true)
    }

    /// Begins to load a page that this thread has put in *loading*, and of which the device has
    /// `expected` bytes. Returns the queue in which a waiting thread can help to process the
    /// request.
    pub(crate) fn launch_loading(
        &self,
        loading: Loading<'_>,
        frame: ChargedFrame<'_>,
        expected: usize,
        batch: &Batch,
    ) -> Launched {
        let mut run = Run { pages: LoadingRun::new(&self.file.map), expected };
        run.pages.push(loading, frame.into_frame());
        let mut requests = Vec::from_iter(self.request(run, Purpose::Use).map(|request| request.in_batch(batch)));
        Launched { pages: 1, queue: self.submit(&mut requests), is_short: false }
    }

    fn submit(&self, requests: &mut Vec<Request>) -> Option<Queue> {
        if requests.is_empty() { None } else { Some(self.file.backing.submit(requests)) }
    }

    /// Puts pages in *loading* and forms runs of them, until no frame is left. Leaves out pages of
    /// which the file's device has no bytes (N6 of `length`). Stops at the first page for which the
    /// page map has no word, and returns the reason.
    fn begin_runs(&self, pages: Vec<u64>, frames: Vec<ChargedFrame<'_>>) -> (Vec<Run>, Option<NoWord>) {
        let file = &*self.file;
        let run_max = RUN_PAGES.min(RUN_BYTES >> file.page_shift()).max(1);
        let (mut runs, mut refused): (Vec<Run>, _) = (Vec::new(), None);
        let mut frames = frames.into_iter();
        let mut next = frames.next();
        for page in pages {
            let Some(frame) = next.take() else { break };
            match file.map.begin_load(page) {
                BeginLoad::Begun(loading) => {
                    // No bytes beyond `expected` exist; see [`expected`](Self::expected).
                    let expected = self.expected(page);
                    if expected == 0 {
                        self.abandon(loading);
                        next = Some(frame);
                        continue;
                    }
                    next = frames.next();
                    let follows = |run: &&mut Run| {
                        run.pages.pages().end == page
                            && run.pages.len() < run_max
                            && run.expected == run.pages.len() << file.page_shift()
                    };
                    if runs.last_mut().as_ref().is_none_or(|run| !follows(run)) {
                        runs.push(Run { pages: LoadingRun::new(&file.map), expected: 0 });
                    }
                    if let Some(run) = runs.last_mut() {
                        run.pages.push(loading, frame.into_frame());
                        run.expected += expected;
                    }
                }
                // The frame is used for the next page.
                BeginLoad::Resident | BeginLoad::Busy => next = Some(frame),
                // Only a thread without a word in *loading* may make room (F1).
                no_word @ (BeginLoad::NoRoom | BeginLoad::NoPlace) => {
                    next = Some(frame);
                    let is_room = matches!(no_word, BeginLoad::NoRoom);
                    refused = Some(if is_room { NoWord::NoRoom } else { NoWord::NoPlace });
                    break;
                }
            }
        }
        // Many frames may be left over, if several readers read the same pages ahead.
        let unused = next.into_iter().chain(frames).map(ChargedFrame::into_frame);
        file.manager.memory.release(self.group.state(), unused);
        (runs, refused)
    }

    fn request(&self, run: Run, purpose: Purpose) -> Option<Request> {
        let Run { pages, expected } = run;
        let offset = pages.pages().start << self.file.page_shift();
        let landing = Landing {
            charge: ChargedPages::new(self.group.state(), pages.len() as u64),
            expected,
            purpose,
            sequential: self.is_sequential(),
            file: Arc::clone(&self.file),
            _flying: self.file.in_flight.take_off(),
        };
        // This fails only for a range that no file can have. If it fails, the run is dropped, which
        // cancels its loads.
        Request::read(offset, pages, move |run, result| landing.land(run, result)).ok()
    }
}

impl Landing {
    /// Completes the run after its read succeeded or failed.
    fn land(mut self, mut run: LoadingRun, result: Result<usize, IoError>) {
        let mut reply = Outcome::Nothing;
        match result {
            Ok(got) => reply = self.publish(&mut run, got).map_or(Outcome::Nothing, Outcome::Page),
            Err(error) => {
                Counters::add(&self.file.counters.errors, 1);
                Counters::add(&self.charge.group().counters.errors, 1);
                let alone = run.len() == 1;
                if let Some((loading, frame)) = run.next().filter(|_| alone) {
                    drop(frame);
                    loading.fail(encode(error)); // F4
                    reply = Outcome::Failed(error);
                }
            }
        }
        drop(run);
        // If the file has no handle, the thread that closes it may be waiting for this load, so
        // progress is noted for that thread (WATCH-3 of `watchdog`). Any other thread that waits
        // for the load notes the answer itself. Acquire, as wherever the number of handles is read.
        if self.file.handles.load(Ordering::Acquire) == 0 {
            self.file.progresses(Pace::Closing);
        }
        let answers = self.file.answers();
        let purpose = std::mem::replace(&mut self.purpose, Purpose::Use);
        drop(self);
        if let Purpose::Future(future) = purpose {
            future.tell(reply);
        }
        answers.heard(); // After all waiting threads were told (WATCH-1 of `watchdog`).
    }

    /// Puts the run's pages into memory, up to the file's actual end. If the run was loaded for a
    /// future, it has one page. In this case, also pins that page and returns the pin.
    fn publish(&mut self, run: &mut LoadingRun, got: usize) -> Option<frames::KeptPin> {
        let Self { charge, expected, purpose, sequential, file, .. } = self;
        let (group, page_bytes) = (Arc::clone(charge.group()), file.page_bytes() as usize);
        let whole = |bytes: usize, at: usize| bytes.saturating_sub(at * page_bytes).min(page_bytes);
        // If the file is shorter than was known, the run's last pages aren't published. Threads
        // that wait for one of them look it up again, and then find the new length.
        let came = run.pages().enumerate().take_while(|&(at, _)| whole(got, at) >= whole(*expected, at)).count();
        // The pages are counted before they are published. So a thread that finds one of them also
        // finds it counted.
        let ahead = matches!(purpose, Purpose::ReadAhead(_));
        for counters in [&*file.counters, &group.counters] {
            counters.loaded_run(came as u64, got.min(came * page_bytes), ahead);
        }
        let mut entering = ArrayVec::<_, RUN_PAGES>::new();
        let (mut refaults, mut kept) = (0, None);
        for page in run.pages().take(came) {
            let Some((loading, frame)) = run.next() else { break };
            let ahead = match *purpose {
                Purpose::ReadAhead(marked) if marked == page => Ahead::Marked,
                Purpose::ReadAhead(_) => Ahead::Yes,
                Purpose::Use | Purpose::Future(_) => Ahead::No,
            };
            let arrival = Arrival { ahead, ..group.arrival(file.owner, loading.shadow(), *sequential) };
            refaults += u64::from(arrival.history.is_refault);
            charge.hand_over();
            entering.push(if matches!(purpose, Purpose::Future(_)) {
                let (isolated, pin) = arrival.publish_pinned(loading, frame);
                kept = Some(pin);
                isolated
            } else {
                arrival.publish(loading, frame, false).0
            });
        }
        if refaults > 0 {
            for counters in [&*file.counters, &group.counters] {
                counters.refaults.add(refaults);
            }
        }
        file.manager.memory.enter_run(&group, &mut entering);
        kept
    }
}
