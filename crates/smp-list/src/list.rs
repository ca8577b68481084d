//! The list, and the operations that many threads may run on it concurrently.
//!
//! The list is a ring through its head. An *edge* joins two neighbours. It consists of two words:
//! `next` of the first, and `prev` of the second. A bit in `next` is the edge's lock; a thread that
//! clears the bit *holds* the edge:
//! ```text
//!     ┌──────┐ next ─────▶ ┌───┐ next ─────▶ ┌───┐ next ─────▶ ┌──────┐
//!     │ head │             │ A │             │ B │             │ head │
//!     └──────┘ ◀───── prev └───┘ ◀───── prev └───┘ ◀───── prev └──────┘
//!             edge head→A         edge A→B           edge B→head
//! ```
//!
//! | operation | edges held, in this order |
//! |---|---|
//! | delete E (or a run E…F) between P and S | E→S (F→S), then P→E |
//! | splice at the head | head→first |
//! | splice at the tail | last→head |
//!
//! | `next` of a node | meaning | changed by |
//! |---|---|---|
//! | 0 | on no list, or last of a local list | the node's owner |
//! | a link, `OPEN` | the edge exists, and isn't held | the thread that clears the bit: it holds the edge |
//! | a link, not `OPEN` | a thread holds the edge | the holder, which stores a new link |
//!
//! - L1. Exactly one edge leads to a linked node. If any `next` is open and names the node, it is
//!   the `next` of this edge, and both words of the edge have been written. A thread looks for the
//!   edge by a hint, which may be outdated. But if the thread succeeds in holding an edge to the
//!   node, that is the right edge, whatever happened since the thread read the hint.
//! - L2. `next` of X and `prev` of X's successor are written only by the thread that holds the edge
//!   X→successor, or by a thread that owns both nodes.
//! - L3. Only the thread that has claimed a node deletes it. A node can be claimed only after its
//!   links are published, and only the node's owner publishes them. (The caller provides the claim;
//!   see [`SmpList::del`].)
//! - L4. If one thread has claimed two neighbours, an open edge between them changes only through
//!   that thread. So the thread needn't hold this edge, and it deletes a run of claimed nodes like
//!   a single node (`cut`).
//! - L5. A thread that holds an edge waits only for edges nearer to the head, so threads don't
//!   deadlock. All threads contend for the edge from the head to the first node. No edge is nearer
//!   to the head, so the holder of this edge doesn't wait, and holds it only for a few stores.
//! - L6. Lists that exchange nodes have different numbers, and a link to a head contains the number
//!   of the head's list. A list's number isn't given to another list while any thread may use the
//!   first list, even if the first list is empty. If the links to two heads were equal, a thread
//!   could hold the wrong edge. Suppose that the thread splices at the tail of list 1, and reads
//!   that P is the last node. Then P moves, and becomes the last node of list 2. The thread would
//!   hold P's edge to the head of list 2 by mistake.
//!
//! **Orderings.** Holding an edge is `Acquire`, and opening it is `Release`. So a holder sees the
//! writes of the previous holder. A thread that wants to hold the edge to a node reads the node's
//! `prev` without a lock, as a hint. Because of L1, an outdated hint does no harm.
//!
//! **Losing interleavings**, and the rules that exclude them:
//! ```text
//!   delete B of A→B→C          delete A of head→A→B
//!   P = B.prev: A
//!                              holds A→B, head→A; B.prev = head; head→B; A.next = 0
//!   hold A→B: fails, as A.next is 0: looks at B.prev again, which is head
//! ```
//! A is on no list after this. If its `next` still named B, the thread that deletes B would take A
//! for B's predecessor, and link B's successor to A.
//! ```text
//!   delete F of head→X→F→S      delete X, and splice it at the head again
//!   P = F.prev: X
//!                               head→F; X is on no list
//!                               holds head→F; X.next = F, open            (too early)
//!   holds F→S, X→F; S.prev = X; X→S; F is free, and goes to another list
//!                               F.prev = X                                (overwrites what F has there)
//! ```
//! So a thread writes the `prev` of an edge first, and only then opens the edge.

use sync::atomic::Backoff;

use crate::link::{Link, Links, Nodes};
use crate::local_list::LocalList;

/// A list of nodes. The [crate's](crate) page says which functions several threads may call at
/// once, and which need exclusive access.
#[derive(Debug)]
pub struct SmpList {
    head: Links,
    number: u32,
}

