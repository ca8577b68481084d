//! The work of a write-back cycle: parts of the file, handed out in order to the threads that take part in it, and what
//! became of them.

use std::ops::Range;

use arrayvec::ArrayVec;

use crate::file_state::FileState;
use crate::flusher::HELPERS;
use crate::io::{BackingFile, IoError};

/// Requests that may fail before a cycle gives up.
const FAILURES_MAX: u32 = 128;
/// A stage is over when this part of what was unclean when the cycle began was written,
const STAGES: u64 = 8;
/// but has no fewer or more pages than this.
const STAGE_PAGES: std::ops::RangeInclusive<u64> = 256..=4096;

/// The cycle under way: what is left of it, and who is at it.
#[derive(Debug, Default)]
pub(crate) struct Work {
    rest: Range<u64>,
    /// Nobody is to take any of the rest.
    stopped: bool,
    stage_pages: u64,
    /// Where the parts start that are being written.
    parts: ArrayVec<u64, { HELPERS + 1 }>,
    /// Pages written since the last stage, and in all.
    written: u64,
    written_in_all: u64,
    /// The first failure, and how many there were.
    error: Option<IoError>,
    failures: u32,
}

/// What whoever leads a cycle does next.
#[derive(Debug)]
pub(crate) enum Step {
    /// Writes this part.
    Write(Range<u64>),
    /// Ends a stage in which so many pages were written: nobody is at any page before this one.
    Settle { before: u64, written: u64 },
    /// Ends the cycle.
    End,
}

/// What came of a part.
#[derive(Debug, Default)]
pub(crate) struct Outcome {
    pub(crate) written: u64,
    /// The first failed request, and how many there were.
    pub(crate) error: Option<IoError>,
    pub(crate) failures: u32,
}

/// What came of the parts of a cycle.
#[derive(Debug)]
pub(crate) struct Summary {
    /// The first page that wasn't looked at.
    pub(crate) next: u64,
    /// Pages written in the last stage, and in all.
    pub(crate) written: u64,
    pub(crate) written_in_all: u64,
    pub(crate) error: Option<IoError>,
}

impl Work {
    /// Starts a cycle over `pages`, with so many unclean ones in the file. The last one has ended, so there are no parts.
    pub(crate) fn start(&mut self, pages: Range<u64>, unclean: u64) {
        let stage_pages = (unclean / STAGES).clamp(*STAGE_PAGES.start(), *STAGE_PAGES.end());
        *self = Self { rest: pages, stage_pages, ..Self::default() };
    }

    /// Takes the next part of the file that has something to write. A place that can't be written isn't to keep others from
    /// it; a device that is gone has nobody wait for long.
    fn take_part(&mut self, file: &FileState) -> Option<Range<u64>> {
        if self.stopped || self.failures >= FAILURES_MAX {
            return None;
        }
        let Some(first) = file.map.next_written(self.rest.clone()) else {
            self.rest.start = self.rest.end;
            return None;
        };
        let part = first..self.rest.end.min(first + file.request_pages() as u64);
        self.rest.start = part.end;
        self.parts.push(first);
        Some(part)
    }
}

impl FileState {
    /// For whoever leads the cycle, which `may_settle` now.
    pub(crate) fn next_step(&self, may_settle: bool) -> Step {
        let mut work = self.writeback.work.lock();
        if may_settle && work.written >= work.stage_pages {
            let before = work.parts.iter().copied().min().unwrap_or(work.rest.start);
            return Step::Settle { before, written: std::mem::take(&mut work.written) };
        }
        work.take_part(self).map_or(Step::End, Step::Write)
    }

    /// Has nobody take another part of the cycle under way.
    pub(crate) fn stop_cycle(&self) {
        self.writeback.work.lock().stopped = true;
    }

    /// Waits for those who take part in the cycle, of which nobody takes another part.
    pub(crate) fn end_cycle(&self) -> Summary {
        let mut work = self.writeback.work.lock();
        while !work.parts.is_empty() {
            self.writeback.idle.wait(&mut work);
        }
        let Work { written, written_in_all, error, .. } = *work;
        Summary { next: work.rest.start, written, written_in_all, error }
    }

    /// Takes part in the cycle under way, if there is one and something left of it.
    pub(crate) fn work_for_cycle(&self) {
        let Some(writer) = self.writer() else { return };
        let mut part = self.writeback.work.lock().take_part(self);
        while let Some(taken) = part {
            part = self.write_and_take(writer, taken, true);
        }
    }

    /// Writes a part, and takes another one if that is wanted.
    pub(crate) fn write_and_take(
        &self,
        writer: &dyn BackingFile,
        part: Range<u64>,
        another: bool,
    ) -> Option<Range<u64>> {
        let first = part.start;
        let outcome = self.write_part(writer, part);
        let mut work = self.writeback.work.lock();
        work.written += outcome.written;
        work.written_in_all += outcome.written;
        work.failures += outcome.failures;
        work.error = work.error.or(outcome.error);
        work.parts.retain(|start| *start != first);
        let next = if another { work.take_part(self) } else { None };
        if work.parts.is_empty() {
            self.writeback.idle.notify_all();
        }
        next
    }
}
