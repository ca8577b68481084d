//! Free pages: a lock for each node, and a stock with each CPU.

use sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::records::Pages;
use super::ring::Ring;
use super::spin_lock::SpinLock;
use super::{NODES, node_of_cpu};
use crate::scaling::stage::own_work;

/// Pages that move between a node and a CPU in one go: Linux's.
pub(crate) const BATCH: usize = 31;
/// Pages that a CPU has at most. Linux has six batches for regions of 32,768 pages; this is for
/// regions of 256.
const HIGH: usize = 2 * BATCH;

/// What is done for each page under the lock besides: checks, counters, the search for a buddy. As
/// easing free pages made one task's fault 240 ns shorter, it is at most half of that each way,
/// less the lines that are touched here.
const PAGE_NS: u64 = 60;

/// How nodes keep their pages.
pub(crate) trait FreePages: Send + Sync {
    /// With all pages free.
    fn new(pages: &Pages) -> Self;
    /// Takes up to a batch from a node.
    fn take(&self, pages: &Pages, node: usize, into: &mut Vec<u32>);
    /// Gives a batch back to its node.
    fn put(&self, pages: &Pages, node: usize, batch: &[u32]);
}

/// What a CPU has, the page freed last on top: its task's alone, as a kernel without interrupts has
/// it.
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

/// As in Linux 4.16: under the node's lock each page is taken off, or put on, and its buddy looked
/// at.
#[derive(Default)]
pub(crate) struct PageByPage {
    nodes: [(SpinLock, Ring); NODES],
}

impl FreePages for PageByPage {
    fn new(pages: &Pages) -> Self {
        let free = Self::default();
        for (node, (_, ring)) in free.nodes.iter().enumerate() {
            pages.of_node(node).for_each(|page| ring.push(pages, page));
        }
        free
    }

    fn take(&self, pages: &Pages, node: usize, into: &mut Vec<u32>) {
        let (lock, ring) = &self.nodes[node];
        lock.with(|| {
            while into.len() < BATCH
                && let Some(page) = ring.first()
            {
                own_work(PAGE_NS);
                ring.unlink(pages, page);
                pages.record(page).flags.store(0, Relaxed);
                into.push(page);
            }
        });
    }

    fn put(&self, pages: &Pages, node: usize, batch: &[u32]) {
        let (lock, ring) = &self.nodes[node];
        lock.with(|| {
            for &page in batch {
                own_work(PAGE_NS);
                // Whether they can be merged. (They aren't here, which would cost both designs
                // more.)
                let _ = pages.record(page ^ 1).flags.load(Relaxed);
                pages.record(page).flags.store(1, Relaxed);
                ring.push(pages, page);
            }
        });
    }
}

/// As Aaron Lu proposed in 2018: pages aren't merged, and batches go whole, by their first page.
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
