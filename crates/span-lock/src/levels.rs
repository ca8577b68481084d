//! Which nodes a claim is made in, and how claims at different levels exclude each other.
//!
//! A *claim* is a range that a thread holds or requests. At first all claims are made in one node,
//! the *root*, and the lock costs as much as a plain lock. Once a claim of less than the full range
//! is made in the root while another claim is held there, the lock *spreads*. From then on a range
//! is claimed in the nodes of its granules (`geometry`). Only ranges that are too large for the
//! other levels are still claimed in the root.
//!
//! After many claims in a node, the next claim there first checks whether any range is held. If no
//! range is, the lock becomes *compact*: all claims are made in the root again. As soon as two
//! claims meet in the root after that, the lock spreads again.
//!
//! | step | what a claim does, at any level |
//! |---|---|
//! | 1 claim | makes the claim in its one or two nodes, in order of address; waits there for claims of its level, as described in `node` |
//! | 2 look up | looks at its nodes of the levels above. If a claim there excludes it, it releases its nodes, and begins again with step 1 at the level of that claim. If the root's word lacks a flag that the claim's level requires (`SPREAD`; at level 1 also `MIDDLE`), it releases its nodes, and begins again at the root |
//! | 3 wait below | waits until no claim in the nodes below excludes it. Meanwhile its own claim stays in its nodes, so a new lower claim that it excludes stops at step 2 |
//!
//! - L1. Of two claims at different levels that exclude each other, at least one sees the other.
//!   Each claim is written to its own nodes first, and looks at the other level afterwards. All
//!   these accesses are `SeqCst`, so the two claims can't both find nothing. If the lower claim
//!   sees the upper claim, the lower claim gives way (step 2). If the upper claim sees the lower
//!   claim, the upper claim waits (step 3).
//!   ```text
//!     lower: node's word = claim            upper: root's word = claim
//!            look at root: free                    look at node: free          can't both be
//!   ```
//! - L2. Claims don't deadlock. In step 1 a claim waits for claims of its own level; meanwhile it
//!   holds nothing, or only the node of its lower addresses. In step 2 a claim that gives way
//!   releases its nodes before it waits again. In step 3 a claim waits for claims of lower levels.
//!   To see that these waits form no cycle, order them by where a claim waits: upper levels before
//!   lower levels; within a level, lower addresses before higher addresses; in a node's queue,
//!   newer claims before older ones. A claim waits only for claims that don't wait, or whose own
//!   wait comes later in this order.
//! - L3. No claim starves. A node's queue is fair (N4), and a claim moves up at most once per
//!   level. In step 3 an upper claim waits for two kinds of lower claims. Those made before the
//!   upper claim are finite in number, and end when they are released. Those made after the upper
//!   claim see it in their own step 2, release their nodes, and queue at the upper level. So they
//!   delay it only briefly.
//!
//!   However, a lower claim with limited patience (`try_…`) could give up instead of queueing at
//!   the upper level, and then retry again and again. Each attempt would delay the upper claim's
//!   step 3. Therefore a claim with limited patience also looks at the upper levels before its step
//!   1, when it hasn't written anything yet. So each thread delays the step 3 of an upper claim at
//!   most once.
//! - L4. `SPREAD` is set in the root's word after the tables have been created. If a claim was made
//!   in the root before `SPREAD` was set, claims in the tables see it in their step 2. A claim that
//!   is made in the root later sees `SPREAD`, and takes step 3.
//! - L5. `SPREAD` is cleared only by a thread that holds the full range for writing, and has then
//!   looked at every node and seen no claim. A lower claim needs `SPREAD` to stay set until the
//!   claim is released. This is guaranteed if a *single* check of the root in step 2 finds both
//!   that `SPREAD` is set and that no claim there excludes the lower claim. At the moment of that
//!   check no thread holds the full range for writing. A thread that gets the full range later sees
//!   the lower claim in its node, and so doesn't clear `SPREAD`.
//!
//!   A check before step 1 doesn't help, because `SPREAD` may be cleared after that check. Nor are
//!   two checks in step 2 enough, one for claims and one for `SPREAD`. They would permit this
//!   interleaving:
//!   ```text
//!     lower: looks at root: SPREAD           others: make it compact
//!            node's word = claim
//!            looks at root: free                     a claim in the root, which sees no SPREAD: inside
//!            looks at root: SPREAD: inside           another one beside it: SPREAD
//!   ```
//! - L6. While `MIDDLE` in the root's word is clear, the fast path of level 0 doesn't read the
//!   nodes of level 1. So a claim of level 1 sets `MIDDLE` between its steps 1 and 2. Its check of
//!   the root in step 2 must find `MIDDLE` still set, because a thread that clears `SPREAD` also
//!   clears `MIDDLE`. It may do so just after this claim has set the flag. From that check until
//!   the claim is released, `MIDDLE` stays set, for the same reason as `SPREAD` (L5). A claim of
//!   level 0 on the fast path reads the root's word once more after its own step 1. If it finds
//!   `MIDDLE` clear there, its step 1 came before the step 2 of the level 1 claim. So the step 3 of
//!   the level 1 claim, which comes later, sees the level 0 claim.
//! - L7. The lock is exact: claims of disjoint ranges never wait for each other, even if they share
//!   nodes. There are two exceptions. One is the mutex of a queue, which no thread holds while it
//!   waits for a claim. The other is an attempt to make the lock compact, which holds the full
//!   range while it looks once at each node. Such an attempt is made only if all nodes looked free.

