//! Gathers the statistics: adds up the counts of each handle, file and group on request.

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

use crate::file::state::FileState;
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::stats::{FileStats, GroupStats, Stats};

/// Relaxed: statistics.
fn get(counter: &AtomicU64) -> u64 {
    counter.load(Ordering::Relaxed)
}

/// Returns all statistics, including those of `files`.
pub(crate) fn stats(manager: &Manager, files: impl FnOnce() -> Vec<Arc<FileState>>) -> Stats {
    if manager.memory.frames.forked() {
        return Stats::default(); // Locks may have been held at the fork.
    }
    manager.sweep_groups(usize::MAX);
    let budget = manager.memory.frames.budget();
    let frames = manager.memory.frames.stats();
    let page_bytes = manager.memory.frames.page_size() as u64;
    let used_bytes = budget.used();
    Stats {
        budget_bytes: budget.max(),
        used_bytes,
        peak_bytes: budget.peak(),
        metadata_bytes: used_bytes.saturating_sub(frames.frames as u64 * page_bytes),
        map_bytes: frames.map_bytes,
        free_bytes: frames.free_frames as u64 * page_bytes,
        page_bytes,
        reclaimer_wakeups: manager.memory.doorbell.wakeups(),
        retired_frames: frames.retired_frames as u64,
        swap: manager.swapping.stats(&manager.memory),
        groups: manager.memory.groups.all().iter().map(|group| group_stats(manager, group)).collect(),
        files: files().iter().map(|file| file_stats(manager, file)).collect(),
    }
}

pub(crate) fn group_stats(manager: &Manager, group: &GroupState) -> GroupStats {
    if manager.memory.frames.forked() {
        return GroupStats::default();
    }
    let page_bytes = manager.memory.frames.page_size() as u64;
    let counters = &group.counters;
    let forecast = group.lists.forecast();
    let charged = manager.memory.pages_of(group);
    GroupStats {
        name: group.name.clone(),
        max_bytes: group.max() * page_bytes,
        dropped: group.is_abandoned(),
        charged_bytes: charged * page_bytes,
        metadata_bytes: group.metadata().min(charged) * page_bytes,
        peak_bytes: group.peak_of(charged) * page_bytes,
        hits: get(&counters.hits) + group.hits.unsettled(),
        misses: counters.misses.sum(),
        waits: get(&counters.waits),
        bytes_in: counters.bytes_in.sum(),
        bytes_out: get(&counters.bytes_out),
        unclean_bytes: group.unclean.get() * page_bytes,
        evictions: counters.evictions.sum(),
        refaults: counters.refaults.sum(),
        pattern: forecast.pattern,
        more_memory_saves: forecast.more,
        less_memory_costs: forecast.less,
        errors: get(&counters.errors),
        direct_reclaims: counters.direct_reclaims.sum(),
        read_ahead: get(&counters.read_ahead),
        read_ahead_wasted: get(&counters.read_ahead_wasted),
        swap_outs: group.swapped.outs.sum(),
        same_filled: group.swapped.same_filled.sum(),
        swap_ins: group.swapped.ins.sum(),
        swap_read_along: get(&group.swapped.along),
        swap_read_along_wasted: get(&group.swapped.along_wasted),
        swap_bytes_in: group.swapped.read.sum() * page_bytes,
        swap_bytes_out: group.swapped.written.sum() * page_bytes,
        swapped_bytes: manager.swapping.slots_of(group) * page_bytes,
    }
}

pub(crate) fn file_stats(manager: &Manager, file: &FileState) -> FileStats {
    if manager.memory.frames.forked() {
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
