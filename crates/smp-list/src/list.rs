//! The list, and what many threads may do to it at once.
//!
//! The list is a ring through its head. An *edge* is the pair of words that joins two neighbours:
//! `next` of the one, and `prev` of the other. A bit in `next` says whether a thread holds the
//! edge:
//! ```text
//!     ┌──────┐ next ─────▶ ┌───┐ next ─────▶ ┌───┐ next ─────▶ ┌──────┐
//!     │ head │             │ A │             │ B │             │ head │
//!     └──────┘ ◀───── prev └───┘ ◀───── prev └───┘ ◀───── prev └──────┘
//!             edge head→A         edge A→B           edge B→head
//! ```
//!
//! | | edges held, in this order |
//! |---|---|
//! | delete E (or a run E…F) between P and S | E→S (F→S), then P→E |
//! | splice at the head | head→first |
//! | splice at the tail | last→head |
//!
//! | `next` of a node | meaning | changed by |
//! |---|---|---|
//! | 0 | on no list, or last of a local list | the node's owner |
//! | a link, `OPEN` | the edge is there, and not held | the thread that swaps the bit off, and then holds the edge |
//! | a link, not `OPEN` | a thread holds the edge | the holder, which stores a new link |
//!
//! - L1. A linked node has exactly one edge to it. A `next` that is open and names the node is that
//!   edge, completely written. So a thread that gets to hold an edge by a hint has the right one,
//!   whatever happened since it read the hint.
//! - L2. `next` of X and `prev` of its successor are written only by the thread that holds the edge
//!   X→successor, or that owns both.
//! - L3. Only the thread that has claimed a node deletes it. A node can be claimed only after its
//!   links are published, and only its owner publishes them. (The claim is the caller's; see
//!   [`SmpList::del`].)
//! - L4. An open edge between two nodes claimed by the same thread changes only through that
//!   thread: there is nothing to hold. So a run of them is deleted like one node (`cut`).
//! - L5. A thread that holds an edge waits only for edges nearer to the head. So threads never wait
//!   in a circle, and the edge at the head, which all of them want, is held for the stores alone.
//! - L6. Numbers tell heads apart. If the last node's edge named *a* head, a thread that splices at
//!   the tail of one list, having read that the last node is P, might hold P's edge after P went to
//!   the end of another list.
//!
//! **Orderings.** Holding an edge is `Acquire`, opening it `Release`: what one holder wrote, the
//! next one sees. `prev` is read outside of the lock as a hint, by a thread that wants to hold the
//! edge that it is part of; L1 makes a wrong hint harmless.
//!
//! **Losing interleavings**, and what excludes them:
//! ```text
//!   delete B of A→B→C          delete A of head→A→B
//!   P = B.prev: A
//!                              holds A→B, head→A; B.prev = head; head→B; A.next = 0
//!   hold A→B: fails, as A.next is 0: looks at B.prev again, which is head
//! ```
//! Were A's `next` left as it was, B's deleter would link B's successor to a node that is on no
//! list.
//! ```text
//!   delete F of head→X→F→S      delete X, and splice it at the head again
//!   P = F.prev: X
//!                               head→F; X is on no list
//!                               holds head→F; X.next = F, open            (too early)
//!   holds F→S, X→F; S.prev = X; X→S; F is free, and goes to another list
//!                               F.prev = X                                (overwrites what F has there)
//! ```
//! So an edge is opened when all of it is written: `prev` first.

use sync::atomic::Backoff;

use crate::link::{Link, Links, Nodes};
use crate::local_list::LocalList;

/// A list of nodes. See the [crate's](crate) page for which thread may call what.
#[derive(Debug)]
pub struct SmpList {
    head: Links,
    number: u32,
}

impl SmpList {
    /// An empty list. Lists that nodes go between need different numbers, modulo 2^30.
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

    /// The links of a neighbour of a node of this list.
    pub(crate) fn links<'a, N: Nodes + ?Sized>(&'a self, nodes: &'a N, link: Link) -> &'a Links {
        link.to_node().map_or(&self.head, |node| nodes.links(node))
    }

    /// Whether the list was empty a moment ago.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.head.prev() == self.head_link()
    }

    /// Adds a node that is on no list, at the head. The head's cache line goes to this CPU: rather
    /// collect nodes in a [`LocalList`].
    pub fn add_head<N: Nodes + ?Sized>(&self, nodes: &N, node: u32) {
        let mut one = LocalList::new();
        one.push_back(nodes, node);
        self.splice_head(nodes, one);
    }

    /// Adds a node at the tail, as [`add_head`](Self::add_head).
    pub fn add_tail<N: Nodes + ?Sized>(&self, nodes: &N, node: u32) {
        let mut one = LocalList::new();
        one.push_back(nodes, node);
        self.splice_tail(nodes, one);
    }

    /// Puts a local list before the first node. Its nodes may be claimed, by any thread, once the
    /// caller says so.
    pub fn splice_head<N: Nodes + ?Sized>(&self, nodes: &N, local: LocalList) {
        let Some((first, last)) = local.ends() else { return };
        nodes.links(first).set_prev(self.head_link());
        let successor = hold(&self.head);
        self.links(nodes, successor).set_prev(Link::node(last));
        // Not before the successor's `prev` names it (L2, and the module head).
        nodes.links(last).open(successor);
        self.head.open(Link::node(first));
    }

    /// Puts a local list after the last node, as [`splice_head`](Self::splice_head).
    pub fn splice_tail<N: Nodes + ?Sized>(&self, nodes: &N, local: LocalList) {
        let Some((first, last)) = local.ends() else { return };
        self.splice_ends(nodes, first, last);
    }

    /// Puts the chain from `first` to `last` after the last node.
    pub(crate) fn splice_ends<N: Nodes + ?Sized>(&self, nodes: &N, first: u32, last: u32) {
        let predecessor = self.hold_before(nodes, &self.head, self.head_link());
        nodes.links(first).set_prev(predecessor);
        self.head.set_prev(Link::node(last));
        nodes.links(last).open(self.head_link());
        self.links(nodes, predecessor).open(Link::node(first));
    }

    /// Deletes a node of this list. The caller must have claimed it: by winning an atomic operation
    /// of its choice, `Acquire`, that was made possible, with a `Release`, after the node was
    /// added.
    pub fn del<N: Nodes + ?Sized>(&self, nodes: &N, node: u32) {
        self.del_run(nodes, node, node);
    }

    /// Deletes the nodes from `first` to `last`, neighbours all of them, at the price of one. The
    /// caller has claimed each.
    pub fn del_run<N: Nodes + ?Sized>(&self, nodes: &N, first: u32, last: u32) {
        let successor = hold(nodes.links(last));
        let predecessor = self.hold_before(nodes, nodes.links(first), Link::node(first));
        self.links(nodes, successor).set_prev(predecessor);
        self.links(nodes, predecessor).open(successor);
        close_run(nodes, first, last);
    }

    /// Holds the edge that leads to `node`, which `link` names, and says where from.
    fn hold_before<N: Nodes + ?Sized>(&self, nodes: &N, node: &Links, link: Link) -> Link {
        let mut backoff = Backoff::new();
        loop {
            let predecessor = node.prev();
            let links = self.links(nodes, predecessor);
            // After a wait the thread looks first, so that it doesn't take the line away from its
            // holder once more.
            if (backoff.turns() == 0 || links.next() == link) && links.try_hold_to(link) {
                return predecessor;
            }
            backoff.wait();
        }
    }
}

/// Holds the edge that leads from `node`, and says where to.
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

/// Leaves no edge behind in nodes that were just deleted.
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
