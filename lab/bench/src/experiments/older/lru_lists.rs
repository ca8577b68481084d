//! LRU lists of each node. Pages are added, removed and activated in batches.

use smp_list::{LocalList, SmpList, TwoModeLock};
use sync::atomic::Ordering::Relaxed;

use super::NODES;
use super::records::Pages;
use super::ring::Ring;
use super::spin_lock::SpinLock;

/// Pages that are put on the lists in one go: Linux's.
pub(crate) const BATCH: usize = 15;

/// How nodes keep their lists.
pub(crate) trait LruLists: Send + Sync {
    /// Empty.
    fn new() -> Self;
    /// Lists pages.
    fn add(&self, pages: &Pages, batch: &[u32]);
    /// Takes listed pages off.
    fn delete(&self, pages: &Pages, batch: &[u32]);
    /// Moves listed pages to the head of the active list, except those that are active already.
    fn activate(&self, pages: &Pages, batch: &[u32]);
    /// Whether a page was activated.
    fn is_active(&self, pages: &Pages, page: u32) -> bool {
        // Relaxed: a bit.
        pages.record(page).flags.load(Relaxed) & ACTIVE != 0
    }
}

/// The bit of a page's `flags` that says on which list it is.
pub(crate) const ACTIVE: u32 = 2;

/// As in Linux 4.16: one spinlock over all lists of a node.
#[derive(Default)]
pub(crate) struct UnderOneLock {
    /// The inactive and the active list.
    nodes: [(SpinLock, [Ring; 2]); NODES],
}

impl UnderOneLock {
    /// Locks a node again only where the node changes.
    fn each(&self, pages: &Pages, batch: &[u32], what: impl Fn(&[Ring; 2], u32)) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let (lock, rings) = &self.nodes[pages.node_of(run[0])];
            lock.with(|| {
                for &page in run {
                    what(rings, page);
                }
            });
        }
    }
}

/// What reclaim does with the lists of a node.
impl UnderOneLock {
    /// The pages of the active, or of the inactive list.
    pub(crate) fn len(&self, node: usize, active: bool) -> u32 {
        self.nodes[node].1[usize::from(active)].len()
    }

    /// Lists pages on the active, or on the inactive list.
    pub(crate) fn put(&self, pages: &Pages, batch: &[u32], active: bool) {
        self.each(pages, batch, |rings, page| rings[usize::from(active)].push(pages, page));
    }

    /// Takes up to so many pages off a list's end.
    pub(crate) fn take_last(&self, pages: &Pages, node: usize, active: bool, most: usize) -> Vec<u32> {
        let (lock, rings) = &self.nodes[node];
        let ring = &rings[usize::from(active)];
        let mut taken = Vec::with_capacity(most);
        lock.with(|| {
            while taken.len() < most
                && let Some(page) = ring.last()
            {
                ring.unlink(pages, page);
                taken.push(page);
            }
        });
        taken
    }
}

impl LruLists for UnderOneLock {
    fn new() -> Self {
        Self::default()
    }

    fn add(&self, pages: &Pages, batch: &[u32]) {
        self.each(pages, batch, |[inactive, _], page| {
            pages.record(page).listed.store(1, Relaxed);
            inactive.push(pages, page);
        });
    }

    fn delete(&self, pages: &Pages, batch: &[u32]) {
        self.each(pages, batch, |rings, page| {
            pages.record(page).listed.store(0, Relaxed);
            rings[usize::from(self.is_active(pages, page))].unlink(pages, page);
        });
    }

    fn activate(&self, pages: &Pages, batch: &[u32]) {
        self.each(pages, batch, |[inactive, active], page| {
            if !self.is_active(pages, page) {
                inactive.unlink(pages, page);
                pages.record(page).flags.fetch_or(ACTIVE, Relaxed);
                active.push(pages, page);
            }
        });
    }
}

/// As Daniel Jordan proposed in 2018: the lock has two modes. Tasks in the shared mode change the
/// lists side by side: they splice batches in and delete single pages.
pub(crate) struct SideBySide {
    nodes: [TwoModeLock<[SmpList; 2]>; NODES],
}

impl LruLists for SideBySide {
    fn new() -> Self {
        let list = |number: usize| SmpList::new(number as u32);
        Self { nodes: std::array::from_fn(|node| TwoModeLock::new([list(2 * node), list(2 * node + 1)])) }
    }

    fn add(&self, pages: &Pages, batch: &[u32]) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let mut local = LocalList::new();
            for &page in run {
                local.push_front(pages, page);
            }
            self.nodes[pages.node_of(run[0])].shared()[0].splice_head(pages, local);
            run.iter().for_each(|&page| pages.publish(page));
        }
    }

    fn delete(&self, pages: &Pages, batch: &[u32]) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let lists = self.nodes[pages.node_of(run[0])].shared();
            for &page in run.iter().filter(|&&page| pages.claim(page)) {
                lists[usize::from(self.is_active(pages, page))].del(pages, page);
            }
        }
    }

    fn activate(&self, pages: &Pages, batch: &[u32]) {
        for run in batch.chunk_by(|&a, &b| pages.node_of(a) == pages.node_of(b)) {
            let [inactive, active] = &*self.nodes[pages.node_of(run[0])].shared();
            let mut local = LocalList::new();
            let mut claimed = Vec::with_capacity(run.len());
            for &page in run.iter().filter(|&&page| !self.is_active(pages, page)) {
                // Two tasks may want the same page: the claim decides.
                if pages.claim(page) {
                    if self.is_active(pages, page) {
                        pages.publish(page);
                        continue;
                    }
                    inactive.del(pages, page);
                    pages.record(page).flags.fetch_or(ACTIVE, Relaxed);
                    local.push_front(pages, page);
                    claimed.push(page);
                }
            }
            active.splice_head(pages, local);
            claimed.into_iter().for_each(|page| pages.publish(page));
        }
    }
}
