//! Write-back: getting one file's unclean pages to it, and making it keep them.
//!
//! A *cycle* goes through the pages in the order of the file, writes those that are dirty, neighbours together, has the
//! file synced, and only then counts them as clean: until the sync went well, memory has the only copy that is sure to
//! survive (`frames`' `write_state`). If something fails, what was written is dirty again.
//!
//! - B1. One cycle of a file at a time (`turn`). Several threads may work for it: each takes the next part of the file
//!   that has something to write, under `work`'s lock, so no two have the same page.
//! - B2. A cycle that began after a write returned writes it: the scan starts at the front, and a page once dirty is
//!   found by its word. So who wants to sync, and finds a cycle under way, waits for that one to end and for the next, which
//!   serves all who wait.
//! - B3. Nothing is allocated on the way: which pages, is in the page map, and a thread's run of them is on its stack.
//!
//! Lock order: `extension` → `turn` → `work`; under `turn` whoever writes waits for the device alone. Frames are never
//! obtained here.

use std::ops::Range;

use arrayvec::ArrayVec;
use frames::{HeldPage, Hold, Unclean};
use sync::atomic::Ordering::Relaxed;
use sync::atomic::{AtomicU64, Backoff};
use sync::lock::{Condvar, Mutex, MutexGuard};
use sync::time::Instant;

use crate::file_state::FileState;
use crate::io::{BackingFile, IoError, write_full};
use crate::stats::Counters;

/// Pages in one request, at most, and bytes.
const RUN_PAGES: usize = 256;
const RUN_BYTES: u64 = 1 << 20;

/// Parts of a file that may fail before a cycle gives up.
const FAILURES_MAX: u32 = 16;

/// What the threads that write a file back share.
#[derive(Debug, Default)]
pub(crate) struct Writeback {
    /// Who has it runs a cycle, or keeps others from it. What went wrong in the last one over the whole file.
    turn: Mutex<Option<IoError>>,
    /// Cycles over the whole file that have begun, and the last one of those that has ended.
    begun: AtomicU64,
    ended: AtomicU64,
    work: Mutex<Work>,
    idle: Condvar,
}

/// The cycle under way: what is left of it, and who is at it.
#[derive(Debug, Default)]
struct Work {
    rest: Range<u64>,
    workers: u32,
    written: u64,
    /// The first failure, and how many there were.
    error: Option<IoError>,
    failures: u32,
}

impl Work {
    fn fail(&mut self, error: IoError) {
        self.failures += 1;
        self.error = self.error.or(Some(error));
    }

    /// Starts a cycle. A helper that came too late for the last one may still be about.
    fn start(&mut self, pages: Range<u64>) {
        *self = Self { rest: pages, workers: self.workers, ..Self::default() };
    }
}

