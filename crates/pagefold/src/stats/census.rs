//! Gathering the numbers: the counts of each handle, file and group, added up on request.

use std::fmt;
use std::ops::Deref;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{Arc, CounterPlace, ThreadCounter};

use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::slab::Slab;
use crate::stats::{Counters, FileStats, GroupStats, Stats};

/// Where hits are counted: those of one open handle, or of a place that files are mapped at one
/// after the other. By default the counter has no place as long as there are few of them.
#[derive(Default)]
pub(crate) struct Hits {
    pub(crate) counter: ThreadCounter,
    /// How many are in the numbers of their files and the group.
    settled: AtomicU64,
}

impl Hits {
    /// None as yet, and the counter's place, which it has from the start unless there are many.
    pub(crate) fn at_hand() -> (Self, CounterPlace) {
        let (counter, place) = ThreadCounter::at_hand();
        (Self { counter, settled: AtomicU64::new(0) }, place)
    }

    fn unsettled(&self) -> u64 {
        self.counter.sum().saturating_sub(self.settled.load(Ordering::Relaxed))
    }
}

/// The hits that a group, or a file, hasn't in its numbers yet. Each has a list of its own, so that
/// neither a handle that comes or goes nor a look at one tenant's numbers has to do with the
/// handles of others.
#[derive(Default)]
pub(crate) struct HitsList {
    lists: Mutex<Slab<Arc<Hits>>>,
}

impl HitsList {
    fn add(&self, hits: &Arc<Hits>) -> u32 {
        self.lists.lock().insert(Arc::clone(hits))
    }

    fn remove(&self, number: u32) {
        self.lists.lock().remove(number);
    }

    /// A handle that is just being closed may count nowhere for a moment.
    fn unsettled(&self) -> u64 {
        self.lists.lock().iter().map(|hits| hits.unsettled()).sum()
    }
}

impl fmt::Debug for HitsList {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HitsList").finish_non_exhaustive()
    }
}

/// The hits of an open handle, or of a place, which are on its group's list and on that of the file
/// that is there now.
pub(crate) struct HitCount {
    hits: Arc<Hits>,
    in_group: u32,
    /// The number on the file's list, or [`NO_FILE`].
    in_file: AtomicU32,
}

const NO_FILE: u32 = u32::MAX;
/// What an allocation takes besides what is asked for, and a place on a list.
pub(crate) const ALLOCATION: u64 = 16;

impl HitCount {
    /// Bytes that this takes where it is kept elsewhere: the hits, and their place on two lists;
    /// not that of their counter.
    pub(crate) fn bytes() -> u64 {
        size_of::<Hits>() as u64 + 4 * ALLOCATION
    }

    /// Puts them on the group's list, and as yet on no file's.
    pub(crate) fn enter(hits: Hits, group: &GroupState) -> Self {
        let hits = Arc::new(hits);
        Self { in_group: group.hits.add(&hits), hits, in_file: AtomicU32::new(NO_FILE) }
    }

    /// What is counted from now on is `file`'s. The caller begins and settles one file after the
    /// other.
    pub(crate) fn begin(&self, file: &FileState) {
        self.in_file.store(file.hits.add(&self.hits), Ordering::Relaxed);
    }

    /// Adds what was counted to the numbers of `file` and the group. What comes late is the next
    /// file's.
    pub(crate) fn settle(&self, file: &FileState, group: &GroupState) {
        let number = self.in_file.swap(NO_FILE, Ordering::Relaxed);
        if number != NO_FILE {
            file.hits.remove(number);
        }
        let all = self.counter.sum();
        let more = all.saturating_sub(self.settled.swap(all, Ordering::Relaxed));
        Counters::add(&file.counters.hits, more);
        Counters::add(&group.counters.hits, more);
    }

    /// Takes them off the group's list, at the end. Not in `drop`: a forked child takes no locks.
    pub(crate) fn leave(&self, group: &GroupState) {
        group.hits.remove(self.in_group);
    }
}

impl Deref for HitCount {
    type Target = Hits;

    fn deref(&self) -> &Hits {
        &self.hits
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
        self.sweep_groups(usize::MAX);
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
            hits: get(&counters.hits) + group.hits.unsettled(),
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
            hits: get(&counters.hits) + file.hits.unsettled(),
            misses: counters.misses.sum(),
            waits: get(&counters.waits),
            bytes_in: counters.bytes_in.sum(),
            bytes_out: get(&counters.bytes_out),
            write_requests: get(&counters.write_requests),
            unclean_bytes: file.unclean() * file.page_bytes(),
            device_silent: file.is_device_silent(),
            write_errors: get(&counters.write_errors),
            evictions: counters.evictions.sum(),
            refaults: counters.refaults.sum(),
            errors: get(&counters.errors),
            read_ahead: get(&counters.read_ahead),
            read_ahead_wasted: get(&counters.read_ahead_wasted),
        }
    }
}
