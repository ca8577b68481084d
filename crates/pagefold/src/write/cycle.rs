//! Runs one cycle of write-back, which goes through the pages of a file once and writes the dirty
//! ones. The thread that runs the cycle is the *leader*. It submits requests in the order of the
//! pages, many at a time; the requests complete in any order.
//!
//! Only the leader uses the cycle's state. The thread that completes a request only stores an
//! *answer* for the leader: the result, and the run of pages, which passes from the request to the
//! leader. The run keeps the file's page map alive. The completed request no longer has the run, so
//! it keeps neither the file nor any part of it alive.

use std::mem;

use arrayvec::ArrayVec;
use sync::Arc;
use sync::lock::{Condvar, Mutex};
use sync::time::Instant;

use frames::HeldRun;

use crate::dirty::course::Course;
use crate::file::state::FileState;
use crate::read::call::HELPING;
use io::{BackingFile, IoError, Request, failing_if_it_panics, uninterrupted};

/// The most requests that a cycle has under way at a time. A device may answer all requests that it
/// has in one go. Then it idles until the leader has looked at the answers and submitted others, so
/// there are as many again.
const REQUESTS_MAX: usize = 128;
/// The most requests that are submitted together. A device that idles begins with these while the
/// leader prepares others.
const TOGETHER_MAX: usize = 16;
/// Limits the bytes under way. A cycle submits another request only while all its requests under
/// way together have fewer bytes than `LARGE_MAX` times the largest request size.
const LARGE_MAX: usize = 16;
/// How many requests may fail before a cycle gives up. If a failed request is split into smaller
/// ones, each of these that fails counts as well. The limit is high enough for a file with some bad
/// places: the rest of the file is still written. It is low enough for a device that is gone: calls
/// don't wait long. Requests that are under way when the cycle gives up may fail as well, in excess
/// of the limit.
const FAILURES_MAX: u32 = 128;
/// A cycle consists of stages, each of which ends with a sync (but see B7 of `writeback`). A stage
/// ends once 1/`STAGES` of the pages that were unclean when the cycle began have been written.
const STAGES: u64 = 8;
/// The bounds of the number of pages in a stage.
const STAGE_PAGES: std::ops::RangeInclusive<u64> = 256..=4096;
/// Once a full cycle has settled `SETTLED_MAX` × as many pages as were unclean when it began, it
/// ends no stage before its own end (B5).
const SETTLED_MAX: u64 = 3;
/// A stage updates the estimate of the device's speed if at least this many pages were written in
/// it.
const MEASURED_MIN: u64 = 256;

/// Why a cycle is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call waits for all of it.
    Full,
    /// One slice of the flusher's work on a file. Ends when the file no longer needs to be written,
    /// or after a fixed time.
    Sweep,
    /// The file's last handle was dropped, or the process exits. All dirty pages are written, but
    /// not synced. Ends early if the file is opened again.
    Farewell,
}

/// The cycle under way.
pub(crate) struct Cycle<'a> {
    file: &'a FileState,
    writer: &'a dyn BackingFile,
    kind: Kind,
    start: Instant,
    /// The number of unclean pages when the cycle began.
    unclean: u64,
    /// The pages that the cycle has still to write, and those that it has still to settle.
    rest: Course,
    unsettled: Course,
    /// The first page of each run under way, in the order of the course, and the number of pages in
    /// these runs.
    under_way: ArrayVec<u64, REQUESTS_MAX>,
    pages_under_way: usize,
    /// Requests that are about to be submitted.
    requests: Vec<Request>,
    /// Some requests were submitted before.
    has_submitted: bool,
    answers: Arc<Answers>,
    /// The number of pages written in the current stage, the time at which the stage began, and the
    /// number of pages written in earlier stages.
    written: u64,
    stage_start: Instant,
    written_in_all: u64,
    /// The number of pages that became clean.
    settled: u64,
    /// The first failure of a request, and the number of failures.
    error: Option<IoError>,
    failures: u32,
}

/// A run whose request has completed.
struct Answer {
    run: HeldRun,
    /// The device was given copies of the run's pages, not their frames.
    is_copied: bool,
    result: Result<usize, IoError>,
}

