//! Memory cgroups: groups of processes with a common limit of memory, which includes what the
//! kernel caches for them.
//!
//! In version 1, the memory controller has a tree of its own, and the new group is made below the
//! group of this process. In version 2, a group that has processes can't pass controllers on. So
//! the new group is made below the nearest ancestor of this process's group that does pass the
//! controller on. (Linux, Documentation/admin-guide/cgroup-v1/memory.rst and cgroup-v2.rst.)

use std::fs;
use std::path::{Path, PathBuf};
use std::thread::sleep;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow};
use rustix::process::{Pid, Signal, kill_process};

/// The name of every group is this, followed by the number of the process that made the group.
const NAME: &str = "pagefold-bench-";
/// How long killed processes may take to be gone.
const PATIENCE: Duration = Duration::from_secs(10);

/// A group that this process has made. Dropping this kills the processes in the group and removes
/// it.
#[derive(Debug)]
pub(super) struct Cgroup(PathBuf);

impl Cgroup {
    /// Makes a group whose processes may use `bytes`. With `swaps`, they may also swap.
    pub(super) fn limited_to(bytes: u64, swaps: bool) -> Result<Self> {
        let place = Place::of_this_process()?;
        let path = place.directory.join(format!("{NAME}{}", std::process::id()));
        fs::create_dir(&path).with_context(|| format!("cannot make the memory cgroup {}", path.display()))?;
        let group = Self(path);
        let limit = group.0.join(place.limit);
        fs::write(&limit, bytes.to_string()).with_context(|| format!("cannot set {}", limit.display()))?;
        if swaps {
            // When the group has no free memory, a process that wants more waits until pages have
            // been swapped out, rather than being killed (version 1). `OomWatch` ends waits that
            // may last for ever.
            let _ = fs::write(group.0.join(OOM_CONTROL), "1");
        } else {
            // Without this, the processes could exceed their limit by swapping. A kernel without
            // swap has no such file.
            let _ = fs::write(group.0.join(place.swap_limit.0), place.swap_limit.1(bytes).to_string());
        }
        Ok(group)
    }

    pub(super) fn path(&self) -> &Path {
        &self.0
    }
}

impl Drop for Cgroup {
    fn drop(&mut self) {
        let start = Instant::now();
        while fs::remove_dir(&self.0).is_err() && self.0.exists() && start.elapsed() < PATIENCE {
            let processes = fs::read_to_string(self.0.join(PROCESSES)).unwrap_or_default();
            for pid in processes.lines().filter_map(|line| Pid::from_raw(line.trim().parse().ok()?)) {
                let _ = kill_process(pid, Signal::KILL); // It may be gone already.
            }
            sleep(Duration::from_millis(5));
        }
    }
}

const PROCESSES: &str = "cgroup.procs";
const OOM_CONTROL: &str = "memory.oom_control";

/// How often waiting processes are looked at.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// If the group's state is unchanged in this many checks in a row, its processes wait in vain.
const LOOKS_MAX: u32 = 10;

/// Ends waits that may last for ever. A process that waits for memory of its group, rather than
/// being killed, sleeps until some of the group's memory is freed. If all processes of the group
/// sleep, none of them frees memory, even if there is room in swap again. (Swap may be full only
/// for a moment, because other processes of the machine use it, too.)
pub(super) struct OomWatch {
    group: PathBuf,
    /// At the last check, how often an allocation had failed because of the group's limit.
    failures: Option<String>,
    looks: u32,
}

impl OomWatch {
    pub(super) fn of(group: &Path) -> Self {
        Self { group: group.to_owned(), failures: None, looks: 0 }
    }

    /// Looks until there is no need to any more.
    pub(super) fn run(mut self) {
        while self.look() {
            sleep(LOOK_EVERY);
        }
    }

    /// Checks the group once. Returns false if this was the last check. If processes have waited in
    /// vain, allows the kernel to kill. Each waiting process then continues if there is memory for
    /// it by now, and is killed otherwise.
    fn look(&mut self) -> bool {
        let control = self.group.join(OOM_CONTROL);
        let Ok(state) = fs::read_to_string(&control) else { return false }; // Version 2, or the group is gone.
        let waits = state.lines().any(|line| line == "under_oom 1");
        let failures = fs::read_to_string(self.group.join("memory.failcnt")).ok();
        self.looks = if waits && failures == self.failures { self.looks + 1 } else { 0 };
        self.failures = failures;
        if self.looks < LOOKS_MAX {
            return true;
        }
        let _ = fs::write(control, "0"); // The group may be gone by now.
        false
    }
}

/// Puts this process, which has one thread yet, into a group.
pub(super) fn join(group: &Path) -> Result<()> {
    let processes = group.join(PROCESSES);
    fs::write(&processes, "0").with_context(|| format!("cannot write to {}", processes.display()))
}

/// The maximum memory that the processes of a group have used so far. `None` if the kernel doesn't
/// say (version 2 before Linux 5.19).
pub(super) fn peak(group: &Path) -> Option<u64> {
    let read = |file: &str| fs::read_to_string(group.join(file)).ok()?.trim().parse().ok();
    read("memory.max_usage_in_bytes").or_else(|| read("memory.peak"))
}

