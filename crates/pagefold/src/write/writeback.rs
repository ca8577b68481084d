//! Write-back: writes a file's dirty pages to the file, and syncs it, so that the bytes survive a
//! power cut.
//!
//! A *cycle* goes through the file once and writes the dirty pages. It writes neighbouring pages in
//! one request (`request`), and keeps many requests under way at once (`cycle`).
//!
//! Writing a page doesn't make it clean. The page becomes clean only when a sync that began after
//! the write has succeeded. Until then the page is still *unclean* (`frames`' `write_state`),
//! because only its copy in memory is sure to survive.
//!
//! A long cycle is therefore divided into *stages*. At the end of a stage, the leader, which is the
//! thread that runs the cycle, syncs the file. Then it *settles* the pages that were written before
//! the sync: they become clean. If a write or a sync fails, the pages concerned become dirty again.
//!
//! There are three kinds of cycles:
//! - A *full* cycle serves a `sync`. It goes through the whole file, or a range.
//! - A *sweep* is run by the flusher. It begins no more requests after half a second. It stops
//!   earlier if the file no longer needs to be written, or if a call waits for the lock `turn` to
//!   run a cycle of its own. The next sweep continues where the last one ended. The sweeps that
//!   together go through the file once make a *round*.
//! - A *farewell* cycle goes through the whole file after the file's last handle was dropped, or
//!   when the process exits. It doesn't sync the file (B7).
//!
//! A farewell cycle, and a full cycle of the whole file, also begin where the last sweep ended
//! (`hand`). The flusher passed the pages after that place longest ago, so these pages had the most
//! time to become dirty. There the cycle is most likely to find long runs of dirty neighbours,
//! which it writes in few requests.
//!
//! - B1. Only one cycle of a file runs at a time (`turn`). One thread, the leader, runs the cycle,
//!   and only the leader holds pages of the file for write-back. The leader holds a page until it
//!   has looked at the device's answer. A held page blocks no other thread.
//! - B2. A full cycle looks at the word of every page, and so finds all dirty pages. Therefore it
//!   writes the pages of every write that returned before the cycle began. If a caller of `sync`
//!   finds a cycle under way, that cycle may already have passed the caller's pages. So the caller
//!   waits for that cycle to end, and then for the next cycle, which serves all waiting callers.
//! - B3. Write-back needs little memory. Only the page map records which pages have to be written;
//!   a request takes a few hundred bytes, and there are few requests.
//! - B4. A stage settles the pages between two places: the place where the last stage ended, and
//!   the first run that is still under way. The second place is fixed before the stage's sync
//!   begins. A cycle visits pages in order, and each page once. So every page that the stage
//!   settles was written before the sync began, and isn't written again in this cycle.
//!
//!   If a sync fails, all pages written since the last successful sync become dirty again, even
//!   those whose requests were under way during the failed sync. The failure may concern any of
//!   them, and the system may not report it again at the next sync.
//! - B5. Every cycle ends. A sweep ends after half a second. A farewell cycle for a file without a
//!   handle meets no new dirty pages, and ends early if the file is opened again. A full cycle
//!   could go on for as long as writers make pages dirty ahead of it. So once a full cycle has
//!   settled three times as many pages as were unclean when it began, the rest of the cycle is a
//!   single stage. From then on no page of the file becomes clean before the cycle's end. So dirty
//!   pages accumulate, writers are soon stopped (`dirty`), and the cycle reaches its end.
//!
//!   If writers are as fast as the disk, a full cycle settles only about twice as many pages as
//!   were unclean when it began. While the cycle writes `n` pages, writers make another `n` dirty.
//!   Half of these lie ahead of the cycle, which has to write them, too: 1 + 1/2 + 1/4 + … = 2.
//! - B6. If a cycle finds that another process has shortened the file, the cycle fails. Nothing is
//!   written to the file until Pagefold has adopted the new length (`length`), because write-back
//!   would bring the truncated bytes back. If the system knows the file's length without asking a
//!   device or a server, the cycle checks the length again before it submits further requests.
//!   Requests that are under way at that time may still write past the new end. If the system would
//!   have to ask, the cycle doesn't check again, so its later requests may write past the new end
//!   as well.
//!
//! - B7. When a file's last handle is dropped, its dirty pages are written but not synced. The
//!   operating system then has the bytes, as after `write` and `close`. The pages then count as
//!   clean. A file without a handle gets no new dirty pages. So all of these bytes were written
//!   through handles that are gone, and no user is left to whom a sync could be promised.
//!
//!   If the file has a handle again when a stage ends, the stage syncs. If a handle is opened
//!   later, its first sync also makes these bytes durable. If that sync fails, the handle gets the
//!   error, and the bytes are lost. The same would happen if the file had been dropped from the
//!   cache and opened anew.
//!
//! Lock order: `extension` → `turn`. While the leader holds `turn`, it waits for the device alone.
//! No frame is obtained here.

use std::ops::Range;

use sync::Arc;
use sync::atomic::Ordering::{Acquire, Relaxed, SeqCst};
use sync::atomic::{Backoff, fence};
use sync::time::{Duration, Instant};

