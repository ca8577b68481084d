//! Gathering the numbers: what each handle, file and group counted, added up when somebody asks.

use sync::atomic::Ordering;

use sync::atomic::AtomicU64;
use sync::lock::Mutex;
use sync::{Arc, ThreadCounter, Weak};

use crate::file_state::FileState;
use crate::group_state::GroupState;
use crate::manager::Manager;
use crate::stats::{FileStats, GroupStats, Stats};

/// Where the hits of one open handle are counted. Apart from the handle, so that who adds them up doesn't keep the
/// handle, its file and its group open.
pub(crate) struct Hits {
    pub(crate) counter: ThreadCounter,
    pub(crate) group: u32,
    pub(crate) file: u32,
}

/// Who counts hits: the open handles.
#[derive(Default)]
pub(crate) struct HandleTable {
    open: Mutex<Vec<Weak<Hits>>>,
}

impl HandleTable {
    pub(crate) fn add(&self, handle: &Arc<Hits>) {
        let mut open = self.open.lock();
        open.retain(|handle| handle.strong_count() > 0);
        open.push(Arc::downgrade(handle));
    }

    /// Hits of the open handles that `of` tells. A handle that is just being closed may count nowhere for a moment.
    fn hits(&self, of: impl Fn(&Hits) -> bool) -> u64 {
        let open: Vec<_> = self.open.lock().iter().filter_map(Weak::upgrade).collect();
        open.iter().filter(|handle| of(handle)).map(|handle| handle.counter.sum()).sum()
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
            hits: get(&counters.hits) + self.handles.hits(|handle| handle.group == group.id),
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
            hits: get(&counters.hits) + self.handles.hits(|handle| handle.file == file.owner),
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