/// Where groups can be made, and what their files are called.
struct Place {
    directory: PathBuf,
    limit: &'static str,
    swap_limit: (&'static str, fn(u64) -> u64),
}

impl Place {
    fn of_this_process() -> Result<Self> {
        let read = |file: &str| fs::read_to_string(file).with_context(|| format!("cannot read {file}"));
        let (groups, mounts) = (read("/proc/self/cgroup")?, read("/proc/self/mountinfo")?);
        Self::first(&groups, &mounts).or_else(|| Self::second(&groups, &mounts)).ok_or_else(|| {
            anyhow!("no cgroup that this process is in has the memory controller, or hands it on to groups below")
        })
    }

    fn first(groups: &str, mounts: &str) -> Option<Self> {
        let directory = own_directory(groups, mounts, "cgroup", "memory")?;
        let swap_limit = ("memory.memsw.limit_in_bytes", (|bytes| bytes) as fn(u64) -> u64);
        Some(Self { directory, limit: "memory.limit_in_bytes", swap_limit })
    }

    fn second(groups: &str, mounts: &str) -> Option<Self> {
        let own = own_directory(groups, mounts, "cgroup2", "")?;
        let hands_on = |directory: &&Path| {
            let controllers = fs::read_to_string(directory.join("cgroup.subtree_control")).unwrap_or_default();
            controllers.split_whitespace().any(|controller| controller == "memory")
        };
        let directory = own.ancestors().find(hands_on)?.to_owned();
        Some(Self { directory, limit: "memory.max", swap_limit: ("memory.swap.max", |_| 0) })
    }
}

/// The directory of the group that this process is in. For version 1, this is the group in the tree
/// with `controller`; for version 2, `controller` is empty. `groups` and `mounts` are the texts of
/// /proc/self/cgroup and /proc/self/mountinfo (see proc(5)).
fn own_directory(groups: &str, mounts: &str, file_system: &str, controller: &str) -> Option<PathBuf> {
    let own = groups.lines().find_map(|line| {
        let (_, rest) = line.split_once(':')?;
        let (controllers, path) = rest.split_once(':')?;
        controllers.split(',').any(|name| name == controller).then_some(path)
    })?;
    mounts.lines().find_map(|line| {
        let (mount, kind) = line.split_once(" - ")?;
        let mut fields = mount.split(' ').skip(3);
        let (root, point) = (fields.next()?, fields.next()?);
        let mut kind = kind.split(' ');
        let is_it = kind.next()? == file_system
            && (controller.is_empty() || kind.nth(1)?.split(',').any(|option| option == controller));
        // In a container, the mounted root may be the container's own group.
        let below = Path::new(own).strip_prefix(root).or_else(|_| Path::new(own).strip_prefix("/")).ok()?;
        is_it.then(|| Path::new(point).join(below))
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: other processes used all swap for a moment. The process that measures the kernel
    /// waited for memory of its group. It then waited for ever, because no other process in the
    /// group could free memory. `OomWatch` must end the wait.
    #[test]
    fn processes_that_wait_for_memory_in_vain_do_not_wait_for_ever() {
        let group = tempfile::tempdir().unwrap();
        let set = |file: &str, text: &str| fs::write(group.path().join(file), text).unwrap();
        let control = || fs::read_to_string(group.path().join(OOM_CONTROL)).unwrap();
        let waits = "oom_kill_disable 1\nunder_oom 1\noom_kill 0\n";
        let mut watch = OomWatch::of(group.path());
        set("memory.failcnt", "7\n");
        set(OOM_CONTROL, waits);
        assert!((0..LOOKS_MAX).all(|_| watch.look()));
        set("memory.failcnt", "8\n");
        assert!((0..LOOKS_MAX).all(|_| watch.look()), "something happened");
        set(OOM_CONTROL, "oom_kill_disable 1\nunder_oom 0\noom_kill 0\n");
        assert!(watch.look(), "none waits");
        set(OOM_CONTROL, waits);
        assert!((1..LOOKS_MAX).all(|_| watch.look()));
        assert_eq!(control(), waits);
        assert!(!watch.look());
        assert_eq!(control(), "0");
        fs::remove_file(group.path().join(OOM_CONTROL)).unwrap();
        assert!(!OomWatch::of(group.path()).look(), "there is nothing to look at");
    }

    #[test]
    fn the_own_group_is_found_in_both_versions_and_in_containers() {
        let mounts = "24 1 0:21 / /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n\
                      25 1 0:22 / /sys/fs/cgroup/unified rw - cgroup2 cgroup2 rw\n";
        let groups = "4:memory:/a/b\n3:cpu,cpuacct:/c\n0::/d\n";
        let own = |file_system, controller| own_directory(groups, mounts, file_system, controller);
        assert_eq!(own("cgroup", "memory"), Some("/sys/fs/cgroup/memory/a/b".into()));
        assert_eq!(own("cgroup2", ""), Some("/sys/fs/cgroup/unified/d".into()));
        assert_eq!(own("cgroup", "cpu"), None, "it isn't mounted");
        let container = "24 1 0:21 /docker/x /sys/fs/cgroup/memory rw - cgroup cgroup rw,memory\n";
        let found = own_directory("4:memory:/docker/x/y\n", container, "cgroup", "memory");
        assert_eq!(found, Some("/sys/fs/cgroup/memory/y".into()));
    }
}
