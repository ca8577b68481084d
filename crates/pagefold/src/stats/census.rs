//! Gathering the numbers: what each handle, file and group counted, added up when somebody asks.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{Arc, ThreadCounter, Weak};

use crate::error::Error;
use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::stats::{Counters, FileStats, GroupStats, Stats};

/// Where hits are counted: those of one open handle, or of a place that files are mapped at one after the other. Apart from
/// them, so that who adds hits up doesn't keep the handle, its file and its group open.
pub(crate) struct Hits {
    pub(crate) counter: ThreadCounter,
    group: u32,
    /// The file's number, or [`NO_FILE`].
    file: AtomicU32,
    /// How many are in the numbers of their files and the group.
    settled: AtomicU64,
}

const NO_FILE: u32 = u32::MAX;

impl Hits {
    /// For a group, and no file as yet.
    ///
    /// # Errors
    /// [`Error::TooManyCounters`].
    pub(crate) fn new(group: &GroupState) -> Result<Self, Error> {
        let counter = ThreadCounter::new().ok_or(Error::TooManyCounters)?;
        Ok(Self { counter, group: group.id, file: AtomicU32::new(NO_FILE), settled: AtomicU64::new(0) })
    }

    /// What is counted from now on is `file`'s. Relaxed, here and below: statistics.
    pub(crate) fn begin(&self, file: &FileState) {
        self.file.store(file.owner, Ordering::Relaxed);
    }

    /// Adds what was counted to the numbers of `file` and the group. What comes late is the next file's.
    pub(crate) fn settle(&self, file: &FileState, group: &GroupState) {
        self.file.store(NO_FILE, Ordering::Relaxed);
        let all = self.counter.sum();
        let more = all.saturating_sub(self.settled.swap(all, Ordering::Relaxed));
        Counters::add(&file.counters.hits, more);
        Counters::add(&group.counters.hits, more);
    }

    fn unsettled(&self) -> u64 {
        self.counter.sum().saturating_sub(self.settled.load(Ordering::Relaxed))
    }
}

/// Who counts hits: the open handles, and mappings.
#[derive(Default)]
pub(crate) struct HandleTable {
    open: Mutex<Vec<Weak<Hits>>>,
}

impl HandleTable {
    pub(crate) fn add(&self, hits: &Arc<Hits>) {
        let mut open = self.open.lock();
        open.retain(|hits| hits.strong_count() > 0);
        open.push(Arc::downgrade(hits));
    }

    /// Hits of the open handles that `of` tells. A handle that is just being closed may count nowhere for a moment.
    fn hits(&self, of: impl Fn(&Hits) -> bool) -> u64 {
        let open: Vec<_> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        open.iter().filter(|hits| of(hits)).map(|hits| hits.unsettled()).sum()
    }
}

/// Relaxed: statistics.
fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

impl Manager {
    pub(crate) fn stats(&self) -> Stats {
        if self.frames.forked() {
            return Stats::default(); // Locks may have been held at the fork.
        }
        self.sweep_groups();
        let budget = self.frames.budget();
        let frames = self.frames.stats();
        let page_bytes = self.frames.page_size() as u64;
        let used_bytes = budget.used();
        Stats {
            budget_bytes: budget.max(),
            used_bytes,
            peak_bytes: budget.peak(),
            metadata_bytes: used_bytes.saturating_sub(frames.frames as u64 * page_bytes),
            map_bytes: frames.map_bytes,
            free_bytes: frames.free_frames as u64 * page_bytes,
            page_bytes,
            reclaimer_wakeups: self.doorbell.wakeups(),
            retired_frames: frames.retired_frames as u64,
            swap: self.swap_stats(),
            groups: self.groups.all().iter().map(|group| self.group_stats(group)).collect(),
            files: self.files.all().iter().map(|file| self.file_stats(file)).collect(),
        }
    }

    pub(crate) fn group_stats(&self, group: &GroupState) -> GroupStats {
        if self.frames.forked() {
            return GroupStats::default();
        }
        let page_bytes = self.frames.page_size() as u64;
        let counters = &group.counters;
        GroupStats {
            name: group.name.clone(),
            max_bytes: group.max() * page_bytes,
            charged_bytes: self.pages_of(group) * page_bytes,
            peak_bytes: group.peak() * page_bytes,
            hits: get(&counters.hits) + self.handles.hits(|hits| hits.group == group.id),
            misses: counters.misses.sum(),
            waits: get(&counters.waits),
            bytes_in: counters.bytes_in.sum(),
            bytes_out: get(&counters.bytes_out),
            unclean_bytes: group.unclean.get() * page_bytes,
            evictions: counters.evictions.sum(),
            refaults: counters.refaults.sum(),
            errors: get(&counters.errors),
            direct_reclaims: get(&counters.direct_reclaims),
            read_ahead: get(&counters.read_ahead),
            read_ahead_wasted: get(&counters.read_ahead_wasted),
            swap_outs: get(&group.swapped.outs),
            same_filled: get(&group.swapped.same_filled),
            swap_ins: group.swapped.ins.sum(),
            swap_read_along: get(&group.swapped.along),
            swap_read_along_wasted: get(&group.swapped.along_wasted),
            swap_bytes_in: group.swapped.read.sum() * page_bytes,
            swap_bytes_out: get(&group.swapped.written) * page_bytes,
            swapped_bytes: self.swapped_of(group) * page_bytes,
        }
    }

    pub(crate) fn file_stats(&self, file: &FileState) -> FileStats {
        if self.frames.forked() {
            return FileStats::default();
        }
        let counters = &file.counters;
        FileStats {
            path: file.path.clone(),
            len: file.len(),
            hits: get(&counters.hits) + self.handles.hits(|hits| hits.file.load(Ordering::Relaxed) == file.owner),
            misses: counters.misses.sum(),
            waits: get(&counters.waits),
            bytes_in: counters.bytes_in.sum(),
            bytes_out: get(&counters.bytes_out),
            write_requests: get(&counters.write_requests),
            unclean_bytes: file.unclean.get() * file.page_bytes(),
            write_errors: get(&counters.write_errors),
            evictions: counters.evictions.sum(),
            refaults: counters.refaults.sum(),
            errors: get(&counters.errors),
            read_ahead: get(&counters.read_ahead),
            read_ahead_wasted: get(&counters.read_ahead_wasted),
        }
    }
}
