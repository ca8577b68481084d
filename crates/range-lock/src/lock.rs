//! The lock: which nodes a claim is made in, and how claims at different levels exclude each other.
//!
//! At first there is one node, the *root*, and the lock costs what a plain one does. When two claims that don't exclude
//! each other meet there, the lock *spreads*: from then on a range is claimed in the nodes of its granules (`geometry`),
//! and only ranges that are too large for any level still are in the root. Once nobody seems to hold anything when a claim
//! of level 0 begins whose node was used often, the lock is made *compact* again; two that meet make it spread at once.
//!
//! | step | what a claim of a level does |
//! |---|---|
//! | 1 claim | in its one or two nodes, in order of address; waits there for claims of its level, as `node` says |
//! | 2 look up | at its nodes of the levels above. If somebody there excludes it, or the root lacks a flag that leads others to the claim, it gives its own nodes back, and begins again with step 1 up there |
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
//! - L4. `SPREAD` is set in the root's word after the tables are there. A claim in the root that was made before that is
//!   seen in step 2; one made after it sees `SPREAD`, and takes step 3.
//! - L5. It is cleared by whoever has a claim to write the full range and, after making that, saw no claim in any node. So
//!   step 2 must find `SPREAD` and nobody who excludes the claim by *one* look at the root, also if `SPREAD` was there
//!   before step 1. At that moment nobody has the full range, and whoever gets it later sees the claim in its node, and
//!   clears nothing: `SPREAD` stays until the claim is given back. By two looks it could go wrong:
//!   ```text
//!     lower: looks at root: SPREAD           others: make it compact
//!            node's word = claim
//!            looks at root: nobody                   a claim in the root, which sees no SPREAD: inside
//!            looks at root: SPREAD: inside           another one beside it: SPREAD
//!   ```
//! - L6. `MIDDLE` in the root's word says that level 1 has to be looked at; without it claims of level 0 save that look. A
//!   claim of level 1 sets it between its steps 1 and 2, and must find it by the look of step 2, as it is cleared with
//!   `SPREAD`, and may be so just after it was set. From that look on it stays, as `SPREAD` does. So a claim of level 0 that
//!   found it missing had its own step 1 before that look, and step 3 sees it.
//! - L7. Everything is exact: claims of disjoint ranges never wait for each other, whatever their nodes; a mutex of a
//!   queue aside, which nobody holds while waiting; and making the lock compact, which is tried when all nodes look free,
//!   and over after a look at each of them.

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

/// Claims in a node of level 0 after which it is asked whether the lock could be compact again.
const USES_MAX: u32 = 4096;

/// A reader/writer lock over ranges of `u64`.
///
/// Any number of readers, or one writer, hold a range at a time; holders of disjoint ranges don't wait for each other. The
/// lock guards no data of its own: what a number stands for is the user's affair.
///
/// A thread that holds a range must not wait for one that overlaps it, not even to read both. In builds with debug
/// assertions that panics and names both places, and so do orders of locking that can end in a deadlock. `try_…_for` isn't
/// checked, though it waits: it ends by itself.
#[derive(Debug)]
pub struct RangeLock {
    root: CachePadded<Node>,
    tables: OnceCell<Tables>,
    unit: u32,
    order: LockOrder,
}