/// Answers that the leader hasn't looked at yet.
#[derive(Default)]
struct Answers {
    came: Mutex<Vec<Answer>>,
    some: Condvar,
}

impl Answers {
    fn put(&self, answer: Answer) {
        self.came.lock().push(answer);
        self.some.notify_one();
    }

    /// Takes the answers of all requests that have completed. If there are none, waits for the
    /// first one. While it waits, helps to process the device's requests, if the device accepts
    /// help.
    fn take(&self, writer: &dyn BackingFile) -> Vec<Answer> {
        if self.came.lock().is_empty() {
            writer.help_as(&writer.queue(), HELPING, &|| !self.came.lock().is_empty());
        }
        let mut came = self.came.lock();
        while came.is_empty() {
            self.some.wait(&mut came);
        }
        mem::take(&mut *came)
    }
}

impl<'a> Cycle<'a> {
    /// Creates a cycle over `course`. The caller holds the file's `turn`.
    pub(crate) fn new(file: &'a FileState, writer: &'a dyn BackingFile, course: Course, kind: Kind) -> Self {
        let start = Instant::now();
        Self {
            file,
            writer,
            kind,
            start,
            unclean: file.unclean(),
            rest: course.clone(),
            unsettled: course,
            under_way: ArrayVec::new(),
            pages_under_way: 0,
            requests: Vec::with_capacity(TOGETHER_MAX),
            has_submitted: false,
            answers: Arc::default(),
            written: 0,
            stage_start: start,
            written_in_all: 0,
            settled: 0,
            error: None,
            failures: 0,
        }
    }

    /// Runs the cycle. Returns the rest of the course that it didn't reach, the number of pages
    /// that became clean, and the first failure.
    pub(crate) fn run(mut self) -> (Course, u64, Result<(), IoError>) {
        let _under_way = self.file.device().map(|device| device.begin_cycle());
        let mut synced = self.write_in_stages();
        while !self.under_way.is_empty() {
            self.take_answers();
        }
        // A full cycle syncs even if it wrote no page, because the file's length may have been set,
        // or an earlier sync may have failed. Other cycles sync only if they wrote pages.
        if synced.is_ok() && (self.kind == Kind::Full || self.written_in_all + self.written > 0) {
            synced = self.end_stage(self.rest.first()); // There is nothing under way.
        }
        if synced.is_err() {
            self.file.settle(self.unsettled.take_before(None), false);
        }
        (self.rest, self.settled, self.error.map_or(synced, Err))
    }

    /// Submits requests and ends stages, until no request is under way and none is left to submit.
    fn write_in_stages(&mut self) -> Result<(), IoError> {
        let stage_pages = (self.unclean / STAGES).clamp(*STAGE_PAGES.start(), *STAGE_PAGES.end());
        loop {
            if !self.is_over() && !self.is_cut_off() {
                self.submit();
            }
            let Some(first) = self.under_way.first().copied() else { return Ok(()) };
            if self.written >= stage_pages && self.may_settle() {
                self.end_stage(Some(first))?; // The device goes on with requests under way.
            }
            self.take_answers();
        }
    }

    fn may_settle(&self) -> bool {
        self.kind != Kind::Full || self.settled < SETTLED_MAX * self.unclean // B5
    }

    fn is_over(&self) -> bool {
        let has_to_end = match self.kind {
            Kind::Full => false,
            Kind::Sweep => self.file.sweep_is_over(self.start),
            Kind::Farewell => self.file.is_wanted(),
        };
        has_to_end || self.failures >= FAILURES_MAX
    }

    /// Returns whether another process has truncated the file since the cycle last checked. Called
    /// before further requests are submitted. Returns false without a check if the system would
    /// have to ask a device or a server. After a truncation, the cycle fails with `CutOff`, even if
    /// another error came first, and submits nothing more. So only requests that are under way can
    /// make the file longer again (B6 of `writeback`).
    fn is_cut_off(&mut self) -> bool {
        let looks = self.has_submitted && self.rest.first().is_some() && self.file.is_len_cheap();
        let is_cut = looks && self.file.is_cut_off() == Ok(true);
        if is_cut {
            // Sometimes: a file is cut off in the middle of a cycle.
            (self.error, self.failures) = (Some(IoError::CutOff), FAILURES_MAX);
        }
        is_cut
    }

