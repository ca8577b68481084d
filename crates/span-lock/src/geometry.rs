//! Which node a range belongs to.
//!
//! The numbers that can be locked are divided into *granules*: small ones at level 0, and larger
//! ones at level 1. Each of these two levels has a table of nodes, and a hash maps each granule to
//! a node. A range belongs to the lowest level at which it touches at most two granules. If it
//! touches two, it is cut at the boundary between them, and each piece is claimed in its granule's
//! node. A range that is too large for both levels belongs to the root, a single node.

use std::ops::RangeInclusive;

use sync::CachePadded;

use crate::claim::Claim;
use crate::node::Node;
use crate::range::LockRange;
use crate::word::Packed;

/// Levels, by the size of the ranges that belong to them.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Level {
    Low,
    Middle,
    /// One node for all larger ranges.
    Root,
}

impl Level {
    /// Returns the levels below, in the order in which step 3 of `levels` waits for them.
    pub(crate) fn below(self) -> &'static [Self] {
        match self {
            Self::Low => &[],
            Self::Middle => &[Self::Low],
            Self::Root => &[Self::Middle, Self::Low],
        }
    }
}

/// The log2 of the granule sizes: a level 0 granule has 2^`FAN_BITS` units, and a level 1 granule
/// has 2^`FAN_BITS` level 0 granules. Models use a small value.
const FAN_BITS: u32 = if cfg!(pagefold_loom) { 2 } else { 9 };

/// Nodes of level 0 per CPU: enough that two CPUs seldom use the same node by chance.
const NODES_PER_CPU: usize = if cfg!(pagefold_loom) { 1 } else { 32 };
const NODES_MAX: usize = 1 << 14;

/// See [`Tables::uses_max`].
const USES_PER_NODE: u32 = 8;

/// The log2 of the largest unit: granules of level 1 then have 2^58 numbers, which fits into 64
/// bits.
pub(crate) const UNIT_BITS_MAX: u32 = 40;

/// The nodes of the levels below the root.
#[derive(Debug)]
pub(crate) struct Tables {
    levels: [Box<[CachePadded<Node>]>; 2],
    uses_max: u32,
}

/// The part of a claim that is made in one node.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece<'a> {
    pub(crate) node: &'a Node,
    pub(crate) claim: Claim,
    pub(crate) packed: Packed,
}

/// Returns the log2 of the size of a level's granules.
#[inline]
const fn granule_bits(level: Level, unit: u32) -> u32 {
    unit + FAN_BITS * (level as u32 + 1)
}

/// Node words store ranges as multiples of a unit. Returns the log2 of this level's unit. At level
/// 0 and in the root, the unit is the lock's; at level 1, it is the size of a level 0 granule.
#[inline]
const fn word_unit(level: Level, unit: u32) -> u32 {
    if matches!(level, Level::Middle) { granule_bits(Level::Low, unit) } else { unit }
}

fn granules(range: LockRange, bits: u32) -> RangeInclusive<u64> {
    range.start() >> bits..=(range.end() - 1) >> bits
}

/// Returns the lowest level at which `range` touches at most two granules.
#[inline]
pub(crate) fn level_of(range: LockRange, unit: u32) -> Level {
    let touches_two = |level: &Level| {
        let granules = granules(range, granule_bits(*level, unit));
        granules.end() - granules.start() <= 1
    };
    [Level::Low, Level::Middle].into_iter().find(touches_two).unwrap_or(Level::Root)
}

impl Tables {
    /// Creates tables for the machine's CPUs, for a lock with units of 2^`unit`.
    pub(crate) fn new(unit: u32) -> Self {
        let nodes = (NODES_PER_CPU * sync::cpu::count()).min(NODES_MAX);
        let table =
            |level, nodes: usize| (0..nodes).map(|_| CachePadded::new(Node::new(word_unit(level, unit)))).collect();
        Self {
            levels: [table(Level::Low, nodes), table(Level::Middle, (nodes / 8).max(1))],
            uses_max: USES_PER_NODE * nodes as u32,
        }
    }

    /// Returns the bytes that the tables take.
    pub(crate) fn bytes(&self) -> usize {
        self.levels.iter().map(|table| size_of_val(&**table)).sum()
    }

    /// Returns the node of a granule.
    #[inline]
    pub(crate) fn node(&self, level: Level, granule: u64) -> &Node {
        let table = &self.levels[level as usize];
        // Fibonacci hashing (Knuth, "The art of computer programming", 6.4) distributes consecutive
        // granules evenly.
        let hash = granule.wrapping_mul(0x9e37_79b9_7f4a_7c15);
        &table[((u128::from(hash) * table.len() as u128) >> 64) as usize]
    }

