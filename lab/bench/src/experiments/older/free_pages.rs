//! Free pages: a lock for each node, and a stock with each CPU.

use sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::records::Pages;
use super::ring::Ring;
use super::spin_lock::SpinLock;
use super::{NODES, node_of_cpu};

/// Pages that move between a node and a CPU in one go: Linux's.
pub(crate) const BATCH: usize = 31;
/// Pages that a CPU has at most: Linux's.
pub(crate) const HIGH: usize = 6 * BATCH;

/// How nodes keep their pages.
pub(crate) trait FreePages: Send + Sync {
    /// With all pages free.
    fn new(pages: &Pages) -> Self;
    /// Takes up to a batch from a node.
    fn take(&self, pages: &Pages, node: usize, into: &mut Vec<u32>);
    /// Gives a batch back to its node.
    fn put(&self, pages: &Pages, node: usize, batch: &[u32]);
}

/// A CPU's stock of pages, with the page freed last on top. Only the CPU's task uses it, like a
/// kernel that has disabled interrupts.
#[derive(Default)]
pub(crate) struct CpuStock(Vec<u32>);

impl CpuStock {
    /// A free page, of this CPU's node as long as that has any.
    pub(crate) fn take(&mut self, free: &impl FreePages, pages: &Pages) -> Option<u32> {
        let here = node_of_cpu(sync::cpu::current());
        for node in [here, 1 - here] {
            if self.0.is_empty() {
                free.take(pages, node, &mut self.0);
            }
        }
        self.0.pop()
    }

    /// Frees a page.
    pub(crate) fn put(&mut self, free: &impl FreePages, pages: &Pages, page: u32) {
        let (here, node) = (node_of_cpu(sync::cpu::current()), pages.node_of(page));
        if node != here {
            return free.put(pages, node, &[page]);
        }
        self.0.push(page);
        if self.0.len() > HIGH {
            // Those that have been here longest.
            free.put(pages, node, &self.0[..BATCH]);
            self.0.drain(..BATCH);
        }
    }
}

/// Orders of blocks: a block of order n has 2^n pages.
const ORDERS: usize = 11;

/// A buddy allocator, as in Linux 4.16. Taking a page splits a block, and freeing a page merges it
/// with its free neighbours; both under the node's lock.
///
/// The `flags` of the first page of a free block are the order of the block, plus one. Those of
/// other pages are 0.
#[derive(Default)]
pub(crate) struct Buddies {
    nodes: [(SpinLock, [Ring; ORDERS]); NODES],
}

impl Buddies {
    fn add(rings: &[Ring; ORDERS], pages: &Pages, page: u32, order: usize) {
        pages.record(page).flags.store(order as u32 + 1, Relaxed);
        rings[order].push(pages, page);
    }

    fn remove(rings: &[Ring; ORDERS], pages: &Pages, page: u32, order: usize) {
        rings[order].unlink(pages, page);
        pages.record(page).flags.store(0, Relaxed);
    }

    /// Takes a page off the smallest block that there is.
    fn split(rings: &[Ring; ORDERS], pages: &Pages) -> Option<u32> {
        let (mut order, page) = rings.iter().enumerate().find_map(|(order, ring)| Some((order, ring.first()?)))?;
        Self::remove(rings, pages, page, order);
        while order > 0 {
            order -= 1;
            Self::add(rings, pages, page + (1 << order), order);
        }
        Some(page)
    }

    /// Puts a page back, in as large a block as it makes.
    fn merge(rings: &[Ring; ORDERS], pages: &Pages, page: u32) {
        let (mut page, mut order) = (page, 0);
        while order + 1 < ORDERS {
            let buddy = page ^ 1 << order;
            if pages.record(buddy).flags.load(Relaxed) != order as u32 + 1 {
                break;
            }
            Self::remove(rings, pages, buddy, order);
            page &= !(1 << order);
            order += 1;
        }
        Self::add(rings, pages, page, order);
    }
}

impl FreePages for Buddies {
    fn new(pages: &Pages) -> Self {
        let free = Self::default();
        for (node, (_, rings)) in free.nodes.iter().enumerate() {
            let largest = pages.of_node(node).step_by(1 << (ORDERS - 1));
            largest.for_each(|page| Self::add(rings, pages, page, ORDERS - 1));
        }
        free
    }

    fn take(&self, pages: &Pages, node: usize, into: &mut Vec<u32>) {
        let (lock, rings) = &self.nodes[node];
        lock.with(|| {
            while into.len() < BATCH
                && let Some(page) = Self::split(rings, pages)
            {
                into.push(page);
            }
        });
    }

    fn put(&self, pages: &Pages, node: usize, batch: &[u32]) {
        let (lock, rings) = &self.nodes[node];
        lock.with(|| batch.iter().for_each(|&page| Self::merge(rings, pages, page)));
    }
}

/// As Aaron Lu proposed in 2018: pages aren't merged, and a batch is moved as a whole, by linking
/// its first page.
pub(crate) struct Batches {
    nodes: [(SpinLock, Top); NODES],
}

/// The first page of the batch on top, plus one.
#[derive(Default)]
#[repr(align(64))]
struct Top(AtomicU32);

impl FreePages for Batches {
    fn new(pages: &Pages) -> Self {
        let free = Self { nodes: Default::default() };
        for node in 0..NODES {
            let all: Vec<u32> = pages.of_node(node).collect();
            all.chunks(BATCH).for_each(|batch| free.put(pages, node, batch));
        }
        free
    }

    fn take(&self, pages: &Pages, node: usize, into: &mut Vec<u32>) {
        let (lock, top) = &self.nodes[node];
        let first = lock.with(|| {
            let first = top.0.load(Relaxed).checked_sub(1)?;
            top.0.store(pages.record(first).below.load(Relaxed), Relaxed);
            Some(first)
        });
        let mut next = first;
        while let Some(page) = next {
            into.push(page);
            next = pages.record(page).next.load(Relaxed).checked_sub(1);
        }
    }

    fn put(&self, pages: &Pages, node: usize, batch: &[u32]) {
        for (at, &page) in batch.iter().enumerate() {
            let next = batch.get(at + 1).map_or(0, |next| next + 1);
            pages.record(page).next.store(next, Relaxed);
        }
        let (lock, top) = &self.nodes[node];
        lock.with(|| {
            pages.record(batch[0]).below.store(top.0.load(Relaxed), Relaxed);
            top.0.store(batch[0] + 1, Relaxed);
        });
    }
}
