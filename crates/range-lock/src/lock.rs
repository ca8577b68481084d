//! The lock: which nodes a claim is made in, and how claims at different levels exclude each other.
//!
//! At first there is one node, the *root*, and the lock costs what a plain one does. When two claims that don't exclude
//! each other meet there, the lock *spreads*: from then on a range is claimed in the nodes of its granules (`geometry`),
//! and only ranges that are too large for any level still are in the root.
//!
//! | step | what a claim of a level does |
//! |---|---|
//! | 1 claim | in its one or two nodes, in order of address; waits there for claims of its level, as `node` says |
//! | 2 look up | at its nodes of the levels above. If somebody there excludes it, it gives its own nodes back, and begins again with step 1 up there |
//! | 3 wait below | until nobody in the nodes below excludes it. Its claim stays, so nobody new gets past his step 2 |
//!
//! - L1. Of two claims at different levels that exclude each other, at least one sees the other: each makes its claim
//!   first and looks then, and all of these accesses are `SeqCst`. The lower one gives way; the upper one waits:
//!   ```text
//!     lower: node's word = claim            upper: root's word = claim
//!            look at root: nobody                  look at node: nobody        can't both be
//!   ```
//! - L2. Who waits holds nothing that is waited for in a circle: in step 1 a claim waits for claims of its level while it
//!   holds a node of lower addresses; in step 3, for claims of lower levels; in step 2 it holds nothing any more. What a
//!   claim waits for so is either held, or further on in the order (level downwards, then address upwards).
//! - L3. Nobody starves: a node's queue is fair (N4), a claim goes up at most once for each level, and what step 3 waits
//!   for was there before its claim.
//! - L4. `SPREAD` is set in the root's word, never cleared, after the tables are there. A claim in the root that was made
//!   before that is seen in step 2; one made after it sees `SPREAD`, and takes step 3.
//! - L5. Everything is exact: claims of disjoint ranges never wait for each other, whatever their nodes; a mutex of a
//!   queue aside, which nobody holds while waiting.

use std::panic::Location;

use sync::CachePadded;
use sync::lock::OnceCell;
use sync::time::{Duration, Instant};

use crate::claim::{Claim, Mode};
use crate::geometry::{Piece, ROOT, Tables, UNIT_BITS_MAX, level_of, word_unit};
use crate::guard::{RangeReadGuard, RangeWriteGuard};
use crate::node::{Made, Node};
use crate::order::LockOrder;
use crate::queue::Patience;
use crate::range::LockRange;
use crate::word::{NodeWord, Packed};

/// A reader/writer lock over ranges of `u64`.
///
/// Any number of readers, or one writer, hold a range at a time; holders of disjoint ranges don't wait for each other. The
/// lock guards no data of its own: what a number stands for is the user's affair.
///
/// A thread that holds a range must not wait for one that overlaps it, not even to read both. In builds with debug
/// assertions that panics and names both places, and so do orders of locking that can end in a deadlock.
#[derive(Debug)]
pub struct RangeLock {
    root: CachePadded<Node>,
    tables: OnceCell<Tables>,
    unit: u32,
    order: LockOrder,
}

/// A claim, and where it was made. Flat: it stays in registers from lock to unlock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    pub(crate) claim: Claim,
    /// The node that has the claim in its word, with nobody about: it is given back by one swap, if that is still so.
    alone: Option<&'a Node>,
    /// The claim in that word.
    packed: Packed,
    level: u8,
}

impl Default for RangeLock {
    fn default() -> Self {
        Self::new()
    }
}

impl RangeLock {
    /// A free lock for ranges that mostly are whole pages of 4 KiB.
    #[must_use]
    pub fn new() -> Self {
        Self::with_unit_bits(12)
    }

    /// A free lock for ranges that mostly begin and end at multiples of 2^`bits`, at most 2^40. Others can be locked
    /// too, but cost more.
    #[must_use]
    pub fn with_unit_bits(bits: u32) -> Self {
        let root = CachePadded::new(Node::new());
        Self { root, tables: OnceCell::new(), unit: bits.min(UNIT_BITS_MAX), order: LockOrder::new() }
    }

