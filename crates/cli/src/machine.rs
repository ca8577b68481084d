//! How much memory there is for this process.

use std::path::Path;

use crate::failure::Failure;
use crate::units;

/// Memory that the process can have at most, and who says so.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Available {
    bytes: u64,
    /// A control group's limit, which is below what the machine has.
    by_cgroup: bool,
}

/// Refuses a budget that is to be touched and is larger than what there is; warns of one that isn't to be touched.
///
/// # Errors
/// Usage: says how much there is.
pub(crate) fn check_budget(budget: u64, pretouch: bool) -> Result<(), Failure> {
    let Some(available) = available() else { return Ok(()) };
    match message(budget, available, pretouch) {
        Some(message) if pretouch => Err(Failure::Usage(message)),
        Some(message) => {
            units::warn(&message);
            Ok(())
        }
        None => Ok(()),
    }
}

fn message(budget: u64, available: Available, pretouch: bool) -> Option<String> {
    if budget <= available.bytes {
        return None;
    }
    let (budget, has) = (units::bytes(budget), units::bytes(available.bytes));
    let who = if available.by_cgroup { "this process may have" } else { "this machine has" };
    let by = if available.by_cgroup { " (memory.max of its control group)" } else { "" };
    Some(if pretouch {
        format!("a budget of {budget} can't be touched: {who} {has}{by}")
    } else {
        format!("a budget of {budget} can't be filled: {who} {has}{by}")
    })
}

/// `None` if the system won't say.
fn available() -> Option<Available> {
    let machine = parse_mem_total(&std::fs::read_to_string("/proc/meminfo").ok()?)?;
    let own = std::fs::read_to_string("/proc/self/cgroup").ok();
    let limit = own.and_then(|own| cgroup_limit(&own, Path::new("/sys/fs/cgroup")));
    Some(match limit {
        Some(limit) if limit < machine => Available { bytes: limit, by_cgroup: true },
        _ => Available { bytes: machine, by_cgroup: false },
    })
}

fn parse_mem_total(meminfo: &str) -> Option<u64> {
    let line = meminfo.lines().find_map(|line| line.strip_prefix("MemTotal:"))?;
    line.trim().strip_suffix(" kB")?.trim().parse::<u64>().ok()?.checked_mul(1024)
}

/// The smallest limit of the process's control group (version 2) and those around it.
fn cgroup_limit(own: &str, root: &Path) -> Option<u64> {
    let path = own.lines().find_map(|line| line.strip_prefix("0::/"))?;
    let directory = root.join(path);
    let limit = |directory: &Path| std::fs::read_to_string(directory.join("memory.max")).ok()?.trim().parse().ok();
    directory.ancestors().take_while(|directory| directory.starts_with(root)).filter_map(limit).min()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smaller_of_machine_and_control_groups_counts() {
        assert_eq!(parse_mem_total("MemTotal:       24641000 kB\nMemFree: 1 kB\n"), Some(24_641_000 << 10));
        assert_eq!(parse_mem_total("nothing"), None);
        let root = tempfile::tempdir().unwrap();
        std::fs::create_dir_all(root.path().join("a/b")).unwrap();
        std::fs::write(root.path().join("a/b/memory.max"), "max\n").unwrap();
        assert_eq!(cgroup_limit("0::/a/b\n", root.path()), None);
        std::fs::write(root.path().join("a/memory.max"), "4096\n").unwrap();
        assert_eq!(cgroup_limit("1:cpu:/x\n0::/a/b\n", root.path()), Some(4096));
        assert_eq!(cgroup_limit("1:memory:/a\n", root.path()), None);
    }

    #[test]
    fn the_message_names_both_sizes() {
        let available = Available { bytes: 47 << 29, by_cgroup: false };
        assert_eq!(
            message(100 << 40, available, true).unwrap(),
            "a budget of 100 TiB can't be touched: this machine has 23.5 GiB"
        );
        assert!(message(100 << 40, Available { by_cgroup: true, ..available }, false).unwrap().contains("memory.max"));
        assert_eq!(message(47 << 29, available, true), None);
    }
}
