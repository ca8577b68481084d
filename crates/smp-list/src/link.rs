//! What a node's two words hold.

use core::fmt;

use sync::atomic::{AtomicU32, Ordering};

/// Nodes are numbered below this.
pub const NODES_MAX: usize = 1 << 30;

/// The names of a neighbour, and whether the edge to it is open.
///
/// | bits | |
/// |---|---|
/// | 0 | `OPEN`: no thread holds the edge. Always set in `prev`, which is never held |
/// | 1 | `HEAD`: the neighbour is the head of the list whose number follows, not a node |
/// | 2–31 | number of the node or of the list |
///
/// Zero is [`Link::NONE`]: what fresh memory and deleted nodes have in `next`. It isn't open, so no
/// thread can take it for an edge. (A held edge to node 0 looks the same, which only its holder has
/// to know.)
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link(u32);

const OPEN: u32 = 1;
const HEAD: u32 = 2;
const NUMBER_SHIFT: u32 = 2;

impl Link {
    pub(crate) const NONE: Self = Self(0);

    /// To a node, open.
    pub(crate) fn node(number: u32) -> Self {
        debug_assert!((number as usize) < NODES_MAX, "node {number} has no link");
        Self(number << NUMBER_SHIFT | OPEN)
    }

    /// To the head of a list, open. Numbers of lists are taken modulo 2^30.
    pub(crate) fn head(list: u32) -> Self {
        Self(list << NUMBER_SHIFT | HEAD | OPEN)
    }

    pub(crate) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// The node that it leads to, held or not; `None` if that is a head, or none.
    pub(crate) fn to_node(self) -> Option<u32> {
        (self.0 & HEAD == 0 && self != Self::NONE).then_some(self.0 >> NUMBER_SHIFT)
    }

    fn held(self) -> Self {
        Self(self.0 & !OPEN)
    }
}

impl fmt::Debug for Link {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let kind = if self.0 & HEAD == 0 { "node" } else { "head" };
        let held = if self.is_open() { "" } else { ", held" };
        if *self == Self::NONE { f.write_str("none") } else { write!(f, "{kind} {}{held}", self.0 >> NUMBER_SHIFT) }
    }
}

impl fmt::Debug for Links {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Links").field("next", &self.next()).field("prev", &self.prev()).finish()
    }
}

/// The two words of a node. They may lie anywhere, as long as they stay there: in an array, or in a
/// mapping of zeros.
#[derive(Default)]
#[repr(C)]
pub struct Links {
    next: AtomicU32,
    prev: AtomicU32,
}

impl Links {
    /// Of a node that is on no list. Zeroed memory is the same.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Of the head of an empty list.
    pub(crate) fn of_head(head: Link) -> Self {
        Self { next: AtomicU32::new(head.0), prev: AtomicU32::new(head.0) }
    }

    pub(crate) fn next(&self) -> Link {
        // Relaxed: what it names is believed only once the edge is held, by `try_hold_to`, or if no
        // other thread can change it.
        Link(self.next.load(Ordering::Relaxed))
    }

    /// Whether there is an edge to `to` that isn't held.
    pub(crate) fn has_edge_to(&self, to: Link) -> bool {
        // Acquire pairs with the Release of `open`: all of the edge is there.
        self.next.load(Ordering::Acquire) == to.0
    }

    pub(crate) fn prev(&self) -> Link {
        // Acquire pairs with the Release in `set_prev`, so that the edge that it names is there
        // too. It may still be out of date: then `try_hold_to` fails.
        Link(self.prev.load(Ordering::Acquire))
    }

    /// Holds the edge, if no other thread holds it, and returns where it leads to.
    #[cfg(not(pagefold_loom))]
    pub(crate) fn try_hold(&self) -> Option<Link> {
        // Acquire: as in `try_hold_to`. A bit that is off stays off, whether the edge is held or
        // there is none. In one operation, so that the line of a head comes once.
        let was_open = self.next.fetch_and(!OPEN, Ordering::Acquire) & OPEN != 0;
        // Relaxed: no other thread changes it now.
        was_open.then(|| Link(self.next.load(Ordering::Relaxed) | OPEN))
    }

    /// The same in two operations: loom doesn't order an operation that changes nothing and another
    /// thread's store.
    #[cfg(pagefold_loom)]
    pub(crate) fn try_hold(&self) -> Option<Link> {
        let now = self.next();
        (now.is_open() && self.try_hold_to(now)).then_some(now)
    }

    /// Holds the edge to `to`, if that is where it leads and no other thread holds it.
    pub(crate) fn try_hold_to(&self, to: Link) -> bool {
        debug_assert!(to.is_open());
        // Acquire pairs with the Release of `open`: what the last holder wrote comes first. Relaxed
        // on failure: nothing follows from it.
        self.next.compare_exchange(to.0, to.held().0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Ends holding the edge, which leads to `to` now.
    pub(crate) fn open(&self, to: Link) {
        debug_assert!(to.is_open());
        // Release pairs with the Acquire of `try_hold` and `try_hold_to`.
        self.next.store(to.0, Ordering::Release);
    }

    /// The node is on no list any more.
    pub(crate) fn close(&self) {
        // Relaxed: says nothing but that there is no edge.
        self.next.store(Link::NONE.0, Ordering::Relaxed);
    }

    /// The caller must hold the edge that leads here, or own both nodes.
    pub(crate) fn set_prev(&self, prev: Link) {
        // Release pairs with the Acquire in `prev`.
        self.prev.store(prev.0, Ordering::Release);
    }
}

/// Where the nodes are.
pub trait Nodes {
    /// The links of node `number`, always the same ones.
    ///
    /// # Panics
    /// May panic on a number that no list was given.
    fn links(&self, number: u32) -> &Links;

    /// Has the CPU fetch what a walk towards the head meets some steps after `number`. Does nothing
    /// by itself.
    fn prefetch_ahead(&self, number: u32) {
        let _ = number;
    }
}

impl Nodes for [Links] {
    fn links(&self, number: u32) -> &Links {
        &self[number as usize]
    }
}
