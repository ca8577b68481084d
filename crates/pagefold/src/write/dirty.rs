//! How much may differ from its file, and how writers are slowed down before it gets there.
//!
//! A page that its file doesn't have can't be evicted, so at most seven eighths of a group's limit, and of the frames that the
//! budget has room for, should be such *unclean* pages. From a third of that on, the flusher writes (`flusher`); from three quarters on writers are slowed
//! down, the more the nearer they come: each page that they make unclean costs them time, which they sleep off a few
//! milliseconds at a time. What a page costs follows from how fast pages have been written back lately, so that writers settle
//! at the pace of the disk somewhere between the two marks. (As Linux's `balance_dirty_pages` does, without its estimates per
//! device.) Much that is unclean is good for a disk: pages that are written to again while they wait are written back once, and
//! those that lie together go in one request.

use std::time::Duration;

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};
use sync::thread::sleep;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::manager::Manager;

/// UncleanCount pages, of a group, a file or all. It may be below zero for a moment: a page may be counted out before it was
/// counted in.
#[derive(Debug, Default)]
pub(crate) struct UncleanCount(AtomicU64);

impl UncleanCount {
    pub(crate) fn get(&self) -> u64 {
        let pages = self.0.load(Ordering::Relaxed);
        if pages > u64::MAX / 2 { 0 } else { pages }
    }

    /// Says whether it is the first.
    fn add(&self) -> bool {
        self.0.fetch_add(1, Ordering::Relaxed) == 0
    }

    fn remove(&self, pages: u64) {
        self.0.fetch_sub(pages, Ordering::Relaxed);
    }
}

/// The part of a limit that is left for clean pages, and how many those are at least, where that is less than a quarter.
const CLEAN_SHARE: u64 = 8;
const CLEAN_MIN: u64 = 64;
/// The shares of that from which on the flusher writes,
const WRITTEN_FROM: f64 = 1.0 / 3.0;
/// and writers are slowed down.
const SLOWED_FROM: f64 = 3.0 / 4.0;
/// Writers sleep when they owe so much,
const DEBT_MIN: Duration = Duration::from_millis(4);
/// and no longer than this at a time.
const PAUSE_MAX: Duration = Duration::from_millis(20);
/// A writer waits so often for room before it writes beyond the mark, which then is no limit.
const WAITS_MAX: u32 = 100;
/// Pages a second that are taken for granted before any were written back.
const RATE_AT_START: u64 = 50_000;

/// How fast pages are written back.
#[derive(Debug)]
pub(crate) struct Rate(AtomicU64);

impl Default for Rate {
    fn default() -> Self {
        Self(AtomicU64::new(RATE_AT_START))
    }
}

impl Rate {
    /// Takes `pages` in `time` into account. Relaxed, also below: an estimate.
    pub(crate) fn measured(&self, pages: u64, time: Duration) {
        let now = pages as f64 / time.as_secs_f64().max(1e-6);
        let before = self.0.load(Ordering::Relaxed) as f64;
        self.0.store((before * 0.75 + now * 0.25).max(1.0) as u64, Ordering::Relaxed);
    }

    fn page_ns(&self) -> f64 {
        1e9 / self.0.load(Ordering::Relaxed).max(1) as f64
    }
}

impl Manager {
    /// Counts a page that has just become unclean.
    pub(crate) fn became_unclean(&self, file: &FileState, group: u32) {
        if file.unclean.add() {
            file.unclean_since_ms.store(self.now_ms(), Ordering::Relaxed);
        }
        // From now on something has to be written some time: the flusher, which may sleep for good, has to know.
        if self.unclean.add() {
            self.flusher.ring();
        }
        if let Some(group) = self.groups.get(group) {
            group.unclean.add();
        }
    }

    /// Counts pages that aren't unclean any more.
    pub(crate) fn became_clean(&self, file: &FileState, group: Option<&GroupState>, pages: u64) {
        file.unclean.remove(pages);
        self.unclean.remove(pages);
        if let Some(group) = group {
            group.unclean.remove(pages);
        }
    }

    /// UncleanCount pages as a share of what there should be at most: the group's, or all if that is more.
    pub(crate) fn unclean_share(&self, group: &GroupState) -> f64 {
        let share = |unclean: u64, max: u64| unclean as f64 / unclean_max(max) as f64;
        let all = share(self.unclean.get(), self.frames.capacity() as u64);
        share(group.unclean.get(), group.max()).max(all)
    }

    /// Before a page is made unclean: waits while there are too many. Those of files that can't be written aren't waited
    /// for.
    ///
    /// # Errors
    /// [`Error::WriteFailed`] if there are too many, and this file's can't be written.
    pub(crate) fn wait_for_clean(&self, handle: &Handle) -> Result<(), Error> {
        let group = handle.group.state();
        for _ in 0..WAITS_MAX {
            if self.unclean_share(group) < 1.0 {
                return Ok(());
            }
            if let Some(error) = handle.file.latch.failing() {
                return Err(Error::WriteFailed { path: handle.file.path.clone(), error });
            }
            if self.writable_share(group) < 1.0 {
                return Ok(());
            }
            self.flusher.ring();
            sleep(PAUSE_MAX / 4);
        }
        Ok(())
    }

    /// As [`unclean_share`](Self::unclean_share), of pages whose files can be written; whose group they are isn't looked at.
    fn writable_share(&self, group: &GroupState) -> f64 {
        let writable = |file: &&Arc<FileState>| file.latch.failing().is_none();
        let unclean: u64 = self.files.all().iter().filter(writable).map(|file| file.unclean.get()).sum();
        unclean as f64 / unclean_max(group.max().min(self.frames.capacity() as u64)) as f64
    }

    /// After a page was made unclean: slows the writer down if it has to be.
    pub(crate) fn pace(&self, handle: &Handle) {
        let share = self.unclean_share(handle.group.state());
        if share >= WRITTEN_FROM {
            self.flusher.ring();
        }
        if share < SLOWED_FROM {
            return;
        }
        // Nothing at this mark; the disk's pace half way to the other, where it settles if there is one writer.
        let ns = self.rate.page_ns() * (share - SLOWED_FROM) / (1.0 - SLOWED_FROM) * 2.0;
        let debt = handle.debt_ns.fetch_add(ns as u64, Ordering::Relaxed) + ns as u64;
        if debt >= DEBT_MIN.as_nanos() as u64 {
            handle.debt_ns.fetch_sub(debt, Ordering::Relaxed);
            sleep(Duration::from_nanos(debt).min(PAUSE_MAX));
        }
    }

    /// Whether the flusher should write now.
    pub(crate) fn has_much_unclean(&self) -> bool {
        self.groups.any(|group| self.unclean_share(group) >= WRITTEN_FROM)
    }

    /// Milliseconds since the beginning.
    pub(crate) fn now_ms(&self) -> u64 {
        self.clock.elapsed().as_millis() as u64
    }
}

/// The most that should be unclean of so many pages.
fn unclean_max(pages: u64) -> u64 {
    let clean = (pages / CLEAN_SHARE).max(CLEAN_MIN).min(pages.div_ceil(4));
    (pages - clean).max(1)
}
