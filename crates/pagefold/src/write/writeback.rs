//! Write-back: writes one file's dirty pages to it, and syncs the file so that they last.
//!
//! A *cycle* goes through the file once. It writes the pages that are dirty, neighbours together
//! (`request`), and keeps many requests under way at once (`cycle`). A page that was written counts
//! as clean only after a later sync of the file has succeeded: until then memory has the only copy
//! that is sure to survive (`frames`' `write_state`), and the page is still *unclean*. A long cycle
//! therefore has *stages*. At the end of a stage the leader, the thread that runs the cycle, has
//! the file synced and *settles* the pages written by then: they become clean. If a write or sync
//! fails, the pages concerned become dirty again.
//!
//! There are three kinds of cycles:
//! - A *full* cycle serves a `sync`. It goes through the whole file, or a range.
//! - A *sweep* is the flusher's. It writes for a moment, while there is need, and ends early if a
//!   call wants the lock `turn`. The next sweep goes on where the last one ended; together they
//!   make a *round* of the file.
//! - A cycle for *farewell* goes through the whole file once it has no handle, and syncs nothing
//!   (B7).
//!
//! Cycles over the whole file, too, begin where the last sweep ended (`hand`). So the pages that
//! any cycle visits have waited about as long as possible, and as many of them as possible are
//! dirty and lie side by side.
//!
//! - B1. One cycle of a file runs at a time (`turn`), led by one thread, and only that thread holds
//!   pages. A page stays held until the leader has looked at the device's answer, which blocks no
//!   other thread.
//! - B2. If a full cycle begins after a write has returned, it writes that write's pages: it comes
//!   to every page, and finds a dirty page by its word. So a caller of `sync` that finds a cycle
//!   under way waits for that cycle to end, and then for the next one, which serves all callers
//!   that wait.
//! - B3. The page map alone records which pages have to be written. A request takes a few hundred
//!   bytes, and there are few requests.
//! - B4. A stage settles the pages from where the last stage ended to the first run under way. All
//!   of them were written before the stage's sync began, because a cycle visits each page once. If
//!   a sync fails, all pages written since the last successful sync become dirty again, and so do
//!   those that were under way meanwhile: the failure may concern them, and the next sync need not
//!   report it again.
//! - B5. Every cycle ends. A sweep ends after half a second. A full cycle ends stages only while it
//!   has settled fewer than 3 × the pages that were unclean when it began. After that no page
//!   becomes clean before the cycle's end, so writers are stopped at the mark (`dirty`). If writers
//!   go at the pace of the disk, a cycle settles 2 × these pages, since half of what they write
//!   meanwhile lies ahead of it.
//! - B6. If another process has cut the file off, nothing is written to it before its new length
//!   was taken over (`length`); otherwise the bytes that were cut off would come back. The cycle
//!   fails. This isn't a guarantee: another process may cut the file between the cycle's check and
//!   its last write.
//!
//! - B7. A file whose last handle was dropped is written, but not synced: the system has the bytes
//!   then, as after `write` and `close`. The pages count as clean although no sync covers them,
//!   because no handle is left that could have been promised a sync. (Nothing is written to a file
//!   without a handle, so all of these bytes were in memory before.) If the file has a handle again
//!   when a stage ends, the stage syncs. A handle that is opened later, and syncs, covers those
//!   bytes as well. If that sync fails, the handle gets the error, and the bytes are lost, as they
//!   would be if the file had been opened anew.
//!
//! Lock order: `extension` → `turn`. While the leader holds `turn`, it waits for the device alone.
//! No frame is obtained here.

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

/// The longest time that a sweep takes: other files may have to be written as well.
const SWEEP_MAX: Duration = Duration::from_millis(500);