    /// Submits requests until the limit of requests under way is reached, or no dirty page is left.
    fn submit(&mut self) {
        let pages_max = LARGE_MAX * self.file.run_pages();
        while !self.under_way.is_full() && self.pages_under_way < pages_max {
            let copy = match self.file.copies() {
                None => None,
                Some(copies) => match copies.take() {
                    None if self.under_way.is_empty() => Some(copies.wait()), // Other files' requests hold all copies.
                    None => break,                                            // The next answer gives one back.
                    some => some,
                },
            };
            let Some(run) = self.file.next_dirty_run(&mut self.rest) else {
                self.rest.take_before(None); // The cycle came round.
                break;
            };
            let (first, pages) = (run.pages().start, run.len());
            let answers = Arc::clone(&self.answers);
            let is_copied = copy.is_some();
            let put = move |run, result| answers.put(Answer { run, is_copied, result });
            let (offset, len) = (self.file.offset_of(&run), self.file.bytes_of(&run));
            let request = match copy {
                None => Request::write(offset, run, len, put),
                Some(mut copy) => {
                    copy.fill(run.bytes());
                    Request::write(offset, copy, len, move |copy, result| {
                        drop(copy); // First: a thread that waits for a copy needs nothing else.
                        put(run, result);
                    })
                }
            };
            match request {
                Ok(request) => self.requests.push(request),
                Err(error) => {
                    self.failed(error); // The pages are dirty again.
                    continue;
                }
            }
            self.under_way.push(first);
            self.pages_under_way += pages;
            if self.requests.len() == TOGETHER_MAX {
                self.submit_prepared();
            }
        }
        self.submit_prepared();
    }

    fn submit_prepared(&mut self) {
        if !self.requests.is_empty() {
            self.has_submitted = true;
            self.writer.submit(&mut self.requests);
        }
    }

    /// Takes the answers of requests that have completed. At least one request is under way.
    fn take_answers(&mut self) {
        for Answer { mut run, is_copied, mut result } in self.answers.take(self.writer) {
            self.file.cycle_was_answered();
            self.under_way.retain(|first| *first != run.pages().start);
            self.pages_under_way -= run.len();
            if let Err(refusal) = result
                && refusal.may_be_about_changed_bytes()
                && !is_copied
                && run.was_changed()
            {
                // Sometimes: a device refuses pages that were changed meanwhile.
                let (written, rest) = self.file.write_from_copies(self.writer, &mut run, refusal);
                self.written += written;
                result = rest.map(|()| 0); // Nothing is left of the run.
            }
            match result {
                Ok(bytes) => {
                    self.written += self.file.was_written(&mut run, usize::MAX, bytes);
                }
                Err(error) => {
                    self.failed(error);
                    let may_fail = FAILURES_MAX.saturating_sub(self.failures);
                    let pieces = self.file.write_in_pieces(self.writer, run, may_fail);
                    self.written += pieces.written;
                    self.failures += pieces.failures;
                }
            }
        }
    }

    fn failed(&mut self, error: IoError) {
        self.error = self.error.or(Some(error));
        self.failures += 1;
    }

    /// Ends a stage: syncs the file, and then settles the written pages that come before the page
    /// `before`, or all written pages if `before` is `None`. Settled pages become clean. A farewell
    /// cycle syncs only if the file has a handle again and the process isn't exiting (B7).
    fn end_stage(&mut self, before: Option<u64>) -> Result<(), IoError> {
        if self.kind != Kind::Farewell || self.file.is_wanted() {
            // The beginning of the sync counts as progress. Otherwise, if no write has completed
            // for long, the device would count as stalled before the sync has had its full time.
            self.file.device().into_iter().for_each(|device| device.under_way.progressed());
            let synced = failing_if_it_panics(|| uninterrupted(|| self.writer.sync()));
            self.file.cycle_was_answered();
            synced?;
        }
        self.settled += self.file.settle(self.unsettled.take_before(before), true);
        if self.written >= MEASURED_MIN {
            let elapsed = self.stage_start.elapsed();
            self.file.device().into_iter().for_each(|device| device.rate.measured(self.written, elapsed));
        }
        self.written_in_all += mem::take(&mut self.written);
        self.stage_start = Instant::now();
        Ok(())
    }
}