    /// Waits for `range`, to read it with others.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub fn read(&self, range: LockRange) -> RangeReadGuard<'_> {
        RangeReadGuard::new(self, self.lock(Claim { range, mode: Mode::Read }))
    }

    /// Waits for `range`, to have it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub fn write(&self, range: LockRange) -> RangeWriteGuard<'_> {
        RangeWriteGuard::new(self, self.lock(Claim { range, mode: Mode::Write }))
    }

    /// Takes `range` to read, if nobody has it, or is just trying to get it, for writing.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self, range: LockRange) -> Option<RangeReadGuard<'_>> {
        let held = self.lock_within(Claim { range, mode: Mode::Read }, &Patience::None)?;
        Some(RangeReadGuard::new(self, held))
    }

    /// Takes `range` alone, if nobody has a part of it, or is just trying to get it.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self, range: LockRange) -> Option<RangeWriteGuard<'_>> {
        let held = self.lock_within(Claim { range, mode: Mode::Write }, &Patience::None)?;
        Some(RangeWriteGuard::new(self, held))
    }

    /// As [`read`](Self::read), but waits no longer than `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read_for(&self, range: LockRange, timeout: Duration) -> Option<RangeReadGuard<'_>> {
        let held = self.lock_within(Claim { range, mode: Mode::Read }, &Patience::Until(Instant::now(), timeout))?;
        Some(RangeReadGuard::new(self, held))
    }

    /// As [`write`](Self::write), but waits no longer than `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write_for(&self, range: LockRange, timeout: Duration) -> Option<RangeWriteGuard<'_>> {
        let held = self.lock_within(Claim { range, mode: Mode::Write }, &Patience::Until(Instant::now(), timeout))?;
        Some(RangeWriteGuard::new(self, held))
    }

    /// Bytes that the lock takes beyond itself, now that it has spread or hasn't.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.tables.get().map_or(0, Tables::bytes)
    }

    #[cfg_attr(debug_assertions, track_caller)]
    #[inline(always)]
    fn lock(&self, claim: Claim) -> Held<'_> {
        self.order.wait(claim, Location::caller());
        let held = match self.claim_fast(claim) {
            Some(held) => held,
            None => self.claim_endlessly(claim),
        };
        self.order.taken(claim, Location::caller());
        held
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_within(&self, claim: Claim, patience: &Patience) -> Option<Held<'_>> {
        let held =
            self.claim_fast(claim).or_else(|| self.claim(claim, patience).map(|level| Held::at(claim, level)))?;
        self.order.taken(claim, Location::caller());
        Some(held)
    }

    /// The claim if nobody else is about: two compare-and-swaps from lock to unlock.
    #[inline(always)]
    fn claim_fast(&self, claim: Claim) -> Option<Held<'_>> {
        let alone = |node, packed, level| Some(Held { claim, alone: Some(node), packed, level });
        let root = self.root.glance();
        if root == NodeWord::FREE {
            let packed = Packed::new(claim, self.unit);
            if packed.fits() && self.root.swap(NodeWord::FREE, NodeWord::FREE.with(packed)) {
                return alone(&*self.root, packed, ROOT);
            }
            return None;
        }
        if root != NodeWord(NodeWord::SPREAD) {
            return None;
        }
        let tables = self.tables.get()?;
        let node = tables.only_node(0, claim.range, self.unit)?;
        let packed = Packed::new(claim, self.unit);
        if !packed.fits() || !node.swap(NodeWord::FREE, NodeWord::FREE.with(packed)) {
            return None;
        }
        // Step 2. Whoever is up there, `claim` finds out.
        let above = tables.only_node(1, claim.range, self.unit);
        if above.is_some_and(|above| above.look() == NodeWord::FREE) && self.root.look() == root {
            return alone(node, packed, 0);
        }
        node.release(claim, packed, self.unit);
        None
    }

    #[cold]
    fn claim_endlessly(&self, claim: Claim) -> Held<'_> {
        loop {
            // Endless patience doesn't end.
            if let Some(level) = self.claim(claim, &Patience::Endless) {
                return Held::at(claim, level);
            }
        }
    }

    #[cold]
    fn claim(&self, claim: Claim, patience: &Patience) -> Option<u8> {
        if !self.root.look().has(NodeWord::SPREAD) {
            return self.claim_in_root(claim, patience).then_some(ROOT);
        }
        let tables = self.tables.get()?;
        let mut level = level_of(claim.range, self.unit);
        while level != ROOT {
            if !self.claim_pieces(tables, level, claim, patience) {
                return None;
            }
            let Some(above) = self.find_above(tables, level, claim) else {
                if self.wait_below(tables, level, claim, patience) {
                    return Some(level);
                }
                self.release(claim, level);
                return None;
            };
            self.release(claim, level);
            if matches!(patience, Patience::None) {
                return None;
            }
            level = above;
        }
        self.claim_in_root(claim, patience).then_some(ROOT)
    }

    fn claim_in_root(&self, claim: Claim, patience: &Patience) -> bool {
        let Some(made) = self.root.claim(claim, Packed::new(claim, self.unit), self.unit, patience) else {
            return false;
        };
        let spread = self.root.look().has(NodeWord::SPREAD);
        if !spread && made == Made::Beside && claim.range != LockRange::FULL {
            self.spread();
        }
        // L4. Who spreads the lock now is seen by all whom it leads to the tables.
        let Some(tables) = self.tables.get().filter(|_| spread) else { return true };
        if self.wait_below(tables, ROOT, claim, patience) {
            return true;
        }
        self.release(claim, ROOT);
        false
    }

    #[cold]
    fn spread(&self) {
        self.tables.get_or_init(Tables::new);
        self.root.set(NodeWord::SPREAD);
    }

    /// Step 1.
    fn claim_pieces(&self, tables: &Tables, level: u8, claim: Claim, patience: &Patience) -> bool {
        let pieces = tables.pieces(level, claim, self.unit);
        for (at, piece) in pieces.clone().enumerate() {
            if piece.node.claim(piece.claim, piece.packed, piece.unit, patience).is_none() {
                pieces.take(at).for_each(|piece| piece.release());
                return false;
            }
        }
        true
    }

    /// Step 2: the lowest level above `level` at which somebody excludes the claim.
    #[inline]
    fn find_above(&self, tables: &Tables, level: u8, claim: Claim) -> Option<u8> {
        let excluded = |piece: Piece<'_>| piece.node.is_held_against(piece.claim, piece.unit);
        for above in level + 1..ROOT {
            if tables.pieces(above, claim, self.unit).any(excluded) {
                return Some(above);
            }
        }
        self.root.is_held_against(claim, self.unit).then_some(ROOT)
    }

    /// Step 3.
    fn wait_below(&self, tables: &Tables, level: u8, claim: Claim, patience: &Patience) -> bool {
        (0..level).rev().all(|below| {
            let unit = word_unit(below, self.unit);
            let mut nodes = tables.nodes_under(below, claim.range, self.unit);
            nodes.all(|node| node.wait_until_clear(claim, unit, patience))
        })
    }

    #[inline(always)]
    pub(crate) fn unlock(&self, held: Held<'_>) {
        self.order.released(held.claim);
        if !held.alone.is_some_and(|node| node.release_alone(held.packed)) {
            self.release(held.claim, held.level);
        }
    }

    #[cold]
    fn release(&self, claim: Claim, level: u8) {
        match self.tables.get().filter(|_| level != ROOT) {
            None => self.root.release(claim, Packed::new(claim, self.unit), self.unit),
            Some(tables) => tables.pieces(level, claim, self.unit).rev().for_each(|piece| piece.release()),
        }
    }

    /// Makes a claim to write one to read, without a moment between.
    pub(crate) fn downgrade<'a>(&self, held: Held<'a>) -> Held<'a> {
        let (claim, level) = (held.claim, held.level);
        match self.tables.get().filter(|_| level != ROOT) {
            None => self.root.downgrade(claim, Packed::new(claim, self.unit), self.unit),
            Some(tables) => tables
                .pieces(level, claim, self.unit)
                .for_each(|piece| piece.node.downgrade(piece.claim, piece.packed, piece.unit)),
        }
        self.order.downgraded(claim);
        Held::at(Claim { mode: Mode::Read, ..claim }, level)
    }
}

impl Held<'_> {
    /// A claim at a level, in which it need not be alone.
    fn at(claim: Claim, level: u8) -> Self {
        Self { claim, alone: None, packed: Packed::NONE, level }
    }
}

impl Piece<'_> {
    fn release(&self) {
        self.node.release(self.claim, self.packed, self.unit);
    }
}
