//! The machine's shape, as the kernel describes it in `/sys`.

use std::collections::BTreeSet;
use std::fs;

use anyhow::{Context, Result};
use manycore::Shape;
use rustix::thread::{CpuSet, sched_setaffinity};

const CPUS: &str = "/sys/devices/system/cpu";

/// The sizes of CPU 0's caches in bytes. If the kernel doesn't report a size, a usual one.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Caches {
    pub(crate) first: usize,
    pub(crate) core: usize,
    pub(crate) socket: usize,
}

fn number(path: &str) -> Option<usize> {
    fs::read_to_string(format!("{CPUS}/{path}")).ok()?.trim().parse().ok()
}

/// A list as the kernel writes it: `0-3,8`.
fn list(text: &str) -> Vec<usize> {
    let ends = |part: &str| -> Option<std::ops::RangeInclusive<usize>> {
        let (low, high) = part.split_once('-').unwrap_or((part, part));
        Some(low.parse().ok()?..=high.parse().ok()?)
    };
    text.trim().split(',').filter_map(ends).flatten().collect()
}

fn online() -> Vec<usize> {
    let cpus = list(&fs::read_to_string(format!("{CPUS}/online")).unwrap_or_default());
    if cpus.is_empty() { vec![0] } else { cpus }
}

fn socket(cpu: usize) -> usize {
    number(&format!("cpu{cpu}/topology/physical_package_id")).unwrap_or(0)
}

fn siblings(cpu: usize) -> Vec<usize> {
    let text = fs::read_to_string(format!("{CPUS}/cpu{cpu}/topology/thread_siblings_list")).unwrap_or_default();
    let siblings = list(&text);
    if siblings.is_empty() { vec![cpu] } else { siblings }
}

/// The shape of this machine, from the CPUs that are online.
pub(crate) fn here() -> Result<Shape> {
    let cpus = online();
    let sockets: BTreeSet<_> = cpus.iter().map(|&cpu| socket(cpu)).collect();
    let cores: BTreeSet<_> = cpus.iter().map(|&cpu| siblings(cpu)).collect();
    let threads = cores.iter().map(Vec::len).max().unwrap_or(1);
    let shape = Shape::new(sockets.len(), cores.len().div_ceil(sockets.len()), threads);
    shape.context("this machine has a shape that the model doesn't have")
}

/// The CPU that probes of one thread run on.
pub(crate) fn first() -> usize {
    online()[0]
}

/// The other hardware thread of a CPU's core.
pub(crate) fn sibling(cpu: usize) -> Option<usize> {
    siblings(cpu).into_iter().find(|&other| other != cpu)
}

/// Another core in the same socket.
pub(crate) fn other_core(cpu: usize) -> Option<usize> {
    let siblings = siblings(cpu);
    online().into_iter().find(|&other| !siblings.contains(&other) && socket(other) == socket(cpu))
}

/// A core of another socket.
pub(crate) fn other_socket(cpu: usize) -> Option<usize> {
    online().into_iter().find(|&other| socket(other) != socket(cpu))
}

/// One CPU of each core of the first socket.
pub(crate) fn of_one_socket(shape: &Shape) -> Vec<usize> {
    let first = first();
    let cpus = online().into_iter().filter(|&cpu| socket(cpu) == socket(first) && siblings(cpu)[0] == cpu);
    cpus.take(shape.cores_per_socket.max(1)).collect()
}

/// Two cores of one socket: those between which a transfer is measured.
pub(crate) fn two_cores() -> Option<[usize; 2]> {
    Some([first(), other_core(first())?])
}

/// Keeps this thread, and those that it starts, on some CPUs.
pub(crate) fn stay_on(cpus: &[usize]) -> Result<()> {
    let mut set = CpuSet::new();
    cpus.iter().for_each(|&cpu| set.set(cpu));
    sched_setaffinity(None, &set).context("cannot go to other CPUs")
}

/// Lets this thread run on all CPUs again.
pub(crate) fn unpin() -> Result<()> {
    stay_on(&online())
}

/// The caches of the first CPU.
pub(crate) fn caches() -> Caches {
    let mut caches = Caches { first: 32 << 10, core: 1 << 20, socket: 32 << 20 };
    for index in 0..8 {
        let place = format!("{CPUS}/cpu{}/cache/index{index}", first());
        let read = |name: &str| fs::read_to_string(format!("{place}/{name}")).unwrap_or_default().trim().to_owned();
        let Some(bytes) = read("size").strip_suffix('K').and_then(|kib| kib.parse::<usize>().ok()) else { continue };
        match (read("level").as_str(), read("type").as_str()) {
            ("1", "Data") => caches.first = bytes << 10,
            ("2", "Unified") => caches.core = bytes << 10,
            ("3", "Unified") => caches.socket = bytes << 10,
            _ => {}
        }
    }
    caches
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_are_read_as_the_kernel_writes_them() {
        assert_eq!(list("0-2,8,10-11\n"), [0, 1, 2, 8, 10, 11]);
        assert_eq!(list("\n"), [] as [usize; 0]);
    }

    #[test]
    fn this_machine_has_a_shape() {
        let Ok(shape) = here() else { return println!("not here: a shape that the model has") };
        assert!(shape.cpus() >= online().len(), "{shape:?}");
        assert!(of_one_socket(&shape).contains(&first()));
        assert!(caches().first < caches().core);
    }
}
