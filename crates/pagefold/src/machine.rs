//! What the machine has, and what this process may use of it.

use std::fs;
use std::path::{Path, PathBuf};

/// Bytes in a page of the system.
pub(crate) fn page_size() -> usize {
    frames::system_page_size()
}

/// Memory that this process may use: the least that the limits of its memory cgroup, and of those above it, and the
/// machine allow. Bytes.
pub(crate) fn memory_allowed() -> u64 {
    let cgroup = fs::read_to_string("/proc/self/cgroup").unwrap_or_default();
    let limits = cgroup_files(&cgroup).into_iter().filter_map(|file| fs::read_to_string(file).ok());
    let limit = limits.filter_map(|text| text.trim().parse::<u64>().ok()).min();
    limit.unwrap_or(u64::MAX).min(memory_total())
}

/// The files that may hold a limit, given the contents of `/proc/self/cgroup`: version 2's hierarchy, and version 1's
/// memory controller.
fn cgroup_files(cgroup: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("/sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("/sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        files.extend(
            Path::new(path)
                .ancestors()
                .map(|group| Path::new(root).join(group.strip_prefix("/").unwrap_or(group)).join(file)),
        );
    }
    files
}

fn memory_total() -> u64 {
    let meminfo = fs::read_to_string("/proc/meminfo").unwrap_or_default();
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    // Where the system doesn't say, assume little.
    kib.map_or(1 << 30, |kib| kib << 10)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_up_the_hierarchy() {
        let two = cgroup_files("0::/a/b\n");
        let expected = ["/sys/fs/cgroup/a/b/memory.max", "/sys/fs/cgroup/a/memory.max", "/sys/fs/cgroup/memory.max"];
        assert_eq!(two, expected.map(PathBuf::from));
        let one = cgroup_files("5:cpu,memory:/x\n4:pids:/y\nnonsense\n");
        assert_eq!(one[0], PathBuf::from("/sys/fs/cgroup/memory/x/memory.limit_in_bytes"));
        assert_eq!(one.len(), 2);
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(memory_allowed() > 1 << 20);
    }
}
