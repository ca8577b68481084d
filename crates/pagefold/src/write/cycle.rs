//! A cycle of write-back in the hands of its leader: requests go out in the order of the file, many
//! at a time, their answers come back in any order.
//!
//! The leader of the cycle does all of it but what the device does; no other thread looks at it. An
//! *answer* is put down by whichever thread hears of it, with the pages that it is about, and
//! changes nothing else. So a request that has completed keeps neither the file nor anything of it
//! alive.

use std::mem;

use arrayvec::ArrayVec;
use sync::Arc;
use sync::lock::{Condvar, Mutex};
use sync::time::Instant;

use frames::HeldRun;

use crate::dirty::course::Course;
use crate::file::state::FileState;
use crate::read::call::HELPING;
use io::{BackingFile, IoError, Request, uninterrupted};

/// Requests that a cycle has under way, at most,
const REQUESTS_MAX: usize = 64;
/// and how many of them of the largest size: there are as many bytes as that.
const LARGE_MAX: usize = 16;
/// Requests that may fail before a cycle gives up, those for pieces of a request included. A place
/// that can't be written isn't to keep others from being written; a device that is gone keeps no
/// call waiting for long. Requests under way at that moment come on top.
const FAILURES_MAX: u32 = 128;
/// A stage is over when this part of what was unclean when the cycle began was written,
const STAGES: u64 = 8;
/// but has no fewer or more pages than this.
const STAGE_PAGES: std::ops::RangeInclusive<u64> = 256..=4096;
/// A full cycle settles so many times the pages that were unclean when it began before it comes
/// round, at most.
const SETTLED_MAX: u64 = 3;
/// Pages written that say something about how fast that is.
const MEASURED_MIN: u64 = 256;

/// Why a cycle is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    /// A call waits for all of it.
    Full,
    /// A slice of the flusher's: as long as there is need, and time.
    Sweep,
    /// The file's last handle was dropped, or the process ends: everything is to be in the file,
    /// and needn't last.
    Farewell,
}

/// The cycle under way.
pub(crate) struct Cycle<'a> {
    file: &'a FileState,
    writer: &'a dyn BackingFile,
    kind: Kind,
    start: Instant,
    /// Unclean pages when it began.
    unclean: u64,
    /// What it has still to come to, and what it has still to settle.
    rest: Course,
    unsettled: Course,
    /// The first pages of the runs under way, in the order of the course, and how many pages those
    /// are.
    under_way: ArrayVec<u64, REQUESTS_MAX>,
    pages_under_way: usize,
    /// Those about to be.
    requests: Vec<Request>,
    answers: Arc<Answers>,
    /// Pages written since the last stage, which ended then, and before that.
    written: u64,
    stage_start: Instant,
    written_in_all: u64,
    /// Pages that became clean.
    settled: u64,
    /// The first failure of a request, and how many there were.
    error: Option<IoError>,
    failures: u32,
}

/// A run that the device is done with.
struct Answer {
    run: HeldRun,
    /// The device was given a copy of it.
    is_copied: bool,
    result: Result<usize, IoError>,
}

/// What the leader hasn't looked at yet.
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

    /// Takes what has come; waits for the first if there is none, helping the device as far as it
    /// takes help.
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
    /// A cycle over `course`, for the thread that has the file's turn.
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
            requests: Vec::with_capacity(REQUESTS_MAX),
            answers: Arc::default(),
            written: 0,
            stage_start: start,
            written_in_all: 0,
            settled: 0,
            error: None,
            failures: 0,
        }
    }

    /// Runs it. Returns what it didn't come to, the number of pages that became clean, and the
    /// first failure.
    pub(crate) fn run(mut self) -> (Course, u64, Result<(), IoError>) {
        let _under_way = self.file.device().map(|device| device.begin_cycle());
        let mut synced = self.write_in_stages();
        while !self.under_way.is_empty() {
            self.take_answers();
        }
        // A full one also if nothing was written: a length may have been set, or an earlier sync
        // have failed. One for farewell has something to settle, or nothing to do.
        if synced.is_ok() && (self.kind == Kind::Full || self.written_in_all + self.written > 0) {
            synced = self.end_stage(self.rest.first()); // There is nothing under way.
        }
        if synced.is_err() {
            self.file.settle(self.unsettled.take_before(None), false);
        }
        (self.rest, self.settled, self.error.map_or(synced, Err))
    }

    /// Until nothing is left to be begun.
    fn write_in_stages(&mut self) -> Result<(), IoError> {
        let stage_pages = (self.unclean / STAGES).clamp(*STAGE_PAGES.start(), *STAGE_PAGES.end());
        loop {
            if !self.is_over() {
                self.submit();
            }
            let Some(first) = self.under_way.first().copied() else { return Ok(()) };
            if self.written >= stage_pages && self.may_settle() {
                self.end_stage(Some(first))?; // The device goes on with what is under way.
            }
            self.take_answers();
        }
    }

    fn may_settle(&self) -> bool {
        self.kind != Kind::Full || self.settled < SETTLED_MAX * self.unclean // B5
    }

    fn is_over(&self) -> bool {
        self.failures >= FAILURES_MAX || self.kind == Kind::Sweep && self.file.sweep_is_over(self.start)
    }

    /// Has as many requests under way as there may be, or as there are pages for.
    fn submit(&mut self) {
        let pages_max = LARGE_MAX * self.file.run_pages();
        while !self.under_way.is_full() && self.pages_under_way < pages_max {
            let copy = match self.file.copies() {
                None => None,
                Some(copies) => match copies.take() {
                    None if self.under_way.is_empty() => Some(copies.wait()), // Other files' requests have them.
                    None => break,                                            // One comes with the next answer.
                    some => some,
                },
            };
            let Some(run) = self.file.next_dirty_run(&mut self.rest) else {
                self.rest.take_before(None); // It came round.
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
                        drop(copy); // First: a thread that waits for it needs nothing else.
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
        }
        if !self.requests.is_empty() {
            self.writer.submit(&mut self.requests);
        }
    }

    /// Looks at what the device is done with. There is something under way.
    fn take_answers(&mut self) {
        for Answer { mut run, is_copied, mut result } in self.answers.take(self.writer) {
            self.progressed();
            self.file.cycle_answered();
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

    /// The device is alive.
    fn progressed(&self) {
        self.file.device().into_iter().for_each(|device| device.under_way.progressed());
    }

    fn failed(&mut self, error: IoError) {
        self.error = self.error.or(Some(error));
        self.failures += 1;
    }

    /// Syncs the file, unless no handle wants that (B7), and settles what lies before the page
    /// `before`, or all.
    fn end_stage(&mut self, before: Option<u64>) -> Result<(), IoError> {
        if self.kind != Kind::Farewell || self.file.is_wanted() {
            self.progressed();
            uninterrupted(|| self.writer.sync())?;
            self.progressed();
            self.file.cycle_answered();
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
