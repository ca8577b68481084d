//! The machine's memory, and how much of it this process may use.

use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Component, Path, PathBuf};

/// Returns the size of the system's pages in bytes.
pub(crate) fn page_size() -> usize {
    frames::system_page_size()
}

/// The memory that this process may use, as [`memory_allowed`] returns it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MemoryAllowed {
    /// The amount in bytes.
    pub bytes: u64,
    /// The file that contains the limit, if a memory cgroup (version 1 or 2) sets it. `None` if the
    /// limit is the machine's memory.
    pub limit: Option<PathBuf>,
}

/// Returns how much memory this process may use: the minimum of the machine's memory and the limits
/// of the process's memory cgroup and its ancestors.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let allowed = pagefold::memory_allowed();
/// let half = pagefold::Pagefold::builder().memory(allowed.bytes / 2).build()?;
/// assert_eq!(half.budget(), allowed.bytes / 2);
/// if let Some(file) = allowed.limit {
///     println!("{} sets the limit", file.display());
/// }
/// # Ok(())
/// # }
/// ```
#[must_use]
pub fn memory_allowed() -> MemoryAllowed {
    memory_allowed_in(Path::new("/"))
}

/// Implements [`memory_allowed`], with `root` in place of the root directory.
fn memory_allowed_in(root: &Path) -> MemoryAllowed {
    // Read as bytes: names of cgroups may not be UTF-8.
    let read = |file: &Path| std::fs::read(root.join(file)).unwrap_or_default();
    let total = memory_total(&read(Path::new("proc/meminfo"))).unwrap_or_else(frames::system_memory);
    let cgroup = read(Path::new("proc/self/cgroup"));
    let limits = limit_files(&cgroup, &read(Path::new("proc/self/mountinfo"))).into_iter().filter_map(|file| {
        let bytes = std::str::from_utf8(&read(&file)).ok()?.trim().parse().ok()?;
        Some((bytes, file))
    });
    match limits.min_by_key(|&(bytes, _)| bytes) {
        Some((bytes, file)) if bytes < total => MemoryAllowed { bytes, limit: Some(Path::new("/").join(file)) },
        _ => MemoryAllowed { bytes: total, limit: None },
    }
}

/// A hierarchy of memory cgroups.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Hierarchy {
    /// Version 1's memory controller.
    One,
    /// Version 2.
    Two,
}

impl Hierarchy {
    /// Returns the name of a cgroup's file with its limit.
    fn limit(self) -> &'static str {
        match self {
            Self::One => "memory.limit_in_bytes",
            Self::Two => "memory.max",
        }
    }

    /// Returns where the hierarchy is usually mounted, for systems that don't report it.
    fn usual_place(self) -> Mount {
        let point = match self {
            Self::One => "sys/fs/cgroup/memory",
            Self::Two => "sys/fs/cgroup",
        };
        Mount { root: PathBuf::from("/"), point: PathBuf::from(point) }
    }
}

/// A visible part of a hierarchy.
struct Mount {
    /// The cgroup at the root of the mount.
    root: PathBuf,
    /// The mount point, relative to the root directory.
    point: PathBuf,
}

/// Returns the files that may hold a memory limit: the limit files of this process's cgroup and of
/// its visible ancestors. The paths are relative to the root directory. `cgroup` and `mountinfo`
/// are the contents of `/proc/self/cgroup` and `/proc/self/mountinfo`.
fn limit_files(cgroup: &[u8], mountinfo: &[u8]) -> Vec<PathBuf> {
    let mut files = Vec::new();
    for line in lines(cgroup) {
        let mut fields = line.splitn(3, |&byte| byte == b':').skip(1);
        let (Some(controllers), Some(group)) = (fields.next(), fields.next()) else { continue };
        let hierarchy = match controllers {
            b"" => Hierarchy::Two,
            _ if controllers.split(|&byte| byte == b',').any(|name| name == b"memory") => Hierarchy::One,
            _ => continue,
        };
        let mut mounts = mounts(hierarchy, mountinfo);
        if mounts.is_empty() {
            mounts.push(hierarchy.usual_place());
        }
        let below = |mount: &Mount| {
            let below = Path::new(OsStr::from_bytes(group)).strip_prefix(&mount.root).ok()?;
            below.components().all(|part| part != Component::ParentDir).then(|| below.to_owned())
        };
        let is_seen = mounts.iter().any(|mount| below(mount).is_some());
        for mount in &mounts {
            // If no mount contains the cgroup's path, the process is assumed to be in a container,
            // in which the root of the mount is the process's cgroup. Then the root of the mount is
            // used, and the path is ignored, because it is valid only outside the container.
            let Some(below) = below(mount).or_else(|| (!is_seen).then(PathBuf::new)) else { continue };
            files.extend(below.ancestors().map(|group| mount.point.join(group).join(hierarchy.limit())));
        }
    }
    files
}