impl SmpList {
    /// Creates an empty list. Lists that exchange nodes must have different numbers, modulo 2^30.
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self { head: Links::of_head(Link::head(number)), number }
    }

    pub(crate) fn head_link(&self) -> Link {
        Link::head(self.number)
    }

    pub(crate) fn head(&self) -> &Links {
        &self.head
    }

    /// Returns the links of a neighbour of a node of this list.
    pub(crate) fn links<'a, N: Nodes + ?Sized>(&'a self, nodes: &'a N, link: Link) -> &'a Links {
        link.to_node().map_or(&self.head, |node| nodes.links(node))
    }

    /// Returns whether the list was empty when it was read. It may have changed since.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.prev() == self.head_link()
    }

    /// Adds a node at the head. The node must be on no list. Each call moves the head's cache line
    /// to this CPU, so it is better to collect nodes in a [`LocalList`], and splice them all at
    /// once.
    pub fn add_head<N: Nodes + ?Sized>(&self, nodes: &N, node: u32) {
        let mut one = LocalList::new();
        one.push_back(nodes, node);
        self.splice_head(nodes, one);
    }

    /// Adds a node at the tail. See also [`add_head`](Self::add_head).
    pub fn add_tail<N: Nodes + ?Sized>(&self, nodes: &N, node: u32) {
        let mut one = LocalList::new();
        one.push_back(nodes, node);
        self.splice_tail(nodes, one);
    }

    /// Inserts a local list before the first node. The caller publishes afterwards that the nodes
    /// are on this list; from then on, other threads can claim them.
    pub fn splice_head<N: Nodes + ?Sized>(&self, nodes: &N, local: LocalList) {
        let Some((first, last)) = local.ends() else { return };
        nodes.links(first).set_prev(self.head_link());
        let successor = hold(&self.head);
        self.links(nodes, successor).set_prev(Link::node(last));
        // Not before the successor's `prev` names `last` (L2, and the module head).
        nodes.links(last).open(successor);
        self.head.open(Link::node(first));
    }

    /// Inserts a local list after the last node. See also [`splice_head`](Self::splice_head).
    pub fn splice_tail<N: Nodes + ?Sized>(&self, nodes: &N, local: LocalList) {
        let Some((first, last)) = local.ends() else { return };
        self.splice_ends(nodes, first, last);
    }

    /// Inserts the chain from `first` to `last` after the last node.
    pub(crate) fn splice_ends<N: Nodes + ?Sized>(&self, nodes: &N, first: u32, last: u32) {
        let predecessor = self.hold_before(nodes, &self.head, self.head_link());
        nodes.links(first).set_prev(predecessor);
        self.head.set_prev(Link::node(last));
        nodes.links(last).open(self.head_link());
        self.links(nodes, predecessor).open(Link::node(first));
    }

    /// Deletes a node of this list. The caller must have claimed the node by winning an atomic
    /// operation of its choice, with `Acquire`. No thread may be able to win that operation before
    /// the node has been added and then made claimable by a `Release` operation.
    pub fn del<N: Nodes + ?Sized>(&self, nodes: &N, node: u32) {
        self.del_run(nodes, node, node);
    }

    /// Deletes the nodes from `first` to `last`, at the cost of one deletion. The nodes must follow
    /// each other in the list, and the caller must have claimed all of them.
    pub fn del_run<N: Nodes + ?Sized>(&self, nodes: &N, first: u32, last: u32) {
        let successor = hold(nodes.links(last));
        let predecessor = self.hold_before(nodes, nodes.links(first), Link::node(first));
        self.links(nodes, successor).set_prev(predecessor);
        self.links(nodes, predecessor).open(successor);
        close_run(nodes, first, last);
    }

    /// Holds the edge that leads to `node`, and returns the edge's other end. `link` names `node`.
    fn hold_before<N: Nodes + ?Sized>(&self, nodes: &N, node: &Links, link: Link) -> Link {
        let mut backoff = Backoff::new();
        loop {
            let predecessor = node.prev();
            let links = self.links(nodes, predecessor);
            // After a wait the thread only reads at first, so that it doesn't take the cache line
            // away from the holder again.
            if (backoff.turns() == 0 || links.next() == link) && links.try_hold_to(link) {
                return predecessor;
            }
            backoff.wait();
        }
    }
}

/// Holds the edge that leads from `node`, and returns the node that it leads to.
fn hold(node: &Links) -> Link {
    let mut backoff = Backoff::new();
    loop {
        if (backoff.turns() == 0 || node.next().is_open())
            && let Some(successor) = node.try_hold()
        {
            return successor;
        }
        backoff.wait();
    }
}

/// Clears `next` in nodes that were just deleted.
fn close_run<N: Nodes + ?Sized>(nodes: &N, first: u32, last: u32) {
    let mut node = first;
    while node != last
        && let Some(next) = nodes.links(node).next().to_node()
    {
        nodes.links(node).close();
        node = next;
    }
    nodes.links(last).close();
}
