//! A list of clusters as a bitmap. Adding or removing a cluster changes one bit, in a word that few
//! CPUs share, and the length of the list, which all CPUs share.
//!
//! With a linked list, all CPUs would search from its head. In a bitmap a CPU searches near its own
//! clusters. For the bits, it contends only with CPUs whose clusters are nearby. A CPU reads the
//! bits without a lock, but a cluster's bit changes only under the cluster's lock (C1). So a CPU
//! that finds a bit set locks the cluster, and checks again that the cluster is on the list.

use std::ops::Range;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::zeroed::zeroed;

#[derive(Debug)]
pub(crate) struct ClusterList {
    words: Box<[AtomicU64]>,
    /// The number of clusters in the list, which lets a search skip an empty list. Incremented
    /// before a bit is set, and decremented after a bit is cleared.
    len: AtomicU32,
}

impl ClusterList {
    /// Creates an empty list for `clusters` clusters; `None` if there is no memory for it.
    pub(crate) fn new(clusters: usize) -> Option<Self> {
        Some(Self { words: zeroed(clusters.div_ceil(64))?, len: AtomicU32::new(0) })
    }

    /// Adds a cluster that isn't in the list. The caller holds the cluster's lock.
    pub(crate) fn add(&self, cluster: usize) {
        // Counted first, so that `len` never drops below zero. Relaxed: the thread that frees slots
        // increments `changes` after this (Release), and a search that must not miss the cluster
        // has read the incremented `changes` (Acquire, F2).
        self.len.fetch_add(1, Ordering::Relaxed);
        self.words[cluster / 64].fetch_or(1 << (cluster % 64), Ordering::Relaxed);
    }

    /// Removes a cluster that is in the list. The caller holds the cluster's lock.
    pub(crate) fn remove(&self, cluster: usize) {
        // Release pairs with the Acquire in `first_in` and `is_empty`: a search that sees the bit
        // cleared also sees where the cluster went.
        self.words[cluster / 64].fetch_and(!(1 << (cluster % 64)), Ordering::Release);
        self.len.fetch_sub(1, Ordering::Release);
    }

    /// Returns the approximate number of clusters in the list.
    pub(crate) fn len(&self) -> usize {
        self.len.load(Ordering::Relaxed) as usize
    }

    pub(crate) fn is_empty(&self) -> bool {
        // Acquire: as in `first_in`.
        self.len.load(Ordering::Acquire) == 0
    }

    #[cfg(test)]
    pub(crate) fn contains(&self, cluster: usize) -> bool {
        self.words[cluster / 64].load(Ordering::Relaxed) >> (cluster % 64) & 1 == 1
    }

    /// Returns the first cluster in `range` whose bit was set when it was read.
    pub(crate) fn first_in(&self, range: Range<usize>) -> Option<usize> {
        let mut at = range.start;
        while at < range.end {
            // Acquire pairs with the Release in `remove`. The caller checks the result again under
            // the cluster's lock.
            let rest = self.words[at / 64].load(Ordering::Acquire) >> (at % 64);
            if rest != 0 {
                return Some(at + rest.trailing_zeros() as usize).filter(|&found| found < range.end);
            }
            at = (at / 64 + 1) * 64;
        }
        None
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn what_is_in_it_is_found_in_order() {
        let list = ClusterList::new(300).unwrap();
        assert!(list.is_empty() && list.first_in(0..300).is_none());
        [3, 63, 64, 200, 299].into_iter().for_each(|cluster| list.add(cluster));
        let mut found = Vec::new();
        let mut from = 0;
        while let Some(cluster) = list.first_in(from..300) {
            found.push(cluster);
            from = cluster + 1;
        }
        assert_eq!(found, [3, 63, 64, 200, 299]);
        assert_eq!((list.first_in(65..200), list.first_in(65..201)), (None, Some(200)));
        found.into_iter().for_each(|cluster| list.remove(cluster));
        assert!(list.is_empty());
    }
}
