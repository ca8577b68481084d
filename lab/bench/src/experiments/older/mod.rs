//! What the older designs of free frames and LRU lists are made of, scheme by scheme: Linux 4.16's,
//! and what was proposed in its place. All that CPUs share is `sync`'s, so that nothing of it is
//! free on virtual ones.

pub(crate) mod charges;
pub(crate) mod free_pages;
pub(crate) mod lru_lists;
pub(crate) mod queued_spinlock;
pub(crate) mod records;
pub(crate) mod ring;
pub(crate) mod rw_sem;
pub(crate) mod seat;
pub(crate) mod spin_lock;

/// NUMA nodes of the machines in question.
pub(crate) const NODES: usize = 2;

/// The node of a CPU: first one hardware thread of each core, socket by socket, then the second
/// threads.
pub(crate) fn node_of_cpu(cpu: usize) -> usize {
    let cpus = sync::cpu::count();
    let cores = if cpus > 2 { cpus / 2 } else { cpus };
    (cpu % cores * NODES / cores).min(NODES - 1)
}