use frames::{HeldPage, Hold, Unclean};

use crate::dirty::course::Course;
use crate::dirty::device::{DirtyPart, Flushed};
use crate::dirty::turn::Round;
use crate::file::state::FileState;
use crate::file::watch::Pace;
use crate::stats::Counters;
use crate::write::cycle::{Cycle, Kind};
use crate::write::flusher;
use io::IoError;

/// A sweep begins no more requests after this time, because other files may have to be written as
/// well.
const SWEEP_MAX: Duration = Duration::from_millis(500);

/// The most attempts to write a file before it is closed, or before the process exits. An attempt
/// fails if another process has just truncated the file.
const CUTS_MAX: u32 = 4;

impl FileState {
    /// Writes back all pages of the file, and syncs the file. If this returns without an error,
    /// everything that was written before the call is in the file, and survives a power cut.
    ///
    /// # Errors
    /// Returns the error of the cycle that this call waited for. All threads that wait for the
    /// cycle get the error, and the file's latch records it as well.
    pub(crate) fn write_back_all(&self) -> Result<(), IoError> {
        // Pairs with the leader's fence, below. The caller wrote before this fence. So either the
        // caller finds cycle n counted in `begun`, and waits for cycle n + 1; or cycle n finds the
        // caller's page dirty (B2).
        fence(SeqCst);
        let wanted = self.writeback.begun.load(Relaxed) + 1;
        let mut turn = self.writeback.pause();
        if self.writeback.ended.load(Relaxed) < wanted {
            let number = self.writeback.begun.fetch_add(1, Relaxed) + 1;
            fence(SeqCst);
            // `started_ms` is read before the cycle: a page that is still dirty after the cycle may
            // have become dirty just when the cycle began.
            let started_ms = self.manager.memory.now_ms();
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
        let mut turn = self.writeback.pause();
        let result = self.cycle(Course::of(pages), Kind::Full).2;
        if result.is_err() {
            // Only a round without a failure proves that the file can be written again.
            turn.round = None;
        }
        result
    }

    /// Writes all dirty pages like [`write_out`](Self::write_out). First calls `notice`, which
    /// adopts the new length if another process has truncated the file. If the file is truncated
    /// once more after `notice` has ended and before the cycle begins, `write_out` writes nothing
    /// (B6), not even the pages before the new end. In that case this function tries again, a few
    /// times.
    pub(crate) fn write_out_despite_cuts(&self, notice: impl Fn(&Self)) -> Result<(), IoError> {
        let mut result = Ok(());
        for _ in 0..CUTS_MAX {
            notice(self);
            result = self.write_out();
            if result != Err(IoError::CutOff) {
                break;
            }
        }
        result
    }

    /// Writes all dirty pages of a file. Called after the file's last handle was dropped, or
    /// because the process exits. Ends early if the file is opened again (B5). Doesn't sync the
    /// file (B7): the operating system decides when the bytes reach the disk.
    pub(crate) fn write_out(&self) -> Result<(), IoError> {
        let mut turn = self.writeback.pause();
        turn.round = None;
        if self.unclean() == 0 {
            return Ok(()); // Another thread has written it.
        }
        let started_ms = self.manager.memory.now_ms();
        let (rest, _, result) = self.cycle(Course::round(turn.hand), Kind::Farewell);
        if result.is_ok() && rest.first().is_none() {
            self.came_round(started_ms);
        }
        result
    }

    /// Returns whether the file has a handle and the process isn't exiting. If so, written bytes
    /// must be synced (B7).
    pub(crate) fn is_wanted(&self) -> bool {
        // Acquire, as in all loads of the number of handles.
        self.handles.load(Acquire) > 0 && !self.manager.file_io.flusher.is_leaving()
    }

    /// Runs a sweep: writes for a while, starting where the last sweep ended. Returns whether pages
    /// became clean. If another thread holds `turn`, does nothing and returns false.
    fn sweep(&self) -> bool {
        let Some(mut turn) = self.writeback.turn.try_lock() else { return false };
        let hand = turn.hand;
        let new = || Round { rest: Course::round(hand), started_ms: self.manager.memory.now_ms() };
        let Round { rest, started_ms } = turn.round.take().unwrap_or_else(new);
        let (rest, settled, result) = self.cycle(rest, Kind::Sweep);
        // Failures are recorded in the file's latch. After a failure, the next sweep begins a new
        // round, at the first page that this sweep didn't reach.
        match (rest.first(), result) {
            // Sometimes: a sweep ends in the middle of a round.
            (Some(next), Ok(())) => (turn.hand, turn.round) = (next, Some(Round { rest, started_ms })),
            (Some(next), Err(_)) => turn.hand = next,
            (None, Ok(())) => self.came_round(started_ms),
            (None, Err(_)) => {}
        }
        settled > 0
    }

    /// Notes that a whole round over the file, which began at `started_ms`, was written without a
    /// failure. Only a whole round proves that the file can be written.
    fn came_round(&self, started_ms: u64) {
        self.clean_since(started_ms);
        self.note_outcome(None);
    }

    /// Runs a cycle over a course (the pages to go through). The caller must hold `turn`. Returns
    /// the part of the course that the cycle didn't reach, the number of pages that became clean,
    /// and the first error.
    fn cycle(&self, course: Course, kind: Kind) -> (Course, u64, Result<(), IoError>) {
        let Some(writer) = self.writer() else { return (Course::of(0..0), 0, Ok(())) };
        let is_cut_off = self.is_cut_off();
        self.progresses(Pace::Cycle);
        let (rest, settled, result) = match is_cut_off {
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
        if let Err(error) = self.write_out_despite_cuts(Self::try_notice_cut) {
            let (file, pages) = (self.path.display(), self.unclean());
            tracing::error!(%file, pages, %error, "can't be written before the process ends");
        }
    }

    /// Returns whether the flusher should write the file now.
    fn needs_writing(&self) -> bool {
        let now_ms = self.manager.memory.now_ms();
        self.any_part(|part| flusher::need(&self.manager, part, now_ms).is_some())
    }

    /// Returns whether a sweep that began at `start` has to end.
    pub(crate) fn sweep_is_over(&self, start: Instant) -> bool {
        self.writeback.is_wanted() || start.elapsed() > SWEEP_MAX || !self.needs_writing()
    }

    /// Settles written pages. If the file was synced after they were written (`synced`), marks the
    /// pages as clean, otherwise as dirty again. Returns the number of pages that became clean.
    pub(crate) fn settle(&self, pages: [Range<u64>; 2], synced: bool) -> u64 {
        let mut cleaned = Cleaned { file: self, part: None, pages: 0 };
        let mut total = 0;
        for mut rest in pages {
            while let Some(page) = self.map.next_written(rest.clone()) {
                rest.start = page + 1;
                self.progresses(Pace::Cycle); // There may be very many.
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
                // Another thread holds this frame by mistake: it read an outdated word of another
                // page, and that word named this frame. The thread notices the mistake, and
                // releases the frame after a few instructions. (B1 excludes any other case.)
                Hold::Busy => backoff.wait(),
            }
        }
    }
}

impl Flushed for FileState {
    fn flush(&self, is_leaving: bool, visit: u64) {
        let was_of_use = if is_leaving {
            self.leave();
            false // The process ends: one attempt is enough.
        } else {
            self.try_notice_cut();
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

    /// Prepares to count a page that is charged to `group`. The group can't be dropped as long as
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
            part.device.under_way.progressed();
            self.file.manager.file_io.became_clean(part, pages);
        }
    }
}

impl Drop for Cleaned<'_> {
    fn drop(&mut self) {
        self.count();
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::{File, Pagefold};
    use test_disks::SimulatedDisk;

    /// A file with three dirty pages past its end on the disk.
    fn dirty_file(disk: SimulatedDisk) -> File {
        let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
        let file = mm.group("a").build().unwrap().open_options().write(true).create(true).open("file").unwrap();
        mm.manager().file_io.flusher.stop(); // However long a test takes, it decides when pages are written.
        (0..3).for_each(|page| file.write_at(&[1; 4096], page * 4096).unwrap());
        file
    }

    /// Regression: a thread dropped a file's last handle, and began to write the file's dirty
    /// pages. Then the file was opened again. The thread went on writing as long as the new handle
    /// made pages dirty. It should have ended as soon as the file was open again.
    #[test]
    fn a_farewell_ends_when_the_file_is_open_again() {
        let file = dirty_file(SimulatedDisk::default());
        let state = &file.handle().file;
        state.write_out().unwrap();
        assert_eq!(state.unclean(), 3, "the handle's owner decides when they are written");
        file.sync().unwrap();
        assert_eq!(state.unclean(), 0);
    }

    /// While the disk answers one request after another, others wait for it.
    #[test]
    fn a_cycle_has_128_requests_under_way() {
        let disk = SimulatedDisk::default();
        disk.add_generated("file", 1, 600 * 4096);
        disk.answer_by_hand();
        let mm = Pagefold::builder().memory("16MiB").backend(disk.clone()).build().unwrap();
        let file = mm.group("a").build().unwrap().open_options().write(true).open("file").unwrap();
        mm.manager().file_io.flusher.stop();
        (0..300).for_each(|page| file.write_at(&[1; 4096], 2 * page * 4096).unwrap());
        file.sync().unwrap();
        assert_eq!((disk.stats().writes, disk.longest_queue()), (300, 128));
    }

    /// Regression: while a round of sweeps was under way, a range of the file couldn't be written.
    /// The rest of the round succeeded, so the file counted as healthy. Instead, the failure should
    /// have ended the round.
    #[test]
    fn a_range_that_cannot_be_written_ends_the_round() {
        let disk = SimulatedDisk::default();
        let file = dirty_file(disk.clone());
        let state = &file.handle().file;
        state.writeback.turn.lock().round = Some(Round { rest: Course::of(1..3), started_ms: 0 });
        disk.set_capacity(0);
        assert!(state.write_back(0..1).is_err());
        assert!(state.writeback.turn.lock().round.is_none());
        disk.set_capacity(u64::MAX);
        file.sync().unwrap_err();
        file.sync().unwrap();
    }
}