/// Returns the mounts of a hierarchy. A line of `mountinfo` is
/// `id parent device root point options … - type source options` (proc_pid_mountinfo(5)). A blank
/// in a name is written as `\040`.
fn mounts(hierarchy: Hierarchy, mountinfo: &[u8]) -> Vec<Mount> {
    let mount = |line: &[u8]| {
        let fields: Vec<_> = line.split(|&byte| byte == b' ').collect();
        let rest = fields.iter().position(|&field| field == b"-")?;
        let is_it = match *fields.get(rest + 1)? {
            b"cgroup2" => hierarchy == Hierarchy::Two,
            b"cgroup" => {
                let mut options = fields.get(rest + 3)?.split(|&byte| byte == b',');
                hierarchy == Hierarchy::One && options.any(|option| option == b"memory")
            }
            _ => false,
        };
        let (root, point) = (path(fields.get(3)?), path(fields.get(4)?));
        let point = point.strip_prefix("/").unwrap_or(&point).to_owned();
        is_it.then_some(Mount { root, point })
    };
    lines(mountinfo).filter_map(mount).collect()
}

/// Decodes a name in which a backslash and three octal digits stand for a byte.
fn path(text: &[u8]) -> PathBuf {
    let mut name = Vec::new();
    let mut rest = text;
    while let Some((&byte, behind)) = rest.split_first() {
        let code = behind.get(..3).filter(|_| byte == b'\\').and_then(|digits| std::str::from_utf8(digits).ok());
        match code.and_then(|digits| u8::from_str_radix(digits, 8).ok()) {
            Some(code) => {
                name.push(code);
                rest = &behind[3..];
            }
            None => {
                name.push(byte);
                rest = behind;
            }
        }
    }
    PathBuf::from(OsString::from_vec(name))
}

fn lines(text: &[u8]) -> impl Iterator<Item = &[u8]> {
    text.split(|&byte| byte == b'\n')
}

/// Returns the machine's memory, given the contents of `/proc/meminfo`.
fn memory_total(meminfo: &[u8]) -> Option<u64> {
    let kib = lines(meminfo).find_map(|line| {
        let text = std::str::from_utf8(line.strip_prefix(b"MemTotal:")?).ok()?;
        text.trim().strip_suffix("kB")?.trim().parse::<u64>().ok()
    });
    Some(kib?.saturating_mul(1 << 10))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn limits_are_looked_for_up_the_hierarchy() {
        let two = limit_files(b"0::/a/b\n", b"");
        let expected = ["sys/fs/cgroup/a/b/memory.max", "sys/fs/cgroup/a/memory.max", "sys/fs/cgroup/memory.max"];
        assert_eq!(two, expected.map(PathBuf::from));
        let one = limit_files(b"5:cpu,memory:/x\n4:pids:/y\nnonsense\n", b"");
        assert_eq!(one[0], PathBuf::from("sys/fs/cgroup/memory/x/memory.limit_in_bytes"));
        assert_eq!(one.len(), 2);
    }

    #[test]
    fn hierarchies_are_found_where_they_are_mounted() {
        let mounts = "25 1 0:22 / /proc rw - proc proc rw\n\
                      30 24 0:26 /docker/a /run/my\\040groups rw,nosuid master:4 - cgroup cgroup rw,cpu,memory\n\
                      31 24 0:27 / /sys/fs/cgroup/pids rw - cgroup cgroup rw,pids\n\
                      32 24 0:28 / /groups rw,relatime - cgroup2 cgroup2 rw\n";
        let files = |cgroup: &[u8]| limit_files(cgroup, mounts.as_bytes());
        let one = ["run/my groups/b/memory.limit_in_bytes", "run/my groups/memory.limit_in_bytes"];
        assert_eq!(files(b"5:memory:/docker/a/b\n"), one.map(PathBuf::from));
        assert_eq!(files(b"5:memory:/elsewhere\n"), [PathBuf::from(one[1])]);
        let other = format!("{mounts}33 24 0:26 / /all rw - cgroup cgroup rw,memory\n");
        let all = limit_files(b"5:memory:/elsewhere\n", other.as_bytes());
        assert!(all.len() == 2 && all.iter().all(|file| file.starts_with("all")), "{all:?}");
        let two = files(b"0::/caf\xe9\n");
        assert_eq!(two[0].as_os_str().as_bytes(), b"groups/caf\xe9/memory.max");
        assert_eq!(two[1..], [PathBuf::from("groups/memory.max")]);
        assert_eq!(files(b"0::/../x\n"), [PathBuf::from("groups/memory.max")]);
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
        assert_eq!(allowed(&[]), (frames::system_memory(), None));
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
        // A container sees its own cgroup as the root, whatever its name is.
        let root = ("sys/fs/cgroup/memory/memory.limit_in_bytes", "8192\n");
        assert_eq!(allowed(&[MEMINFO, own, root]), (8192, Some(format!("/{}", root.0))));
    }

    #[test]
    fn the_machine_has_memory() {
        assert!(memory_allowed().bytes > 1 << 20);
    }
}