    /// Returns the node of the range's granule, if the range touches only one granule.
    #[inline]
    pub(crate) fn only_node(&self, level: Level, range: LockRange, unit: u32) -> Option<&Node> {
        let bits = granule_bits(level, unit);
        let granule = range.start() >> bits;
        (granule == (range.end() - 1) >> bits).then(|| self.node(level, granule))
    }

    /// Returns the node of the granule in which the range begins.
    pub(crate) fn first_node(&self, level: Level, range: LockRange, unit: u32) -> &Node {
        self.node(level, range.start() >> granule_bits(level, unit))
    }

    /// Returns the number of claims in one node after which the lock checks whether it can become
    /// compact. The check looks at every node. The number is so large that the check costs little
    /// compared with that many claims.
    #[inline]
    pub(crate) fn uses_max(&self) -> u32 {
        self.uses_max
    }

    /// Iterates over the nodes of both levels.
    pub(crate) fn all_nodes(&self) -> impl Iterator<Item = &Node> {
        self.levels.iter().flatten().map(|node| &**node)
    }

    /// Returns the pieces of a claim of this level, in order of address: at most two.
    pub(crate) fn pieces<'a>(
        &'a self,
        level: Level,
        claim: Claim,
        unit: u32,
    ) -> impl DoubleEndedIterator<Item = Piece<'a>> + Clone {
        let bits = granule_bits(level, unit);
        let granules = granules(claim.range, bits);
        let (first, last) = (*granules.start(), *granules.end());
        let piece = move |granule, range| {
            let (node, claim) = (self.node(level, granule), claim.over(range));
            Piece { node, claim, packed: node.pack(claim) }
        };
        if first == last {
            [Some(piece(first, claim.range)), None].into_iter().flatten()
        } else {
            let (low, high) = claim.range.cut(last << bits);
            [Some(piece(first, low)), Some(piece(last, high))].into_iter().flatten()
        }
    }

    /// Iterates over the nodes of a level in which parts of `range` may be held. A node may come
    /// twice.
    pub(crate) fn nodes_under(&self, level: Level, range: LockRange, unit: u32) -> impl Iterator<Item = &Node> {
        let table = &self.levels[level as usize];
        let granules = granules(range, granule_bits(level, unit));
        let few = granules.end() - granules.start() < table.len() as u64;
        let (some, all) = if few { (Some(granules), None) } else { (None, Some(table.iter())) };
        let some = some.into_iter().flatten().map(move |granule| self.node(level, granule));
        some.chain(all.into_iter().flatten().map(|node| &**node))
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::claim::Mode;

    fn range(start: u64, len: u64) -> LockRange {
        LockRange::at(start, len).unwrap()
    }

    #[test]
    fn a_range_belongs_to_the_lowest_level_where_it_has_two_granules() {
        const MIB: u64 = 1 << 20;
        assert_eq!(level_of(range(0, 1), 12), Level::Low);
        assert_eq!(level_of(range(MIB, 2 * MIB), 12), Level::Low);
        assert_eq!(level_of(range(MIB, 4 * MIB), 12), Level::Middle);
        assert_eq!(level_of(range(MIB, 1024 * MIB), 12), Level::Middle);
        assert_eq!(level_of(range(MIB, 2048 * MIB), 12), Level::Root);
        assert_eq!(level_of(LockRange::FULL, 12), Level::Root);
        assert_eq!(level_of(range(u64::MAX - 5, 5), UNIT_BITS_MAX), Level::Low);
    }

    #[test]
    fn pieces_make_up_the_range() {
        let tables = Tables::new(12);
        let whole = Claim { range: range((1 << 21) - 5, 10), mode: Mode::Read };
        let pieces: Vec<_> = tables.pieces(Level::Low, whole, 12).map(|piece| piece.claim.range).collect();
        assert_eq!(pieces, [range((1 << 21) - 5, 5), range(1 << 21, 5)]);
        assert_eq!(tables.pieces(Level::Middle, whole, 12).count(), 1);
    }

    #[test]
    fn neighbours_have_nodes_of_their_own() {
        let tables = Tables::new(12);
        let count = tables.levels[0].len();
        let mut seen = vec![0; count];
        for granule in 0..count as u64 {
            let node: *const Node = tables.node(Level::Low, granule);
            let at = tables.levels[0].iter().position(|other| std::ptr::eq(&**other, node)).unwrap();
            seen[at] += 1;
        }
        assert!(seen.iter().all(|&granules| granules <= 2), "{seen:?}");
    }
}