impl Writeback {
    /// Keeps the file from being written back, from when what is under way has ended.
    pub(crate) fn pause(&self) -> MutexGuard<'_, Option<IoError>> {
        self.turn.lock()
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
        let mut turn = self.writeback.turn.lock();
        if self.writeback.ended.load(Relaxed) < wanted {
            let number = self.writeback.begun.fetch_add(1, Relaxed) + 1;
            *turn = self.cycle(0..u64::MAX).err();
            self.writeback.ended.store(number, Relaxed);
        }
        turn.map_or(Ok(()), Err)
    }

    /// The same for the pages of a range.
    ///
    /// # Errors
    /// As [`write_back_all`](Self::write_back_all).
    pub(crate) fn write_back(&self, pages: Range<u64>) -> Result<(), IoError> {
        let _turn = self.writeback.turn.lock();
        self.cycle(pages)
    }

    /// For whoever has the turn.
    fn cycle(&self, pages: Range<u64>) -> Result<(), IoError> {
        let Some(writer) = self.writer() else { return Ok(()) };
        let start = Instant::now();
        let started_ms = self.manager.now_ms();
        self.writeback.work.lock().start(pages.clone());
        let helped = self.manager.flushers.call_for_help(self);
        self.work_for_cycle();
        if helped {
            self.manager.flushers.need_no_help(self);
        }
        let mut work = self.writeback.work.lock();
        while work.workers > 0 {
            self.writeback.idle.wait(&mut work);
        }
        let (written, failure) = (work.written, work.error);
        drop(work);
        // Also if nothing was written: a length may have been set, or an earlier sync have failed.
        let synced = writer.sync();
        self.settle(pages, synced.is_ok());
        let result = failure.map_or(synced, Err);
        match result {
            Ok(()) => self.latch.heal(),
            Err(error) => {
                Counters::add(&self.counters.write_errors, 1);
                self.latch.fail(error);
            }
        }
        // What became unclean during the cycle may be as old as its beginning.
        self.unclean_since_ms.store(started_ms, Relaxed);
        if written >= RUN_PAGES as u64 {
            self.manager.rate.measured(written, start.elapsed());
        }
        result
    }

    /// Takes part in the cycle under way, if there is one and something left of it.
    pub(crate) fn work_for_cycle(&self) {
        let Some(writer) = self.writer() else { return };
        self.writeback.work.lock().workers += 1;
        let mut outcome = Ok(0);
        loop {
            let mut work = self.writeback.work.lock();
            match outcome {
                Ok(pages) => work.written += pages,
                Err(error) => work.fail(error),
            }
            // A place that can't be written isn't to keep others from it; a device that is gone has nobody wait for long.
            let next = if work.failures < FAILURES_MAX { self.map.next_written(work.rest.clone()) } else { None };
            let Some(first) = next else {
                work.rest = 0..0;
                work.workers -= 1;
                if work.workers == 0 {
                    self.writeback.idle.notify_all();
                }
                return;
            };
            let part = first..work.rest.end.min(first + self.run_pages() as u64);
            work.rest.start = part.end;
            drop(work);
            outcome = self.write_part(writer, part);
        }
    }

    /// Pages that one request can have.
    fn run_pages(&self) -> usize {
        RUN_PAGES.min((RUN_BYTES >> self.page_shift()) as usize).max(1)
    }

    /// Writes the dirty pages of a part of the file that fits one request. Says how many, if all went well.
    fn write_part(&self, writer: &dyn BackingFile, part: Range<u64>) -> Result<u64, IoError> {
        let mut run = Run { file: self, writer, first: part.start, pages: ArrayVec::new() };
        let mut result = Ok(0);
        let mut add = |more: Result<u64, IoError>| result = result.and_then(|pages| more.map(|more| pages + more));
        let mut next = part.start;
        while let Some(page) = self.map.next_written(next..part.end) {
            next = page + 1;
            let Some(held) = self.hold(page, Unclean::Dirty) else { continue };
            if page != run.first + run.pages.len() as u64 {
                add(run.write());
                run.first = page;
            }
            run.pages.push(held);
        }
        add(run.write());
        result
    }

    /// After the sync: what was written is clean, or dirty again.
    fn settle(&self, pages: Range<u64>, synced: bool) {
        let mut group = None;
        let mut next = pages.start;
        while let Some(page) = self.map.next_written(next..pages.end) {
            next = page + 1;
            let Some(held) = self.hold(page, Unclean::Unstable) else { continue };
            if !synced {
                held.end(Unclean::Dirty);
                continue;
            }
            let number = held.group();
            if held.settle() {
                if group.as_ref().is_none_or(|(last, _)| *last != number) {
                    group = Some((number, self.manager.groups.get(number)));
                }
                let group = group.as_ref().and_then(|(_, group)| group.as_deref());
                if let Some(group) = group {
                    Counters::add(&group.counters.bytes_out, self.page_bytes());
                }
                self.manager.became_clean(self, group);
            }
        }
    }

    fn hold(&self, page: u64, state: Unclean) -> Option<HeldPage<'_>> {
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

/// Neighbouring pages on their way to the file in one request.
struct Run<'a> {
    file: &'a FileState,
    writer: &'a dyn BackingFile,
    first: u64,
    pages: ArrayVec<HeldPage<'a>, RUN_PAGES>,
}

impl Run<'_> {
    /// Writes the pages, and says how many. They are unstable then, or still dirty if that failed.
    fn write(&mut self) -> Result<u64, IoError> {
        if self.pages.is_empty() {
            return Ok(0);
        }
        let file = self.file;
        let offset = self.first << file.page_shift();
        let whole = (self.pages.len() as u64) << file.page_shift();
        // Past the end there is nothing to write: such a page is one that `set_len` is about to drop.
        let len = whole.min(file.len().saturating_sub(offset));
        let bytes: ArrayVec<_, RUN_PAGES> = self.pages.iter().map(HeldPage::bytes).collect();
        let result = if len == 0 { Ok(()) } else { write_full(self.writer, offset, &bytes, len as usize) };
        let pages = self.pages.len() as u64;
        let state = if result.is_ok() { Unclean::Unstable } else { Unclean::Dirty };
        if result.is_ok() {
            file.written_up_to(offset + len);
            Counters::add(&file.counters.bytes_out, len);
            Counters::add(&file.counters.write_requests, 1);
        }
        self.pages.drain(..).for_each(|page| page.end(state));
        result.map(|()| pages)
    }
}
