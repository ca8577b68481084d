//! Whether the kernel's page cache is confined as the other subjects are.

use std::fs;
use std::path::Path;

use crate::peers::contents::offset_of;

/// What a reader has to know about the memory that the kernel's subjects had.
pub(crate) fn note(budget_pages: u32) -> String {
    let budget = offset_of(budget_pages) >> 20;
    match limit() {
        Some(limit) if limit <= 2 * offset_of(budget_pages) => {
            format!("all of this ran in a memory cgroup of {} MiB; the budget is {budget} MiB", limit >> 20)
        }
        _ => format!(
            "mmap and pwrite aren't confined to the budget of {budget} MiB: the kernel may keep the whole file. To confine \
             all subjects alike: systemd-run --scope -p MemoryMax={}M <this command>",
            budget + 128
        ),
    }
}

/// The least `memory.max` of the process's cgroup (version 2) and of those above it, in bytes.
fn limit() -> Option<u64> {
    let cgroups = fs::read_to_string("/proc/self/cgroup").ok()?;
    let own = cgroups.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let limits = Path::new(own).ancestors().filter_map(|group| {
        let file = Path::new("/sys/fs/cgroup").join(group).join("memory.max");
        fs::read_to_string(file).ok()?.trim().parse::<u64>().ok()
    });
    limits.min()
}