use sync::CachePadded;
use sync::lock::OnceCell;

use crate::claim::{Claim, Mode};
use crate::geometry::{Level, Piece, Tables, level_of};
use crate::node::{Made, Node};
use crate::queue::Patience;
use crate::range::LockRange;
use crate::word::{NodeWord, Packed};

/// The nodes of a lock.
#[derive(Debug)]
pub(crate) struct Levels {
    root: CachePadded<Node>,
    tables: OnceCell<Tables>,
    unit: u32,
}

/// A claim that was made. A guard contains nothing else, unless the lock order is checked. The
/// compiler stores each guard to memory, where unwinding can find it, so a small guard is cheaper.
/// Most claims are `Alone`, so this variant is kept small.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Held<'a> {
    /// The claim was put into this one node's word when the word was free. If it is still alone
    /// there, one compare-and-swap releases it.
    Alone(&'a Node, Packed),
    /// The claim is in the nodes of a level.
    At(&'a Levels, LockRange, Level),
}

impl<'a> Held<'a> {
    /// Returns the claimed range.
    pub(crate) fn range(self) -> LockRange {
        match self {
            Self::Alone(node, packed) => node.unpack(packed).range,
            Self::At(_, range, _) => range,
        }
    }

    /// Releases the claim, whose mode is `mode`.
    #[inline(always)]
    pub(crate) fn release(self, mode: Mode) {
        match self {
            Self::Alone(node, packed) if node.release_alone(packed) => {}
            Self::Alone(node, packed) => release_in(node, packed),
            Self::At(levels, range, level) => levels.release_at(range, mode, level),
        }
    }

    /// Turns a claim for writing into a claim for reading, without releasing it in between.
    pub(crate) fn downgrade(self) -> Self {
        let writer = Claim { range: self.range(), mode: Mode::Write };
        match self {
            Self::Alone(node, packed) => {
                node.downgrade(writer, packed);
                Self::Alone(node, node.pack(Claim { mode: Mode::Read, ..writer }))
            }
            Self::At(levels, _, level) => {
                match levels.tables.get().filter(|_| level != Level::Root) {
                    None => levels.root.downgrade(writer, levels.root.pack(writer)),
                    Some(tables) => tables
                        .pieces(level, writer, levels.unit)
                        .for_each(|piece| piece.node.downgrade(piece.claim, piece.packed)),
                }
                self
            }
        }
    }
}

/// Releases a claim that was put into the word of one node, even if other claims have come since.
#[cold]
fn release_in(node: &Node, packed: Packed) {
    node.release(node.unpack(packed), packed);
}

impl Levels {
    /// Creates one node, for ranges in units of 2^`unit`.
    pub(crate) fn new(unit: u32) -> Self {
        Self { root: CachePadded::new(Node::new(unit)), tables: OnceCell::new(), unit }
    }

    /// Returns the bytes that all nodes except the root take.
    pub(crate) fn table_bytes(&self) -> usize {
        self.tables.get().map_or(0, Tables::bytes)
    }

    /// Makes the claim, and waits for as long as necessary.
    #[inline(always)]
    pub(crate) fn hold(&self, claim: Claim) -> Held<'_> {
        let packed = self.root.pack(claim);
        match self.claim_fast(claim.range, packed) {
            Some(node) => Held::Alone(node, packed),
            None => Held::At(self, claim.range, self.claim_endlessly(claim.range, claim.mode)),
        }
    }

    /// Makes the claim, and waits for as long as `patience` allows.
    pub(crate) fn hold_within(&self, claim: Claim, patience: &Patience) -> Option<Held<'_>> {
        let packed = self.root.pack(claim);
        match self.claim_fast(claim.range, packed) {
            Some(node) => Some(Held::Alone(node, packed)),
            None => self.claim(claim, patience).map(|level| Held::At(self, claim.range, level)),
        }
    }

    /// Makes the claim if its node is free, and returns the node. Such a claim costs two
    /// compare-and-swaps: one to lock, and one to unlock.
    #[inline(always)]
    fn claim_fast(&self, range: LockRange, packed: Packed) -> Option<&Node> {
        let root = self.root.glance();
        if root != NodeWord::FREE {
            return self.claim_in_tables(root, range, packed);
        }
        (packed.fits() && self.root.swap(NodeWord::FREE, NodeWord::FREE.with(packed))).then_some(&*self.root)
    }

    /// Makes the claim in its node of level 0, and returns the node. Returns `None`, without a
    /// claim, if the lock hasn't spread, if that node isn't free, or if only the slow path,
    /// `claim`, can decide. Not inlined, to keep the callers short.
    #[inline(never)]
    fn claim_in_tables(&self, root: NodeWord, range: LockRange, packed: Packed) -> Option<&Node> {
        if !root.is_only_spread() {
            return None;
        }
        let tables = self.tables.get()?;
        let node = tables.only_node(Level::Low, range, self.unit)?;
        let uses = node.uses();
        let is_middle_free = || !root.has(NodeWord::MIDDLE) || self.is_middle_free(tables, range);
        // If a claim at level 1 may exclude this one, this function must return before it writes.
        // Otherwise the claim at level 1 would have to wait for what was written here (L3). The
        // caller then calls `claim`, which looks more closely.
        if !packed.fits() || uses >= tables.uses_max() || !is_middle_free() {
            return None;
        }
        if !node.swap(NodeWord::FREE, NodeWord::FREE.with(packed)) {
            return None;
        }
        node.set_uses(uses + 1);
        // Step 2.
        if self.root.look() == root && is_middle_free() {
            return Some(node);
        }
        release_in(node, packed);
        None
    }

    /// Returns whether the range has one node at level 1, and that node is free.
    fn is_middle_free(&self, tables: &Tables, range: LockRange) -> bool {
        tables.only_node(Level::Middle, range, self.unit).is_some_and(|above| above.look() == NodeWord::FREE)
    }

    #[cold]
    fn claim_endlessly(&self, range: LockRange, mode: Mode) -> Level {
        loop {
            // `claim` doesn't fail with endless patience; the loop satisfies the type.
            if let Some(level) = self.claim(Claim { range, mode }, &Patience::Endless) {
                return level;
            }
        }
    }

    #[cold]
    fn claim(&self, claim: Claim, patience: &Patience) -> Option<Level> {
        let mut level = level_of(claim.range, self.unit);
        if let Some(tables) = self.tables.get().filter(|_| self.root.glance().has(NodeWord::SPREAD))
            && self.level_instead(tables, level, claim, patience).is_none()
        {
            self.count_use(tables, level, claim.range);
        }
        if !self.root.look().has(NodeWord::SPREAD) {
            return self.claim_in_root(claim, patience).then_some(Level::Root);
        }
        let tables = self.tables.get()?;
        while level != Level::Root {
            if let Some(above) = self.level_instead(tables, level, claim, patience) {
                level = above;
                continue;
            }
            if !self.claim_pieces(tables, level, claim, patience) {
                return None;
            }
            // L5, L6
            let flags = if level == Level::Low { NodeWord::SPREAD } else { NodeWord::SPREAD | NodeWord::MIDDLE };
            let Some(above) = self.find_above(tables, level, claim, flags) else {
                if self.wait_below(tables, level, claim, patience) {
                    return Some(level);
                }
                self.release(claim, level);
                return None;
            };
            self.release(claim, level);
            level = above;
        }
        self.claim_in_root(claim, patience).then_some(Level::Root)
    }

    fn claim_in_root(&self, claim: Claim, patience: &Patience) -> bool {
        let Some(made) = self.root.claim(claim, self.root.pack(claim), patience) else {
            return false;
        };
        let spread = self.root.look().has(NodeWord::SPREAD);
        if !spread && made == Made::Beside && claim.range != LockRange::FULL {
            self.spread();
        }
        // L4. If `SPREAD` wasn't set when the word was loaded above, this claim needn't wait. The
        // claim was in the root before `SPREAD` was set, so claims in the tables see it there in
        // their step 2.
        let Some(tables) = self.tables.get().filter(|_| spread) else { return true };
        if self.wait_below(tables, Level::Root, claim, patience) {
            return true;
        }
        self.release(claim, Level::Root);
        false
    }

    #[cold]
    fn spread(&self) {
        self.tables.get_or_init(|| Tables::new(self.unit));
        self.root.set(NodeWord::SPREAD);
    }

    /// Goes back to one node for all ranges, if no range is held. Returns false if the lock is in
    /// use.
    pub(crate) fn compact(&self) -> bool {
        let Some(tables) = self.tables.get() else { return true };
        // Looks without a claim first, which delays no other claim.
        if tables.all_nodes().any(|node| node.glance() != NodeWord::FREE) {
            return false;
        }
        let full = Claim { range: LockRange::FULL, mode: Mode::Write };
        if !self.claim_in_root(full, &Patience::None) {
            return false;
        }
        self.root.clear(NodeWord::SPREAD | NodeWord::MIDDLE); // L5
        self.release(full, Level::Root);
        true
    }

    /// Counts a claim that is about to be made. After many claims, checks whether the lock can be
    /// compact again.
    fn count_use(&self, tables: &Tables, level: Level, range: LockRange) {
        let node = if level == Level::Root { &*self.root } else { tables.first_node(level, range, self.unit) };
        let uses = node.uses() + 1;
        let is_asked = uses > tables.uses_max();
        node.set_uses(if is_asked { 0 } else { uses });
        if is_asked {
            self.compact();
        }
    }

    /// Makes a claim in its nodes (step 1).
    fn claim_pieces(&self, tables: &Tables, level: Level, claim: Claim, patience: &Patience) -> bool {
        let pieces = tables.pieces(level, claim, self.unit);
        for (at, piece) in pieces.clone().enumerate() {
            if piece.node.claim(piece.claim, piece.packed, patience).is_none() {
                pieces.take(at).for_each(|piece| piece.release());
                return false;
            }
        }
        if level != Level::Low {
            self.announce_middle(); // L6
        }
        true
    }

    /// Sets `MIDDLE`, unless the lock is compact by now.
    fn announce_middle(&self) {
        loop {
            let root = self.root.look();
            let announced = NodeWord(root.0 | NodeWord::MIDDLE);
            if root == announced || !root.has(NodeWord::SPREAD) || self.root.swap(root, announced) {
                return;
            }
        }
    }

    /// Returns the lowest level above `level` at which another claim excludes this one, or the root
    /// if the root's word lacks one of `flags`.
    #[inline]
    fn find_above(&self, tables: &Tables, level: Level, claim: Claim, flags: u64) -> Option<Level> {
        let excluded = |piece: Piece<'_>| piece.node.is_held_against(piece.claim);
        if level == Level::Low && tables.pieces(Level::Middle, claim, self.unit).any(excluded) {
            return Some(Level::Middle);
        }
        (!self.root.is_clear_with(flags, claim)).then_some(Level::Root)
    }

    /// Returns the level to which a claim with limited patience must move before step 1, or `None`
    /// if it needn't move. A claim that must move must not write to nodes of its own level, because
    /// other claims would then wait for it there (L3).
    fn level_instead(&self, tables: &Tables, level: Level, claim: Claim, patience: &Patience) -> Option<Level> {
        if patience.is_endless() { None } else { self.find_above(tables, level, claim, 0) }
    }

    /// Waits for the claims of lower levels that exclude this one (step 3).
    fn wait_below(&self, tables: &Tables, level: Level, claim: Claim, patience: &Patience) -> bool {
        level.below().iter().all(|&below| {
            let mut nodes = tables.nodes_under(below, claim.range, self.unit);
            nodes.all(|node| node.wait_until_clear(claim, patience))
        })
    }

    #[cold]
    fn release_at(&self, range: LockRange, mode: Mode, level: Level) {
        self.release(Claim { range, mode }, level);
    }

    fn release(&self, claim: Claim, level: Level) {
        match self.tables.get().filter(|_| level != Level::Root) {
            None => self.root.release(claim, self.root.pack(claim)),
            Some(tables) => tables.pieces(level, claim, self.unit).rev().for_each(|piece| piece.release()),
        }
    }
}

impl Piece<'_> {
    fn release(&self) {
        self.node.release(self.claim, self.packed);
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    #[test]
    fn uses_of_every_level_make_a_lock_that_nobody_shares_compact() {
        const GRANULE: u64 = 1 << 21;
        let ranges = [(0, 4096), (GRANULE - 4096, 8192), (0, 4 * GRANULE), (0, 1024 * GRANULE), (0, u64::MAX)];
        for (start, len) in ranges {
            let claim = Claim { range: LockRange::at(start, len).unwrap(), mode: Mode::Write };
            let levels = Levels::new(12);
            levels.spread();
            let uses = levels.tables.get().unwrap().uses_max() + 1;
            (0..uses).for_each(|_| levels.hold(claim).release(claim.mode));
            assert!(!levels.root.glance().has(NodeWord::SPREAD), "after {uses} uses of {:?}", claim.range);
        }
    }
}
