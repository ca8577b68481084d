//! The set of the extents that have memory. Its size grows with the number of these extents, not
//! with the address space.

use std::collections::BTreeSet;

/// The NUMA node of each extent: runs of 2^`shift` extents go to the nodes round robin.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NodeRuns {
    pub(crate) extents: usize,
    pub(crate) nodes: usize,
    pub(crate) shift: u32,
}

impl NodeRuns {
    pub(crate) fn node_of(self, extent: usize) -> usize {
        (extent >> self.shift) % self.nodes
    }

    /// Returns the first extent of `node` at or after `from`.
    fn next_of(self, node: usize, from: usize) -> Option<usize> {
        let run = from >> self.shift;
        let turns = (node + self.nodes - run % self.nodes) % self.nodes;
        let extent = if turns == 0 { from } else { (run + turns) << self.shift };
        (extent < self.extents).then_some(extent)
    }
}

/// The extents with memory.
#[derive(Debug)]
pub(crate) struct Population {
    nodes: NodeRuns,
    with: BTreeSet<usize>,
    /// For each node, the first extent that never had memory, if there is one.
    fresh: Vec<Option<usize>>,
    /// For each node, the extents that had memory and gave it back.
    returned: Vec<BTreeSet<usize>>,
    /// The extent that was last considered for a drain. The next drain continues after this extent.
    hand: usize,
}

impl Population {
    pub(crate) fn new(nodes: NodeRuns) -> Self {
        let fresh = (0..nodes.nodes).map(|node| nodes.next_of(node, 0)).collect();
        let returned = vec![BTreeSet::new(); nodes.nodes];
        Self { nodes, with: BTreeSet::new(), fresh, returned, hand: 0 }
    }

    /// Chooses an extent without memory, of `node` if possible, and calls `charge(first_time)`,
    /// where `first_time` is true if the extent has never had memory. If `charge` returns true,
    /// records that the extent has memory now. Returns `None`, and records nothing, if `charge`
    /// returns false or if every extent has memory already.
    pub(crate) fn add(&mut self, node: usize, charge: impl FnOnce(bool) -> bool) -> Option<usize> {
        let count = self.nodes.nodes;
        let (node, extent, first_time) = (0..count).map(|step| (node + step) % count).find_map(|node| {
            let returned = self.returned[node].first().map(|&extent| (node, extent, false));
            returned.or_else(|| self.fresh[node].map(|extent| (node, extent, true)))
        })?;
        if !charge(first_time) {
            return None;
        }
        if first_time {
            self.fresh[node] = self.nodes.next_of(node, extent + 1);
        } else {
            self.returned[node].remove(&extent);
        }
        self.with.insert(extent);
        Some(extent)
    }

    /// Records that an extent has no memory any more.
    pub(crate) fn remove(&mut self, extent: usize) {
        self.with.remove(&extent);
        self.returned[self.nodes.node_of(extent)].insert(extent);
    }

    /// Returns the extents with memory.
    pub(crate) fn all(&self) -> impl Iterator<Item = usize> + '_ {
        self.with.iter().copied()
    }

    /// Returns the next extent with memory, round robin.
    pub(crate) fn next(&mut self) -> Option<usize> {
        let after = self.with.range(self.hand + 1..).next();
        self.hand = *after.or_else(|| self.with.first())?;
        Some(self.hand)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_extent_is_used_once_its_own_nodes_first() {
        let nodes = NodeRuns { extents: 11, nodes: 3, shift: 1 };
        let mut population = Population::new(nodes);
        let mine: Vec<_> = (0..4).map_while(|_| population.add(1, |first_time| first_time)).collect();
        assert_eq!(mine, [2, 3, 8, 9], "runs of two, every third");
        let mut rest: Vec<_> = std::iter::from_fn(|| population.add(1, |_| true)).collect();
        rest.sort_unstable();
        assert_eq!(rest, [0, 1, 4, 5, 6, 7, 10]);
        population.remove(8);
        assert_eq!(population.add(0, |first_time| !first_time), Some(8), "another node's, and not its first time");
        population.remove(3);
        assert_eq!(population.add(1, |_| false), None);
        assert_eq!((population.next(), population.next(), population.next()), (Some(1), Some(2), Some(4)));
    }
}
