//! The two words of a node, and the links in them.

use core::fmt;

use sync::atomic::{AtomicU32, Ordering};

/// Node numbers must be below this.
pub const NODES_MAX: usize = 1 << 30;

/// Names a neighbour, and stores whether the edge to it is open.
///
/// | bits | |
/// |---|---|
/// | 0 | `OPEN`: no thread holds the edge. Always set in `prev`, which is never held |
/// | 1 | `HEAD`: the neighbour is the head of the list whose number follows, not a node |
/// | 2–31 | number of the node or of the list |
///
/// Zero is [`Link::NONE`]: the value of `next` in fresh memory and in deleted nodes. Its bit `OPEN`
/// is clear, so no thread can mistake it for an open edge. (A held edge to node 0 has the same
/// bits. Only the edge's holder must tell the two apart, and the holder knows that it holds the
/// edge.)
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link(u32);

const OPEN: u32 = 1;
const HEAD: u32 = 2;
const NUMBER_SHIFT: u32 = 2;

impl Link {
    pub(crate) const NONE: Self = Self(0);

    /// Creates an open link to a node.
    pub(crate) fn node(number: u32) -> Self {
        debug_assert!((number as usize) < NODES_MAX, "node {number} has no link");
        Self(number << NUMBER_SHIFT | OPEN)
    }

    /// Creates an open link to the head of a list. List numbers are taken modulo 2^30.
    pub(crate) fn head(list: u32) -> Self {
        Self(list << NUMBER_SHIFT | HEAD | OPEN)
    }

    pub(crate) fn is_open(self) -> bool {
        self.0 & OPEN != 0
    }

    /// Returns the node that the link names, even if the edge is held. `None` for a head, for
    /// [`NONE`](Self::NONE), and for a held edge to node 0, which has the same bits as `NONE`.
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

/// The two words of a node. They may be anywhere, in an array or in a mapping of zeros, but must
/// not move.
#[derive(Default)]
#[repr(C)]
pub struct Links {
    next: AtomicU32,
    prev: AtomicU32,
}

impl Links {
    /// Creates the links of a node that is on no list. Zeroed memory has the same value.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Creates the links of the head of an empty list.
    pub(crate) fn of_head(head: Link) -> Self {
        Self { next: AtomicU32::new(head.0), prev: AtomicU32::new(head.0) }
    }

    pub(crate) fn next(&self) -> Link {
        // Relaxed: a thread relies on the result only if it then holds the edge by `try_hold_to`,
        // or if no other thread can change the word.
        Link(self.next.load(Ordering::Relaxed))
    }

    /// Returns whether there is an edge to `to` that isn't held.
    pub(crate) fn has_edge_to(&self, to: Link) -> bool {
        // Acquire pairs with the Release of `open`: the edge is complete.
        self.next.load(Ordering::Acquire) == to.0
    }

    pub(crate) fn prev(&self) -> Link {
        // Acquire pairs with the Release in `set_prev`: a thread that sees this `prev` also sees
        // the earlier stores to the links of the node that `prev` names. The returned link may be
        // outdated by the time that it is used. Then `try_hold_to` fails.
        Link(self.prev.load(Ordering::Acquire))
    }

    /// Holds the edge if no other thread holds it, and returns where it leads.
    #[cfg(not(pagefold_loom))]
    pub(crate) fn try_hold(&self) -> Option<Link> {
        // Acquire: see `try_hold_to`. If the edge is held or doesn't exist, the bit `OPEN` is clear
        // already, and `fetch_and` changes nothing. A load followed by a compare-and-swap could
        // move a head's cache line to this CPU twice; `fetch_and` moves it once.
        let was_open = self.next.fetch_and(!OPEN, Ordering::Acquire) & OPEN != 0;
        // Relaxed: no other thread changes the word now.
        was_open.then(|| Link(self.next.load(Ordering::Relaxed) | OPEN))
    }

    /// Holds the edge in two operations, for loom: loom doesn't order an operation that changes
    /// nothing before or after another thread's store.
    #[cfg(pagefold_loom)]
    pub(crate) fn try_hold(&self) -> Option<Link> {
        let now = self.next();
        (now.is_open() && self.try_hold_to(now)).then_some(now)
    }

    /// Holds the edge if it leads to `to` and no other thread holds it. Returns whether it did.
    pub(crate) fn try_hold_to(&self, to: Link) -> bool {
        debug_assert!(to.is_open());
        // Acquire pairs with the Release of `open`: the writes of the last holder are visible.
        // Relaxed on failure: the caller draws no conclusion.
        self.next.compare_exchange(to.0, to.held().0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Releases the edge, which now leads to `to`.
    pub(crate) fn open(&self, to: Link) {
        debug_assert!(to.is_open());
        // Release pairs with the Acquire of `try_hold` and `try_hold_to`.
        self.next.store(to.0, Ordering::Release);
    }

    /// Records that the node is on no list.
    pub(crate) fn close(&self) {
        // Relaxed: the value only means that there is no edge.
        self.next.store(Link::NONE.0, Ordering::Relaxed);
    }

    /// Stores `prev`. The caller must hold the edge that leads to this node, or own both nodes.
    pub(crate) fn set_prev(&self, prev: Link) {
        // Release pairs with the Acquire in `prev`.
        self.prev.store(prev.0, Ordering::Release);
    }
}

/// The place where the nodes are stored.
pub trait Nodes {
    /// Returns the links of node `number`: the same reference each time.
    ///
    /// # Panics
    /// May panic for a number that was never given to a list.
    fn links(&self, number: u32) -> &Links;

    /// Prefetches the nodes that a walk towards the head reaches some steps after `number`. The
    /// default does nothing.
    fn prefetch_ahead(&self, number: u32) {
        let _ = number;
    }
}

impl Nodes for [Links] {
    fn links(&self, number: u32) -> &Links {
        &self[number as usize]
    }
}
