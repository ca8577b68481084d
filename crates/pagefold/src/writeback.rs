//! Write-back: getting one file's unclean pages to it, and making it keep them.
//!
//! A *cycle* goes through the pages in the order of the file and writes those that are dirty, neighbours together
//! (`cycle`). A page that was written counts as clean only when a sync of the file that began afterwards went well: until
//! then memory has the only copy that is sure to survive (`frames`' `write_state`). A long cycle therefore has *stages*: now
//! and then whoever leads it has the file synced, while others go on writing, and settles what had been written by then. If
//! something fails, what was written is dirty again.
//!
//! There are two kinds. A *full* cycle is what a `sync` waits for: it goes through the whole file, or a range. A *sweep*
//! is the flusher's: it goes on where the last one ended, as long as there is much to write, and makes way for whoever wants
//! the turn.
//!
//! - B1. One cycle of a file at a time (`turn`). Several threads may work for it: each takes the next part of the file
//!   that has something to write, under `work`'s lock, so no two have the same page.
//! - B2. A full cycle that began after a write returned writes it: the scan starts at the front, and a page once dirty is
//!   found by its word. So who wants to sync, and finds a cycle under way, waits for that one to end and for the next, which
//!   serves all who wait.
//! - B3. Nothing is allocated on the way: which pages, is in the page map, and a thread's run of them is on its stack.
//! - B4. A stage settles what lies before the first part that is still being written, and after the last stage: all of it was
//!   written before the stage's sync began, since each part is taken once in a cycle. If a sync fails, everything that was
//!   written since the last good one is dirty again, and what was under way meanwhile too: the failure may be theirs, and the
//!   next sync needn't tell again.
//! - B5. A cycle ends. A sweep ends after a second. A full cycle settles in stages no more pages than were unclean when it
//!   began; then none become clean before its end, so that writers are stopped by the mark (`dirty`).
//!
//! Lock order: `extension` → `turn` → `work`; under `turn` whoever writes waits for the device alone. Frames are never
//! obtained here.

use std::ops::Range;

use sync::Arc;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU64, Backoff};
use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::time::{Duration, Instant};

use frames::{HeldPage, Hold, Unclean};

use crate::cycle::{Step, Work};
use crate::file_state::FileState;
use crate::group_state::GroupState;
use crate::io::{BackingFile, IoError};
use crate::stats::Counters;

/// A sweep ends after so long: other files may have to be written as well.
const SWEEP_MAX: Duration = Duration::from_secs(1);
/// Pages written that say something about how fast that is.
const MEASURED_MIN: u64 = 256;

/// What the threads that write a file back share.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    /// Who has it runs a cycle, or keeps others from it. What went wrong in the last one over the whole file.
    turn: Mutex<Option<IoError>>,
    /// Who wants it, other than for a sweep.
    waiting: AtomicU64,
    /// Cycles over the whole file that have begun, and the last one of those that has ended.
    begun: AtomicU64,
    ended: AtomicU64,
    /// The page that the next sweep starts at.
    hand: AtomicU64,
    pub(crate) work: Mutex<Work>,
    pub(crate) idle: Condvar,
}

/// Why a cycle is run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Full,
    Sweep,
}

impl Writeback {
    /// Keeps the file from being written back, from when what is under way has ended.
    pub(crate) fn pause(&self) -> MutexGuard<'_, Option<IoError>> {
        // Relaxed, here and in `is_wanted`: a hint to who sweeps.
        self.waiting.fetch_add(1, Relaxed);
        let turn = self.turn.lock();
        self.waiting.fetch_sub(1, Relaxed);
        turn
    }

    fn is_wanted(&self) -> bool {
        self.waiting.load(Relaxed) > 0
    }
}

impl FileState {
    /// Everything written before the call is in the file when this returns, and survives a power cut.
    ///
    /// # Errors
    /// What went wrong, in the cycle that this was waiting for: all who wait for it have to know. It is in the file's latch
    /// too.
    pub(crate) fn write_back_all(&self) -> Result<(), IoError> {
        // Relaxed: who wrote is the caller, or was waited for by him (B2).
        let wanted = self.writeback.begun.load(Relaxed) + 1;
        let mut turn = self.writeback.pause();
        if self.writeback.ended.load(Relaxed) < wanted {
            let number = self.writeback.begun.fetch_add(1, Relaxed) + 1;
            // What becomes unclean during the cycle may be as old as its beginning.
            let started_ms = self.manager.now_ms();
            *turn = self.cycle(0..u64::MAX, Kind::Full).err();
            self.unclean_since_ms.store(started_ms, Relaxed);
            self.writeback.ended.store(number, Relaxed);
        }
        turn.map_or(Ok(()), Err)
    }

    /// The same for the pages of a range.
    ///
    /// # Errors
    /// As [`write_back_all`](Self::write_back_all).
    pub(crate) fn write_back(&self, pages: Range<u64>) -> Result<(), IoError> {
        let _turn = self.writeback.pause();
        self.cycle(pages, Kind::Full)
    }

