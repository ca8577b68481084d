//! Write-back: getting one file's unclean pages to it, and making it keep them.
//!
//! A *cycle* goes once round the file, writes those pages that are dirty, neighbours together
//! (`request`), and has many requests under way at once (`cycle`). A page that was written counts
//! as clean only when a sync of the file that began afterwards went well: until then memory has the
//! only copy that is sure to survive (`frames`' `write_state`). A long cycle therefore has
//! *stages*: now and then its leader has the file synced, and settles what had been written by
//! then. If something fails, what was written is dirty again.
//!
//! There are three kinds. A *full* cycle is what a `sync` waits for: it goes through the whole
//! file, or a range. A *sweep* is the flusher's: it goes on for a moment, as long as there is need,
//! and makes way for calls that want the turn. The next sweep goes on where the last one ended;
//! together they make a *round* of the file. Full cycles begin there as well (`hand`), so that
//! wherever a cycle comes to, about as much was written to since the last one as may be, and lies
//! side by side. A cycle for *farewell* goes through the whole file when it has no handle any more,
//! and syncs nothing (B7).
//!
//! - B1. One cycle of a file at a time (`turn`), led by one thread, and only that thread holds
//!   pages. It looks at the device's answers when it comes to them. A page stays held until then,
//!   which is in no other thread's way.
//! - B2. A full cycle that began after a write returned writes it: the cycle comes to every page,
//!   and finds a dirty one by its word. So a caller of `sync` that finds a cycle under way waits
//!   for that cycle to end, and then for the next one, which serves all callers that wait.
//! - B3. Which pages there are to write is in the page map. A request takes some hundred bytes, and
//!   there are few of them.
//! - B4. A stage settles what lies before the first run under way, and after the last stage: all of
//!   it was written before the stage's sync began, since each page is come to once in a cycle. If a
//!   sync fails, everything that was written since the last good one is dirty again, and what was
//!   under way meanwhile too: the failure may be theirs, and the next sync needn't tell again.
//! - B5. A cycle ends. A sweep ends after half a second. A full cycle settles in stages no more
//!   than three times the pages that were unclean when it began; then none become clean before its
//!   end, so that writers are stopped by the mark (`dirty`). Two times is what it comes to where
//!   writers go at the pace of the disk: half of what they write meanwhile lies ahead of it.
//! - B6. A file that another process has cut off isn't written to before its new length was taken
//!   over (`length`): what was cut off would come back. The cycle fails. Between its look and its
//!   last write it may happen all the same: another process's cut isn't kept from running beside a
//!   write.
//!
//! - B7. A file whose last handle was dropped is written, and not synced: the system has the bytes
//!   then, as after `write` and `close`. They count as clean although no sync covers them, since no
//!   handle is left that one was promised to: what is written while the file has no handle was
//!   written to memory before. If it has one again when a stage ends, the stage syncs. A handle
//!   that is opened later, and syncs, covers those bytes as well; if that fails, it is told, and
//!   they are lost, as they would be if the file had been opened anew.
//!
//! Lock order: `extension` → `turn`; under it the leader waits for the device alone. Frames are
//! never obtained here.

use std::ops::Range;

use sync::Arc;
use sync::atomic::Backoff;
use sync::atomic::Ordering::{Acquire, Relaxed};
use sync::time::{Duration, Instant};

use frames::{HeldPage, Hold, Unclean};

use crate::dirty::course::Course;
use crate::dirty::device::{DirtyPart, Flushed};
use crate::dirty::turn::Round;
use crate::file::state::FileState;
use crate::stats::Counters;
use crate::write::cycle::{Cycle, Kind};
use io::IoError;

/// A sweep ends after so long: other files may have to be written as well.
const SWEEP_MAX: Duration = Duration::from_millis(500);

impl FileState {
    /// Everything written before the call is in the file when this returns, and survives a power
    /// cut.
    ///
    /// # Errors
    /// What went wrong, in the cycle that this was waiting for: all threads that wait for the cycle
    /// get that error. It is in the file's latch too.
    pub(crate) fn write_back_all(&self) -> Result<(), IoError> {
        // Relaxed: the caller wrote, or waited for the thread that wrote (B2).
        let wanted = self.writeback.begun.load(Relaxed) + 1;
        let mut turn = self.writeback.pause();
        if self.writeback.ended.load(Relaxed) < wanted {
            let number = self.writeback.begun.fetch_add(1, Relaxed) + 1;
            // What becomes dirty during the cycle may be as old as its beginning.
            let started_ms = self.manager.now_ms();
            turn.error = self.cycle(Course::round(turn.hand), Kind::Full).2.err();
            if turn.error.is_none() {
                self.came_round(started_ms);
            }
            turn.round = None;
            self.writeback.ended.store(number, Relaxed);
        }
        turn.error.map_or(Ok(()), Err)
    }

    /// The same for the pages of a range.
    ///
    /// # Errors
    /// As [`write_back_all`](Self::write_back_all).
    pub(crate) fn write_back(&self, pages: Range<u64>) -> Result<(), IoError> {
        let _turn = self.writeback.pause();
        self.cycle(Course::of(pages), Kind::Full).2
    }

    /// Everything that differs from the file is written to it, for a file that has no handle any
    /// more, or whose process ends. Whether it lasts is the system's business.
    pub(crate) fn write_out(&self) -> Result<(), IoError> {
        let mut turn = self.writeback.pause();
        turn.round = None;
        if self.unclean() == 0 {
            return Ok(()); // Another thread has done it.
        }
        let started_ms = self.manager.now_ms();
        let result = self.cycle(Course::round(turn.hand), Kind::Farewell).2;
        if result.is_ok() {
            self.came_round(started_ms);
        }
        result
    }

