//! The machine's NUMA nodes: which CPU belongs to which node, and how to request memory of a node.

#[cfg(not(pagefold_manycore))]
use std::fs;

/// The node of each CPU.
#[derive(Debug, Clone)]
pub(crate) struct Nodes {
    /// The node of each CPU.
    of_cpu: Vec<usize>,
    count: usize,
}

/// More nodes than any machine has.
const NODES_MAX: usize = 1024;

impl Nodes {
    /// Returns a node for each socket of virtual CPUs.
    #[cfg(pagefold_manycore)]
    pub(crate) fn detect() -> Self {
        let of_cpu = sync::cpu::sockets();
        let count = of_cpu.iter().max().map_or(1, |&last| last + 1);
        Self { of_cpu, count }
    }

    /// Reads the nodes that the system lists; a single node if it lists none.
    #[cfg(not(pagefold_manycore))]
    pub(crate) fn detect() -> Self {
        let cpus = sync::cpu::count();
        let mut of_cpu = vec![0; cpus];
        let mut count = 1;
        if cfg!(not(pagefold_loom)) {
            // Node numbers may have gaps, and a node may have no memory or no CPUs.
            let read = |file: &str| fs::read_to_string(format!("/sys/devices/system/node/{file}")).unwrap_or_default();
            for node in parse_list(&read("online")).filter(|&node| node < NODES_MAX) {
                for cpu in parse_list(&read(&format!("node{node}/cpulist"))).filter(|&cpu| cpu < cpus) {
                    of_cpu[cpu] = node;
                }
                count = node + 1;
            }
        }
        Self { of_cpu, count }
    }

    /// Distributes the CPUs over `count` imaginary nodes, for tests on a machine with one node.
    pub(crate) fn pretend(count: usize) -> Self {
        let count = count.clamp(1, NODES_MAX);
        Self { of_cpu: (0..sync::cpu::count()).map(|cpu| cpu % count).collect(), count }
    }

    pub(crate) fn count(&self) -> usize {
        self.count
    }

    /// Returns log2 of the length of a run, that is, of the number of consecutive extents that are
    /// placed on one node. Runs are long enough that each node gets at most 128 of them. This
    /// limits the number of mappings: the kernel keeps a separate mapping for each run whose
    /// neighbours are on other nodes, and a process may have at most 65,530 mappings.
    pub(crate) fn run_shift(&self, extents: usize) -> u32 {
        const RUNS: usize = 64;
        (extents / (RUNS * self.count)).max(1).ilog2()
    }

    /// Returns the node of the CPU that this thread runs on.
    #[inline]
    pub(crate) fn here(&self) -> usize {
        if self.count == 1 { 0 } else { self.of_cpu.get(sync::cpu::current()).copied().unwrap_or(0) }
    }
}

/// Parses the kernel's notation for lists of numbers: `0-3,8`.
#[cfg(any(test, not(pagefold_manycore)))]
fn parse_list(list: &str) -> impl Iterator<Item = usize> {
    list.trim()
        .split(',')
        .filter_map(|part| {
            let (first, last) = part.split_once('-').unwrap_or((part, part));
            Some(first.parse::<usize>().ok()?..=last.parse::<usize>().ok()?)
        })
        .flatten()
}

/// Makes the kernel prefer memory of `node` for a part of one of our own mappings.
#[cfg(not(pagefold_loom))]
pub(crate) fn prefer(start: *mut core::ffi::c_void, bytes: usize, node: usize) {
    /// `MPOL_PREFERRED`: this node while it has memory, any other afterwards.
    const PREFERRED: i32 = 1;
    let Some(mask) = u32::try_from(node).ok().and_then(|node| 1_u64.checked_shl(node)) else { return };
    // SAFETY: the mask outlives the call. The policy of our own mapping decides which node its
    // memory comes from, and doesn't affect its contents. If the kernel refuses the call (the
    // machine has one node, or a seccomp filter forbids it), the placement stays as it was.
    unsafe {
        libc::syscall(libc::SYS_mbind, start, bytes, PREFERRED, &raw const mask, 64_u64, 0_u32);
    }
}

#[cfg(test)]
mod tests {
    #[test]
    fn nodes_take_turns_in_runs_that_are_few() {
        let two = super::Nodes::pretend(2);
        assert_eq!(two.run_shift(32), 0);
        for extents in [1_usize, 127, 1 << 16, 3 << 20] {
            assert!(extents >> two.run_shift(extents) <= 2 * 128 * 2, "{extents} extents");
        }
    }

    #[test]
    fn lists_of_cpus() {
        let parse = |list| super::parse_list(list).collect::<Vec<_>>();
        assert_eq!(parse("0-3,8\n"), [0, 1, 2, 3, 8]);
        assert_eq!(parse("5"), [5]);
        assert_eq!(parse(""), [0_usize; 0]);
    }
}