impl FileState {
    /// Writes back all pages of the file, and syncs it. All that was written before the call is in
    /// the file when this returns, and survives a power cut.
    ///
    /// # Errors
    /// The error of the cycle that this call waited for; all threads that wait for the cycle get
    /// it. It is in the file's latch, too.
    pub(crate) fn write_back_all(&self) -> Result<(), IoError> {
        // Relaxed: the caller wrote itself, or waited for the thread that wrote (B2).
        let wanted = self.writeback.begun.load(Relaxed) + 1;
        let mut turn = self.writeback.pause();
        if self.writeback.ended.load(Relaxed) < wanted {
            let number = self.writeback.begun.fetch_add(1, Relaxed) + 1;
            // A page that becomes dirty during the cycle may be as old as the cycle's beginning.
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

    /// Writes back the pages of a range, and syncs the file.
    ///
    /// # Errors
    /// The error of the cycle; see [`write_back_all`](Self::write_back_all).
    pub(crate) fn write_back(&self, pages: Range<u64>) -> Result<(), IoError> {
        let _turn = self.writeback.pause();
        self.cycle(Course::of(pages), Kind::Full).2
    }

    /// Writes all dirty pages of a file that has no handle left, or whose process ends. Doesn't
    /// sync (B7): the system decides when the bytes reach the disk.
    pub(crate) fn write_out(&self) -> Result<(), IoError> {
        let mut turn = self.writeback.pause();
        turn.round = None;
        if self.unclean() == 0 {
            return Ok(()); // Another thread has written it.
        }
        let started_ms = self.manager.now_ms();
        let result = self.cycle(Course::round(turn.hand), Kind::Farewell).2;
        if result.is_ok() {
            self.came_round(started_ms);
        }
        result
    }

    /// Returns whether writes have to last: there is a handle, and the process doesn't end.
    pub(crate) fn is_wanted(&self) -> bool {
        // Acquire, as in all loads of the number of handles.
        self.handles.load(Acquire) > 0 && !self.manager.flusher.is_leaving()
    }

    /// Writes for a while, from where the last sweep ended. Returns whether pages became clean.
    /// Does nothing if another thread holds `turn`.
    fn sweep(&self) -> bool {
        let Some(mut turn) = self.writeback.turn.try_lock() else { return false };
        let hand = turn.hand;
        let new = || Round { rest: Course::round(hand), started_ms: self.manager.now_ms() };
        let Round { rest, started_ms } = turn.round.take().unwrap_or_else(new);
        let (rest, settled, result) = self.cycle(rest, Kind::Sweep);
        // Failures are in the file's latch. After one, the next round begins behind it.
        match (rest.first(), result) {
            // Sometimes: a sweep ends in the middle of a round.
            (Some(next), Ok(())) => (turn.hand, turn.round) = (next, Some(Round { rest, started_ms })),
            (Some(next), Err(_)) => turn.hand = next,
            (None, Ok(())) => self.came_round(started_ms),
            (None, Err(_)) => {}
        }
        settled > 0
    }

    /// Notes that all of the file was written, from `started_ms` on, without a failure. Only a
    /// whole round proves that the file can be written.
    fn came_round(&self, started_ms: u64) {
        self.clean_since(started_ms);
        self.note_outcome(None);
    }

    /// Runs a cycle; the caller holds `turn`. Returns the rest of the course that the cycle didn't
    /// reach, and the number of pages that became clean.
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

    /// Writes the file because the process ends. Logs a failure.
    fn leave(&self) {
        if let Err(error) = self.write_out() {
            let (file, pages) = (self.path.display(), self.unclean());
            tracing::error!(%file, pages, %error, "can't be written before the process ends");
        }
    }

    /// Returns whether the flusher should write the file now.
    fn needs_writing(&self) -> bool {
        let now_ms = self.manager.now_ms();
        self.any_part(|part| self.manager.need(part, now_ms).is_some())
    }

    /// Returns whether a sweep that began at `start` has to end.
    pub(crate) fn sweep_is_over(&self, start: Instant) -> bool {
        self.writeback.is_wanted() || start.elapsed() > SWEEP_MAX || !self.needs_writing()
    }

    /// Marks pages that were written as clean if the file was `synced` since, otherwise as dirty
    /// again. Returns the number of pages that became clean.
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

    /// Holds a page if it is in this state.
    pub(crate) fn hold(&self, page: u64, state: Unclean) -> Option<HeldPage<'_>> {
        let mut backoff = Backoff::new();
        loop {
            match self.map.hold(page, state) {
                Hold::Held(held) => return Some(held),
                Hold::Other => return None,
                // Another thread holds the frame by mistake: it has read an outdated word of
                // another page (B1 excludes any other case). It releases the frame after a few
                // instructions.
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
            false // The process ends: one attempt is enough.
        } else {
            self.sweep()
        };
        self.swept((!was_of_use).then_some(visit));
    }
}

/// Counts pages that have become clean, in batches.
struct Cleaned<'a> {
    file: &'a FileState,
    /// The group that these pages are charged to, and the part that they are counted in.
    part: Option<(u32, Option<Arc<DirtyPart>>)>,
    pages: u64,
}

impl Cleaned<'_> {
    /// The most pages counted at once.
    const BATCH: u64 = 64;

    /// Prepares for the next page, which is charged to `group`. The group lives at least as long as
    /// the page is dirty.
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
