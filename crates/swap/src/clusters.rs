//! All clusters of an area, and the lists they are on.

use std::ops::Range;

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

/// Clusters that say how full an area is.
const SAMPLES: usize = 4;

/// A cluster that a CPU holds from now on.
pub(crate) struct Claimed<'a> {
    /// The number of the range that it was found in.
    pub(crate) stretch: usize,
    pub(crate) cluster: usize,
    pub(crate) locked: LockedCluster<'a>,
}

/// How hard to look for a cluster.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Effort {
    /// Empty clusters first. A cluster whose lock another thread has is left to that thread.
    Usual,
    /// All of them. Partly used ones first: a cluster goes from there to the empty ones, and is on
    /// both for a moment.
    Last,
}

impl Clusters {
    /// Clusters of `slots` slots, of which the first one isn't to be had; `None` if there is no
    /// memory for the lists.
    pub(crate) fn new(slots: usize) -> Option<Self> {
        let count = slots.div_ceil(SLOTS);
        let absent = |number: usize| number == 0 || number >= slots;
        let clusters = Self {
            all: (0..count).map(|cluster| Cluster::new(|slot| absent(cluster * SLOTS + slot))).collect(),
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

    /// Free slots, exact while no thread changes them.
    pub(crate) fn free(&self) -> u64 {
        self.all.iter().map(|cluster| u64::from(cluster.free())).sum()
    }

    /// Whether half of the clusters have no page.
    pub(crate) fn are_half_empty(&self) -> bool {
        2 * self.empty.len() >= self.all.len()
    }

    /// Whether at least half of the slots are free in total, over `SAMPLES` evenly spaced clusters
    /// starting at `first`. Several, because a CPU fills the cluster that it allocates from, so one
    /// cluster alone says little.
    pub(crate) fn are_half_free(&self, first: usize) -> bool {
        let step = self.all.len().div_ceil(SAMPLES);
        let sample = (0..SAMPLES).filter_map(|number| self.all.get((first + number * step) % self.all.len()));
        let (free, slots) =
            sample.fold((0, 0), |(free, slots), cluster| (free + cluster.free(), slots + cluster.slots()));
        2 * free >= slots
    }

    /// Takes slots of a cluster, and sees to its list.
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

    /// Puts freed slots, all of one cluster, back into it.
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

    /// The first cluster in one of `ranges` that is on a list, held from now on: `hold` is called
    /// before it leaves the list, so that it is found in one place or the other.
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

    /// Puts a cluster on the list where it belongs. One that is held stays so while it has free
    /// slots.
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

    /// Checks every cluster, while no other thread uses them: lists and numbers agree (C1), and so
    /// does `is_in_hand`.
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
