//! All clusters of an area, and the lists they are on.

use std::ops::Range;

use sync::memory::boxed;

use crate::cluster::{Cluster, List, LockedCluster};
use crate::cluster_list::ClusterList;
use crate::slot_bits::SLOTS;
use crate::slot_table::SlotTable;
use crate::slot_word::SlotBatch;

#[derive(Debug)]
pub(crate) struct Clusters {
    all: Box<[Cluster]>,
    empty: ClusterList,
    partial: ClusterList,
}

/// How many clusters are sampled to estimate how full an area is.
const SAMPLES: usize = 4;

/// A cluster that a CPU has just claimed.
pub(crate) struct Claimed<'a> {
    /// The number of the range in which it was found.
    pub(crate) stretch: usize,
    pub(crate) cluster: usize,
    pub(crate) locked: LockedCluster<'a>,
}

/// How thoroughly to search for a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Empty clusters first. Clusters whose lock another thread holds are skipped.
    Usual,
    /// Partly used clusters first. The search waits for locks, so it skips no cluster on a list. A
    /// cluster may move from the *partial* list to the *empty* list during the search. It is added
    /// to the *empty* list before it leaves the *partial* list, so a search in this order can't
    /// miss it.
    Last,
}

impl Clusters {
    /// Creates clusters for `slots` slots, of which the first is never allocated. `None` if there
    /// is no memory for the clusters or the lists.
    pub(crate) fn new(slots: usize) -> Option<Self> {
        let count = slots.div_ceil(SLOTS);
        let absent = |number: usize| number == 0 || number >= slots;
        let clusters = Self {
            all: boxed((0..count).map(|cluster| Cluster::new(|slot| absent(cluster * SLOTS + slot))))?,
            empty: ClusterList::new(count)?,
            partial: ClusterList::new(count)?,
        };
        let usable = clusters.all.iter().enumerate().filter(|(_, cluster)| cluster.slots() > 0);
        usable.for_each(|(at, _)| clusters.empty.add(at));
        Some(clusters)
    }

    pub(crate) fn len(&self) -> usize {
        self.all.len()
    }

    pub(crate) fn get(&self, cluster: usize) -> Option<&Cluster> {
        self.all.get(cluster)
    }

    /// Returns the number of free slots, exact while no thread changes the clusters.
    pub(crate) fn free(&self) -> u64 {
        self.all.iter().map(|cluster| u64::from(cluster.free())).sum()
    }

    /// Returns whether at least half of the clusters are empty.
    pub(crate) fn are_half_empty(&self) -> bool {
        2 * self.empty.len() >= self.all.len()
    }

    /// Returns whether at least half of the slots in a sample are free. The sample is `SAMPLES`
    /// evenly spaced clusters, starting at `first`. One cluster alone isn't representative, because
    /// a CPU fills the cluster that it allocates from.
    pub(crate) fn are_half_free(&self, first: usize) -> bool {
        let step = self.all.len().div_ceil(SAMPLES);
        let sample = (0..SAMPLES).filter_map(|number| self.all.get((first + number * step) % self.all.len()));
        let (free, slots) =
            sample.fold((0, 0), |(free, slots), cluster| (free + cluster.free(), slots + cluster.slots()));
        2 * free >= slots
    }

    /// Takes slots of a cluster, and updates its list.
    pub(crate) fn take(
        &self,
        locked: &LockedCluster<'_>,
        cluster: usize,
        table: &SlotTable,
        want: usize,
        into: &mut SlotBatch,
    ) -> usize {
        let taken = locked.take(want, |slot| into.push(table.take(cluster * SLOTS + slot)));
        self.settle(locked, cluster);
        taken
    }

    /// Puts freed slots back into their cluster. All must be in one cluster.
    pub(crate) fn put(&self, table: &SlotTable, numbers: &[u32]) {
        let Some(&first) = numbers.first() else { return };
        let cluster = first as usize / SLOTS;
        let locked = self.all[cluster].lock();
        for &number in numbers {
            table.put(number as usize);
            locked.put(number as usize % SLOTS);
        }
        self.settle(&locked, cluster);
    }

    /// Claims the first cluster in `ranges` that is on a list, and marks the cluster *held*. Calls
    /// `hold`, which puts the cluster into the CPU's hand, before the cluster leaves its list. So a
    /// concurrent search finds the cluster on the list or in the hand.
    pub(crate) fn claim(
        &self,
        ranges: impl Iterator<Item = (usize, Range<usize>)> + Clone,
        effort: Effort,
        hold: impl Fn(usize),
    ) -> Option<Claimed<'_>> {
        let lists = match effort {
            Effort::Usual => [(&self.empty, List::Empty), (&self.partial, List::Partial)],
            Effort::Last => [(&self.partial, List::Partial), (&self.empty, List::Empty)],
        };
        for (list, kind) in lists.into_iter().filter(|(list, _)| !list.is_empty()) {
            for (stretch, range) in ranges.clone() {
                let mut from = range.start;
                while let Some(cluster) = list.first_in(from..range.end) {
                    from = cluster + 1;
                    let locked = match effort {
                        Effort::Usual => self.all[cluster].try_lock(),
                        Effort::Last => Some(self.all[cluster].lock()),
                    };
                    if let Some(locked) = locked.filter(|locked| locked.list() == kind) {
                        hold(cluster);
                        locked.set_list(List::Held);
                        list.remove(cluster);
                        return Some(Claimed { stretch, cluster, locked });
                    }
                }
            }
        }
        None
    }

    /// Moves a cluster to the list where it belongs. A *held* cluster stays *held* while it has
    /// free slots.
    fn settle(&self, locked: &LockedCluster<'_>, cluster: usize) {
        let (old, new) = (locked.list(), locked.list_by_use());
        if old == new || (old == List::Held && new != List::Full) {
            return;
        }
        locked.set_list(new);
        if let Some(list) = self.list(new) {
            list.add(cluster);
        }
        if let Some(list) = self.list(old) {
            list.remove(cluster);
        }
    }

    fn list(&self, kind: List) -> Option<&ClusterList> {
        match kind {
            List::Empty => Some(&self.empty),
            List::Partial => Some(&self.partial),
            List::Full | List::Held => None,
        }
    }

    /// Checks every cluster, while no other thread uses them: lists and counts agree (C1), and
    /// every *held* cluster is in a hand.
    #[cfg(test)]
    pub(crate) fn check(&self, is_in_hand: impl Fn(usize) -> bool) {
        for (at, cluster) in self.all.iter().enumerate() {
            let locked = cluster.lock();
            let list = locked.list();
            assert_eq!(locked.free() as usize, locked.count_free(), "cluster {at}");
            assert_eq!(self.empty.contains(at), list == List::Empty, "cluster {at}: {list:?}");
            assert_eq!(self.partial.contains(at), list == List::Partial, "cluster {at}: {list:?}");
            match list {
                List::Held => assert!(locked.free() > 0 && is_in_hand(at), "cluster {at} is lost"),
                list => assert_eq!(list, locked.list_by_use(), "cluster {at}"),
            }
        }
    }
}