/// Where a claim was made. The guard has the claim itself: all of it stays in registers from lock to unlock.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Held<'a> {
    /// The one node that has the claim, put into its word with nobody about: given back by one swap, if that is still so.
    node: Option<&'a Node>,
    /// The claim in that word.
    packed: Packed,
    /// The level of the claim's nodes, if `node` doesn't say.
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
        RangeReadGuard::new(self, range, self.lock(range, Mode::Read))
    }

    /// Waits for `range`, to have it alone.
    #[cfg_attr(debug_assertions, track_caller)]
    #[inline]
    pub fn write(&self, range: LockRange) -> RangeWriteGuard<'_> {
        RangeWriteGuard::new(self, range, self.lock(range, Mode::Write))
    }

    /// Takes `range` to read, if nobody has a part of it, or is just trying to get it, for writing. None also while the
    /// lock is made [compact](Self::compact), which it may be at any time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read(&self, range: LockRange) -> Option<RangeReadGuard<'_>> {
        Some(RangeReadGuard::new(self, range, self.lock_within(range, Mode::Read, &Patience::None)?))
    }

    /// Takes `range` alone, if nobody has a part of it, or is just trying to get it. None also while the lock is made
    /// [compact](Self::compact), which it may be at any time.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write(&self, range: LockRange) -> Option<RangeWriteGuard<'_>> {
        Some(RangeWriteGuard::new(self, range, self.lock_within(range, Mode::Write, &Patience::None)?))
    }

    /// As [`read`](Self::read), but waits no longer than `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_read_for(&self, range: LockRange, timeout: Duration) -> Option<RangeReadGuard<'_>> {
        let patience = Patience::Until(Instant::now(), timeout);
        Some(RangeReadGuard::new(self, range, self.lock_within(range, Mode::Read, &patience)?))
    }

    /// As [`write`](Self::write), but waits no longer than `timeout`.
    #[cfg_attr(debug_assertions, track_caller)]
    pub fn try_write_for(&self, range: LockRange, timeout: Duration) -> Option<RangeWriteGuard<'_>> {
        let patience = Patience::Until(Instant::now(), timeout);
        Some(RangeWriteGuard::new(self, range, self.lock_within(range, Mode::Write, &patience)?))
    }

    /// Goes back to one word for all ranges, if nobody holds any: then a lock that has one user at a time is as cheap again
    /// as a plain one. A lock that is used does so by itself now and then; only ranges within one or two granules of the
    /// lowest level (512 units each) count as use. False if somebody is about.
    ///
    /// It takes a look at each node, during which the full range is taken: others wait, and tries fail.
    pub fn compact(&self) -> bool {
        let Some(tables) = self.tables.get() else { return true };
        // First a mere look, which is in nobody's way.
        if tables.all_nodes().any(|node| node.glance() != NodeWord::FREE) {
            return false;
        }
        let full = Claim { range: LockRange::FULL, mode: Mode::Write };
        if !self.claim_in_root(full, &Patience::None) {
            return false;
        }
        self.root.clear(NodeWord::SPREAD | NodeWord::MIDDLE); // L5
        self.release(full, ROOT);
        true
    }

    /// Bytes that the lock takes beyond itself, now that it has spread or hasn't.
    #[must_use]
    pub fn table_bytes(&self) -> usize {
        self.tables.get().map_or(0, Tables::bytes)
    }

    #[cfg_attr(debug_assertions, track_caller)]
    #[inline(always)]
    fn lock(&self, range: LockRange, mode: Mode) -> Held<'_> {
        self.order.wait(Claim { range, mode }, Location::caller());
        let packed = Packed::new(range, mode, self.unit);
        let held = match self.claim_fast(range, packed) {
            Some(node) => Held { node: Some(node), packed, level: 0 },
            None => Held { node: None, packed, level: self.claim_endlessly(range, mode) },
        };
        self.order.taken(Claim { range, mode }, Location::caller());
        held
    }

    #[cfg_attr(debug_assertions, track_caller)]
    fn lock_within(&self, range: LockRange, mode: Mode, patience: &Patience) -> Option<Held<'_>> {
        let packed = Packed::new(range, mode, self.unit);
        let node = self.claim_fast(range, packed);
        let level = if node.is_some() { 0 } else { self.claim(Claim { range, mode }, patience)? };
        self.order.taken(Claim { range, mode }, Location::caller());
        Some(Held { node, packed, level })
    }

    /// Makes the claim if nobody else is about, in the node returned: two compare-and-swaps from lock to unlock.
    #[inline(always)]
    fn claim_fast(&self, range: LockRange, packed: Packed) -> Option<&Node> {
        let root = self.root.glance();
        if root != NodeWord::FREE {
            return self.claim_in_tables(root, range, packed);
        }
        (packed.fits() && self.root.swap(NodeWord::FREE, NodeWord::FREE.with(packed))).then_some(&*self.root)
    }

    /// The same in a lock that has spread. Not in each caller's code: that would be long.
    #[inline(never)]
    fn claim_in_tables(&self, root: NodeWord, range: LockRange, packed: Packed) -> Option<&Node> {
        if !root.is_only_spread() {
            return None;
        }
        let node = self.tables.get()?.only_node(0, range, self.unit)?;
        let uses = node.uses();
        if !packed.fits() || uses >= USES_MAX || !node.swap(NodeWord::FREE, NodeWord::FREE.with(packed)) {
            return None;
        }
        node.set_uses(uses + 1);
        // Step 2. Whoever is up there, `claim` finds out.
        if self.root.look() == root && (!root.has(NodeWord::MIDDLE) || self.is_middle_free(range)) {
            return Some(node);
        }
        self.release_in(node, range, packed);
        None
    }

    /// Whether nobody is in the one node of the range at level 1.
    fn is_middle_free(&self, range: LockRange) -> bool {
        let above = self.tables.get().and_then(|tables| tables.only_node(1, range, self.unit));
        above.is_some_and(|above| above.look() == NodeWord::FREE)
    }

    #[cold]
    fn claim_endlessly(&self, range: LockRange, mode: Mode) -> u8 {
        loop {
            // Endless patience doesn't end.
            if let Some(level) = self.claim(Claim { range, mode }, &Patience::Endless) {
                return level;
            }
        }
    }

    #[cold]
    fn claim(&self, claim: Claim, patience: &Patience) -> Option<u8> {
        let mut level = level_of(claim.range, self.unit);
        if level == 0 {
            self.count_use(claim.range);
        }
        if !self.root.look().has(NodeWord::SPREAD) {
            return self.claim_in_root(claim, patience).then_some(ROOT);
        }
        let tables = self.tables.get()?;
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
            level = above;
        }
        self.claim_in_root(claim, patience).then_some(ROOT)
    }

    fn claim_in_root(&self, claim: Claim, patience: &Patience) -> bool {
        let Some(made) = self.root.claim(claim, Packed::of(claim, self.unit), self.unit, patience) else {
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

    /// Counts a claim of level 0 that is about to be made. After many, the lock may be more than what is needed by now.
    fn count_use(&self, range: LockRange) {
        if !self.root.glance().has(NodeWord::SPREAD) {
            return;
        }
        let Some(tables) = self.tables.get() else { return };
        let node = tables.first_node(range, self.unit);
        let uses = node.uses() + 1;
        node.set_uses(if uses > USES_MAX { 0 } else { uses });
        if uses > USES_MAX {
            self.compact();
        }
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
        if level != 0 {
            self.announce_middle(); // L6
        }
        true
    }

    /// Sets `MIDDLE`, unless the lock isn't spread any more.
    fn announce_middle(&self) {
        loop {
            let root = self.root.look();
            let announced = NodeWord(root.0 | NodeWord::MIDDLE);
            if root == announced || !root.has(NodeWord::SPREAD) || self.root.swap(root, announced) {
                return;
            }
        }
    }

    /// Step 2: the lowest level above `level` at which somebody excludes the claim; or the root, if that is all there is.
    #[inline]
    fn find_above(&self, tables: &Tables, level: u8, claim: Claim) -> Option<u8> {
        let excluded = |piece: Piece<'_>| piece.node.is_held_against(piece.claim, piece.unit);
        for above in level + 1..ROOT {
            if tables.pieces(above, claim, self.unit).any(excluded) {
                return Some(above);
            }
        }
        let flags = if level == 0 { NodeWord::SPREAD } else { NodeWord::SPREAD | NodeWord::MIDDLE };
        (!self.root.is_clear_with(flags, claim, self.unit)).then_some(ROOT) // L5, L6
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
    pub(crate) fn unlock(&self, range: LockRange, mode: Mode, held: Held<'_>) {
        self.order.released(Claim { range, mode });
        match held.node {
            Some(node) if node.release_alone(held.packed) => {}
            Some(node) => self.release_in(node, range, held.packed),
            None => self.release_at(range, mode, held.level),
        }
    }

    /// Gives back a claim that is, or was first, in the word of one node, whoever came since.
    #[cold]
    fn release_in(&self, node: &Node, range: LockRange, packed: Packed) {
        node.release(Claim { range, mode: packed.mode() }, packed, self.unit);
    }

    #[cold]
    fn release_at(&self, range: LockRange, mode: Mode, level: u8) {
        self.release(Claim { range, mode }, level);
    }

    fn release(&self, claim: Claim, level: u8) {
        match self.tables.get().filter(|_| level != ROOT) {
            None => self.root.release(claim, Packed::of(claim, self.unit), self.unit),
            Some(tables) => tables.pieces(level, claim, self.unit).rev().for_each(|piece| piece.release()),
        }
    }

    /// Makes a claim to write one to read, without a moment between.
    pub(crate) fn downgrade<'a>(&self, range: LockRange, held: Held<'a>) -> Held<'a> {
        let claim = Claim { range, mode: Mode::Write };
        self.order.downgraded(claim);
        match (held.node, self.tables.get().filter(|_| held.level != ROOT)) {
            (Some(node), _) => node.downgrade(claim, held.packed, self.unit),
            (None, None) => self.root.downgrade(claim, Packed::of(claim, self.unit), self.unit),
            (None, Some(tables)) => tables
                .pieces(held.level, claim, self.unit)
                .for_each(|piece| piece.node.downgrade(piece.claim, piece.packed, piece.unit)),
        }
        Held { packed: Packed::new(range, Mode::Read, self.unit), ..held }
    }
}

impl Piece<'_> {
    fn release(&self) {
        self.node.release(self.claim, self.packed, self.unit);
    }
}
