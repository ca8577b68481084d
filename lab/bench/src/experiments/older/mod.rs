//! Parts of the older designs: free pages, LRU lists, charges and locks. There are two kinds of
//! free pages and of LRU lists: those of Linux 4.16, and those that were proposed in their place.
//! All that CPUs share is made of `sync`'s atomics and locks, so that on virtual CPUs each access
//! has its cost.

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

/// The node of a CPU. CPUs are numbered like this: first one hardware thread of each core, socket
/// by socket; then the second hardware threads, in the same order.
pub(crate) fn node_of_cpu(cpu: usize) -> usize {
    let cpus = sync::cpu::count();
    let cores = if cpus > 2 { cpus / 2 } else { cpus };
    (cpu % cores * NODES / cores).min(NODES - 1)
}