    /// Writes for a while, from where the last sweep ended. Does nothing if somebody else is at it.
    pub(crate) fn sweep(&self) {
        let Some(_turn) = self.writeback.turn.try_lock() else { return };
        let hand = self.writeback.hand.load(Relaxed); // Under `turn`.
        for pages in [hand..u64::MAX, 0..hand].into_iter().filter(|pages| !pages.is_empty()) {
            let end = pages.end;
            // The file's latch knows of failures.
            let stopped = self.cycle(pages, Kind::Sweep).is_err() || self.writeback.hand.load(Relaxed) < end;
            if stopped {
                break;
            }
        }
    }

    /// For whoever has the turn.
    fn cycle(&self, pages: Range<u64>, kind: Kind) -> Result<(), IoError> {
        let Some(writer) = self.writer() else { return Ok(()) };
        let (start, unclean) = (Instant::now(), self.unclean.get());
        self.writeback.work.lock().start(pages.clone(), unclean);
        let helped = self.manager.flushers.call_for_help(self);
        let mut stages = Stages { file: self, writer, next: pages.start, settled: 0, since: start };
        let mut stage = Ok(());
        while stage.is_ok() {
            let may_settle = match kind {
                Kind::Full => stages.settled < unclean, // B5
                Kind::Sweep => true,
            };
            if kind == Kind::Sweep && self.sweep_is_over(start) {
                self.stop_cycle();
            }
            match self.next_step(may_settle) {
                Step::Write(part) => drop(self.write_and_take(writer, part, false)),
                Step::Settle { before, written } => stage = stages.end(before, written),
                Step::End => break,
            }
        }
        self.stop_cycle();
        if helped {
            self.manager.flushers.need_no_help(self);
        }
        let work = self.end_cycle();
        // A full one also if nothing was written: a length may have been set, or an earlier sync have failed.
        let needed = kind == Kind::Full || work.written_in_all > 0;
        let synced = stage.and_then(|()| if needed { stages.end(pages.end, work.written) } else { Ok(()) });
        if synced.is_err() {
            self.settle(stages.next..pages.end, false);
        }
        let result = work.error.map_or(synced, Err);
        match result {
            Ok(()) if kind == Kind::Full => self.latch.heal(),
            Ok(()) => {}
            Err(error) => {
                Counters::add(&self.counters.write_errors, 1);
                self.latch.fail(error);
            }
        }
        if kind == Kind::Sweep {
            self.writeback.hand.store(work.next, Relaxed);
        }
        result
    }

    fn sweep_is_over(&self, start: Instant) -> bool {
        self.writeback.is_wanted() || start.elapsed() > SWEEP_MAX || !self.manager.has_much_unclean()
    }

    /// After a sync: what was written is clean, or dirty again. Says how much became clean.
    fn settle(&self, pages: Range<u64>, synced: bool) -> u64 {
        let mut cleaned = Cleaned { file: self, group: None, pages: 0 };
        let mut total = 0;
        let mut next = pages.start;
        while let Some(page) = self.map.next_written(next..pages.end) {
            next = page + 1;
            let Some(held) = self.hold(page, Unclean::Unstable) else { continue };
            if !synced {
                held.end(Unclean::Dirty);
                continue;
            }
            let group = held.group();
            if held.settle() {
                cleaned.add(group);
                total += 1;
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
                // Somebody who takes it for another page (B1): for a few instructions.
                Hold::Busy => backoff.wait(),
            }
        }
    }
}

/// The stages of a cycle (B4).
struct Stages<'a> {
    file: &'a FileState,
    writer: &'a dyn BackingFile,
    /// The first page that isn't settled yet.
    next: u64,
    /// Pages that became clean.
    settled: u64,
    /// The end of the last stage.
    since: Instant,
}

impl Stages<'_> {
    /// Syncs the file, and settles what lies before the page `before`; in this stage `written` pages were written.
    fn end(&mut self, before: u64, written: u64) -> Result<(), IoError> {
        self.writer.sync()?;
        self.settled += self.file.settle(self.next..before, true);
        self.next = before;
        if written >= MEASURED_MIN {
            self.file.manager.rate.measured(written, self.since.elapsed());
        }
        self.since = Instant::now();
        Ok(())
    }
}

/// Pages that have become clean, counted a few at a time.
struct Cleaned<'a> {
    file: &'a FileState,
    group: Option<(u32, Option<Arc<GroupState>>)>,
    pages: u64,
}

impl Cleaned<'_> {
    /// Pages counted at once.
    const BATCH: u64 = 64;

    fn add(&mut self, group: u32) {
        if self.pages >= Self::BATCH || self.group.as_ref().is_none_or(|(last, _)| *last != group) {
            self.count();
            self.group = Some((group, self.file.manager.groups.get(group)));
        }
        self.pages += 1;
    }

    fn count(&mut self) {
        if self.pages == 0 {
            return;
        }
        let group = self.group.as_ref().and_then(|(_, group)| group.as_deref());
        if let Some(group) = group {
            Counters::add(&group.counters.bytes_out, self.pages * self.file.page_bytes());
        }
        self.file.manager.became_clean(self.file, group, self.pages);
        self.pages = 0;
    }
}

impl Drop for Cleaned<'_> {
    fn drop(&mut self) {
        self.count();
    }
}
