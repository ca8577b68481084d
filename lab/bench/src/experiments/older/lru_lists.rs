//! LRU lists of each node: a batch of pages goes on, or comes off.

use smp_list::{LocalList, SmpList, TwoModeLock};
use sync::atomic::Ordering::Relaxed;

use super::NODES;
use super::records::Pages;
use super::ring::Ring;
use super::spin_lock::SpinLock;
use crate::scaling::stage::own_work;

/// Pages that are put on the lists in one go: Linux's.
pub(crate) const BATCH: usize = 15;

/// What is done for each page besides: sizes of the zone's, the node's and the group's lists, under
/// the lock or beside it. Chosen so that `lru` falls as the published baseline does; the other
/// experiments take it as it is.
pub(crate) const PAGE_NS: u64 = 50;

/// How nodes keep their lists.
pub(crate) trait LruLists: Send + Sync {
    /// Empty.
    fn new() -> Self;
    /// Lists pages.
    fn add(&self, pages: &Pages, batch: &[u32]);
    /// Takes listed pages off.
    fn delete(&self, pages: &Pages, batch: &[u32]);
    /// Moves listed pages to the head.
    fn touch(&self, pages: &Pages, batch: &[u32]);
}

/// As in Linux 4.16: one spinlock over all lists of a node.
#[derive(Default)]
pub(crate) struct UnderOneLock {
    nodes: [(SpinLock, Ring); NODES],
}

impl UnderOneLock {
    /// Locks a node again only where the node changes.
    fn each(&self, pages: &Pages, batch: &[u32], what: impl Fn(&Ring, u32)) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let (lock, ring) = &self.nodes[pages.node_of(run[0])];
            lock.with(|| {
                for &page in run {
                    own_work(PAGE_NS);
                    what(ring, page);
                }
            });
        }
    }
}

impl LruLists for UnderOneLock {
    fn new() -> Self {
        Self::default()
    }

    fn add(&self, pages: &Pages, batch: &[u32]) {
        self.each(pages, batch, |ring, page| {
            pages.record(page).listed.store(1, Relaxed);
            ring.push(pages, page);
        });
    }

    fn delete(&self, pages: &Pages, batch: &[u32]) {
        self.each(pages, batch, |ring, page| {
            pages.record(page).listed.store(0, Relaxed);
            ring.unlink(pages, page);
        });
    }

    fn touch(&self, pages: &Pages, batch: &[u32]) {
        self.each(pages, batch, |ring, page| {
            ring.unlink(pages, page);
            ring.push(pages, page);
        });
    }
}

/// As Daniel Jordan proposed in 2018: the lock has two modes, and lists are changed in shared mode,
/// by splices of batches and deletes of single pages.
pub(crate) struct SideBySide {
    nodes: [TwoModeLock<SmpList>; NODES],
}

impl LruLists for SideBySide {
    fn new() -> Self {
        Self { nodes: std::array::from_fn(|node| TwoModeLock::new(SmpList::new(node as u32))) }
    }

    fn add(&self, pages: &Pages, batch: &[u32]) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let mut local = LocalList::new();
            for &page in run {
                own_work(PAGE_NS);
                local.push_front(pages, page);
            }
            self.nodes[pages.node_of(run[0])].shared().splice_head(pages, local);
            run.iter().for_each(|&page| pages.publish(page));
        }
    }

    fn delete(&self, pages: &Pages, batch: &[u32]) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let list = self.nodes[pages.node_of(run[0])].shared();
            for &page in run.iter().filter(|&&page| pages.claim(page)) {
                own_work(PAGE_NS);
                list.del(pages, page);
            }
        }
    }

    fn touch(&self, pages: &Pages, batch: &[u32]) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let list = self.nodes[pages.node_of(run[0])].shared();
            let claimed: Vec<u32> = run.iter().copied().filter(|&page| pages.claim(page)).collect();
            let mut local = LocalList::new();
            for &page in &claimed {
                own_work(PAGE_NS);
                list.del(pages, page);
                local.push_front(pages, page);
            }
            list.splice_head(pages, local);
            claimed.into_iter().for_each(|page| pages.publish(page));
        }
    }
}
