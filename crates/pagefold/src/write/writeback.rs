//! Write-back: getting one file's unclean pages to it, and making it keep them.
//!
//! A *cycle* goes once round the file, writes those pages that are dirty, neighbours together (`request`), and has many
//! requests under way at once (`cycle`). A page that was written counts as clean only when a sync of the file that began
//! afterwards went well: until then memory has the only copy that is sure to survive (`frames`' `write_state`). A long cycle
//! therefore has *stages*: now and then its leader has the file synced, and settles what had been written by then. If something
//! fails, what was written is dirty again.
//!
//! There are two kinds. A *full* cycle is what a `sync` waits for: it goes through the whole file, or a range. A *sweep*
//! is the flusher's: it goes on as long as there is much to write, and makes way for whoever wants the turn. Both begin where
//! the last sweep ended (`hand`), so that wherever a cycle comes to, about as much was written to since the last one as may be,
//! and lies side by side.
//!
//! - B1. One cycle of a file at a time (`turn`), led by one thread, which alone holds pages. What it was answered it looks at
//!   when it comes to it: a page stays held until then, which is in nobody's way.
//! - B2. A full cycle that began after a write returned writes it: it comes to every page, and one that is dirty is found by
//!   its word. So who wants to sync, and finds a cycle under way, waits for that one to end and for the next, which
//!   serves all who wait.
//! - B3. Which pages there are to write is in the page map. A request takes some hundred bytes, and there are few of them.
//! - B4. A stage settles what lies before the first run under way, and after the last stage: all of it was
//!   written before the stage's sync began, since each page is come to once in a cycle. If a sync fails, everything that was
//!   written since the last good one is dirty again, and what was under way meanwhile too: the failure may be theirs, and the
//!   next sync needn't tell again.
//! - B5. A cycle ends. A sweep ends after a second. A full cycle settles in stages no more than three times the pages
//!   that were unclean when it began; then none become clean before its end, so that writers are stopped by the mark (`dirty`). Two
//!   times is what it comes to where writers go at the pace of the disk: half of what they write meanwhile lies ahead of it.
//!
//! Lock order: `extension` → `turn`; under it whoever leads waits for the device alone. Frames are never
//! obtained here.

use std::ops::Range;

use sync::Arc;
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU64, Backoff};
use sync::lock::{Mutex, MutexGuard};
use sync::time::{Duration, Instant};

use frames::{HeldPage, Hold, Unclean};

use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::io::IoError;
use crate::stats::Counters;
use crate::write::course::Course;
use crate::write::cycle::{Cycle, Kind};

/// A sweep ends after so long: other files may have to be written as well.
const SWEEP_MAX: Duration = Duration::from_secs(1);

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
            *turn = self.cycle(self.round(), Kind::Full).1.err();
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
        self.cycle(Course::of(pages), Kind::Full).1
    }

    /// Writes for a while, from where the last sweep ended. Does nothing if somebody else is at it.
    pub(crate) fn sweep(&self) {
        let Some(_turn) = self.writeback.turn.try_lock() else { return };
        // The file's latch knows of failures.
        if let (Some(next), _) = self.cycle(self.round(), Kind::Sweep) {
            self.writeback.hand.store(next, Relaxed); // Under `turn`, as in `round`.
        }
    }

    /// All of the file, from where the last sweep ended: there it has waited longest, and has most to write side by side.
    fn round(&self) -> Course {
        Course::round(self.writeback.hand.load(Relaxed))
    }

    /// Runs a cycle, for whoever has the turn. Gives the page that the next one should start with; none if this one came
    /// round.
    fn cycle(&self, course: Course, kind: Kind) -> (Option<u64>, Result<(), IoError>) {
        let Some(writer) = self.writer() else { return (None, Ok(())) };
        let (next, result) = Cycle::new(self, writer, course, kind).run();
        match result {
            Ok(()) if kind == Kind::Full => self.latch.heal(),
            Ok(()) => {}
            Err(error) => {
                Counters::add(&self.counters.write_errors, 1);
                self.latch.fail(error);
            }
        }
        (next, result)
    }

    /// Whether a sweep that began at `start` has to end.
    pub(crate) fn sweep_is_over(&self, start: Instant) -> bool {
        self.writeback.is_wanted() || start.elapsed() > SWEEP_MAX || !self.manager.has_much_unclean()
    }

    /// After a sync: what was written is clean, or dirty again. Says how much became clean.
    pub(crate) fn settle(&self, pages: [Range<u64>; 2], synced: bool) -> u64 {
        let mut cleaned = Cleaned { file: self, group: None, pages: 0 };
        let mut total = 0;
        for mut rest in pages {
            while let Some(page) = self.map.next_written(rest.clone()) {
                rest.start = page + 1;
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
