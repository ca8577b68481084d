//! What the machine has, and what this process may use of it.

use std::path::{Path, PathBuf};

/// Bytes in a page of the system.
pub(crate) fn page_size() -> usize {
    frames::system_page_size()
}

/// Memory that this process may use.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAllowed {
    /// Bytes.
    pub bytes: u64,
    /// The file that says so, if it is the limit of a memory cgroup, of version 1 or 2. `None` if
    /// that is all the memory that the machine has.
    pub limit: Option<PathBuf>,
}

/// Memory that this process may use: the least that the limits of its memory cgroup, and of those
/// above it, and the machine allow.
#[must_use]
pub fn memory_allowed() -> MemoryAllowed {
    memory_allowed_in(Path::new("/"))
}

/// The same with `root` in place of the root directory.
fn memory_allowed_in(root: &Path) -> MemoryAllowed {
    let read = |file: &str| std::fs::read_to_string(root.join(file)).unwrap_or_default();
    let total = memory_total(&read("proc/meminfo"));
    let limits = limit_files(&read("proc/self/cgroup")).into_iter().filter_map(|file| {
        let bytes = read(file.to_str()?).trim().parse().ok()?;
        Some((bytes, file))
    });
    match limits.min_by_key(|&(bytes, _)| bytes) {
        Some((bytes, file)) if bytes < total => MemoryAllowed { bytes, limit: Some(Path::new("/").join(file)) },
        _ => MemoryAllowed { bytes: total, limit: None },
    }
}

/// The files that may hold a limit, given the contents of `/proc/self/cgroup`: version 2's
/// hierarchy, and version 1's memory controller. Below the root directory.
fn limit_files(cgroup: &str) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in cgroup.lines() {
        let mut fields = line.splitn(3, ':').skip(1);
        let (Some(controllers), Some(path)) = (fields.next(), fields.next()) else { continue };
        let (root, file) = match controllers {
            "" => ("sys/fs/cgroup", "memory.max"),
            _ if controllers.split(',').any(|name| name == "memory") => {
                ("sys/fs/cgroup/memory", "memory.limit_in_bytes")
            }
            _ => continue,
        };
        let groups = Path::new(path).ancestors();
        files.extend(groups.map(|group| Path::new(root).join(group.strip_prefix("/").unwrap_or(group)).join(file)));
    }
    files
}

/// All that the machine has, given the contents of `/proc/meminfo`.
fn memory_total(meminfo: &str) -> u64 {
    let kib = meminfo
        .lines()
        .find_map(|line| line.strip_prefix("MemTotal:")?.trim().strip_suffix("kB")?.trim().parse::<u64>().ok());
    // Where the system doesn't say, assume little.
    kib.map_or(1 << 30, |kib| kib.saturating_mul(1 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_up_the_hierarchy() {
        let two = limit_files("0::/a/b\n");
        let expected = ["sys/fs/cgroup/a/b/memory.max", "sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/memory.max"];
        assert_eq!(two, expected.map(PathBuf::from));
        let one = limit_files("5:cpu,memory:/x\n4:pids:/y\nnonsense\n");
        assert_eq!(one[0], PathBuf::from("sys/fs/cgroup/memory/x/memory.limit_in_bytes"));
        assert_eq!(one.len(), 2);
    }

    /// A root directory with these files.
    fn root(files: &[(&str, &str)]) -> tempfile::TempDir {
        let root = tempfile::tempdir().unwrap();
        for (file, text) in files {
            let file = root.path().join(file);
            std::fs::create_dir_all(file.parent().unwrap()).unwrap();
            std::fs::write(file, text).unwrap();
        }
        root
    }

    const MEMINFO: (&str, &str) = ("proc/meminfo", "MemTotal:       24641000 kB\nMemFree: 1 kB\n");
    const TOTAL: u64 = 24_641_000 << 10;

    fn allowed(files: &[(&str, &str)]) -> (u64, Option<String>) {
        let MemoryAllowed { bytes, limit } = memory_allowed_in(root(files).path());
        (bytes, limit.map(|file| file.to_str().unwrap().to_owned()))
    }

    #[test]
    fn the_smallest_of_machine_and_control_groups_counts() {
        let own = ("proc/self/cgroup", "4:memory:/a/b\n3:cpu:/\n0::/c\n");
        assert_eq!(allowed(&[]), (1 << 30, None));
        assert_eq!(allowed(&[MEMINFO]), (TOTAL, None));
        let none = [("sys/fs/cgroup/memory/a/b/memory.limit_in_bytes", "9223372036854771712\n")];
        assert_eq!(allowed(&[&[MEMINFO, own], &none[..]].concat()), (TOTAL, None));
        let one = ("sys/fs/cgroup/memory/a/memory.limit_in_bytes", "41943040\n");
        let first = Some(format!("/{}", one.0));
        assert_eq!(allowed(&[&[MEMINFO, own, one], &none[..]].concat()), (40 << 20, first.clone()));
        let two = ("sys/fs/cgroup/c/memory.max", "max\n");
        assert_eq!(allowed(&[MEMINFO, own, one, two]), (40 << 20, first));
        let two = (two.0, "4096\n");
        assert_eq!(allowed(&[MEMINFO, own, one, two]), (4096, Some(format!("/{}", two.0))));
        // A container sees its own group as the root, whatever it is called.
        let root = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
        assert_eq!(allowed(&[MEMINFO, own, root]), (8192, Some(format!("/{}", root.0))));
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(memory_allowed().bytes > 1 << 20);
    }
}