    /// Whether what is written has to last: there is a handle, and the process doesn't end.
    pub(crate) fn is_wanted(&self) -> bool {
        // Acquire, as everywhere that looks whether there are handles.
        self.handles.load(Acquire) > 0 && !self.manager.flusher.is_leaving()
    }

    /// Writes for a while, from where the last sweep ended. Returns whether that was of use: pages
    /// became clean. Does nothing if another thread has the turn.
    fn sweep(&self) -> bool {
        let Some(mut turn) = self.writeback.turn.try_lock() else { return false };
        let hand = turn.hand;
        let new = || Round { rest: Course::round(hand), started_ms: self.manager.now_ms() };
        let Round { rest, started_ms } = turn.round.take().unwrap_or_else(new);
        let (rest, settled, result) = self.cycle(rest, Kind::Sweep);
        // The file's latch knows of failures. The next round begins behind them.
        match (rest.first(), result) {
            // Sometimes: a sweep ends in the middle of a round.
            (Some(next), Ok(())) => (turn.hand, turn.round) = (next, Some(Round { rest, started_ms })),
            (Some(next), Err(_)) => turn.hand = next,
            (None, Ok(())) => self.came_round(started_ms),
            (None, Err(_)) => {}
        }
        settled > 0
    }

    /// All of the file was written, from `started_ms` on, without a failure: only that shows that
    /// it can be.
    fn came_round(&self, started_ms: u64) {
        self.clean_since(started_ms);
        self.note_outcome(None);
    }

    /// Runs a cycle, for the thread that has the turn. Returns what it didn't come to, and the
    /// number of pages that became clean.
    fn cycle(&self, course: Course, kind: Kind) -> (Course, u64, Result<(), IoError>) {
        let Some(writer) = self.writer() else { return (Course::of(0..0), 0, Ok(())) };
        let (rest, settled, result) = match self.is_cut_off() {
            Ok(false) => Cycle::new(self, writer, course, kind).run(),
            Ok(true) => (course, 0, Err(IoError::CutOff)), // B6
            Err(error) => (course, 0, Err(error)),
        };
        if let Err(error) = result {
            Counters::add(&self.counters.write_errors, 1);
            self.note_outcome(Some(error));
        }
        (rest, settled, result)
    }

    /// Writes the file because the process ends.
    fn leave(&self) {
        if let Err(error) = self.write_out() {
            let (file, pages) = (self.path.display(), self.unclean());
            tracing::error!(%file, pages, %error, "can't be written before the process ends");
        }
    }

    /// Whether the flusher should write the file now.
    fn needs_writing(&self) -> bool {
        let now_ms = self.manager.now_ms();
        self.any_part(|part| self.manager.need(part, now_ms).is_some())
    }

    /// Whether a sweep that began at `start` has to end.
    pub(crate) fn sweep_is_over(&self, start: Instant) -> bool {
        self.writeback.is_wanted() || start.elapsed() > SWEEP_MAX || !self.needs_writing()
    }

    /// After a sync: what was written is clean, or dirty again. Says how much became clean.
    pub(crate) fn settle(&self, pages: [Range<u64>; 2], synced: bool) -> u64 {
        let mut cleaned = Cleaned { file: self, part: None, pages: 0 };
        let mut total = 0;
        for mut rest in pages {
            while let Some(page) = self.map.next_written(rest.clone()) {
                rest.start = page + 1;
                let Some(held) = self.hold(page, Unclean::Unstable) else { continue };
                if !synced {
                    // Sometimes: a sync fails after pages were written.
                    held.end(Unclean::Dirty);
                    continue;
                }
                cleaned.expect(held.group());
                if held.settle() {
                    cleaned.pages += 1;
                    total += 1;
                }
            }
        }
        total
    }

    /// Holds a page that is in this state.
    pub(crate) fn hold(&self, page: u64, state: Unclean) -> Option<HeldPage<'_>> {
        let mut backoff = Backoff::new();
        loop {
            match self.map.hold(page, state) {
                Hold::Held(held) => return Some(held),
                Hold::Other => return None,
                // A thread that takes it for another page has it (B1), for a few instructions.
                Hold::Busy => backoff.wait(),
            }
        }
    }
}

impl Flushed for FileState {
    fn flush(&self, is_leaving: bool, visit: u64) {
        self.try_notice_cut();
        let was_of_use = if is_leaving {
            self.leave();
            false // No further attempt is.
        } else {
            self.sweep()
        };
        self.swept((!was_of_use).then_some(visit));
    }
}

/// Pages that have become clean, counted a few at a time.
struct Cleaned<'a> {
    file: &'a FileState,
    /// The group that they are charged to, and where they are counted.
    part: Option<(u32, Option<Arc<DirtyPart>>)>,
    pages: u64,
}

impl Cleaned<'_> {
    /// Pages counted at once.
    const BATCH: u64 = 64;

    /// The next page is charged to `group`, which can't go while that page is dirty.
    fn expect(&mut self, group: u32) {
        if self.pages >= Self::BATCH || self.part.as_ref().is_none_or(|(last, _)| *last != group) {
            self.count();
            self.part = Some((group, self.file.part_of_number(group)));
        }
    }

    fn count(&mut self) {
        let pages = std::mem::take(&mut self.pages);
        if let Some((_, Some(part))) = self.part.as_ref().filter(|_| pages > 0) {
            Counters::add(&part.group.counters.bytes_out, pages * self.file.page_bytes());
            self.file.manager.became_clean(part, pages);
        }
    }
}

impl Drop for Cleaned<'_> {
    fn drop(&mut self) {
        self.count();
    }
}
