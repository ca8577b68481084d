//! Operations that need exclusive access to the list: `&mut`, for example under
//! [`TwoModeLock::exclusive`](crate::TwoModeLock::exclusive).
//!
//! While a thread has exclusive access, no edge is held. But other threads may have claimed nodes,
//! and may be waiting for the lock so that they can delete these nodes. So the operations here
//! leave each claimed node linked. If an operation moves a claimed node to another list, the thread
//! that claimed the node must find out which list the node is on (see [`append`](SmpList::append)).

use crate::link::{Link, Nodes};
use crate::list::SmpList;

impl SmpList {
    /// Iterates over the nodes from the head to the tail.
    pub fn iter<'a, N: Nodes + ?Sized>(&'a mut self, nodes: &'a N) -> Iter<'a, N> {
        Iter { nodes, at: self.head().next() }
    }

    /// Returns whether the list is intact: no edge is held, `prev` of each node's successor names
    /// the node, and a walk from the head returns to the head after at most `most` nodes. A list of
    /// at most `most` nodes is always intact between two operations.
    pub fn is_consistent<N: Nodes + ?Sized>(&mut self, nodes: &N, most: usize) -> bool {
        let mut at = self.head_link();
        for _ in 0..=most {
            let next = self.links(nodes, at).next();
            if !next.is_open() || self.links(nodes, next).prev() != at {
                return false;
            }
            if next == self.head_link() {
                return true;
            }
            at = next;
        }
        false
    }

    /// Moves all of `other`'s nodes to the tail of this list, at the cost of moving one. Another
    /// thread may have claimed one of these nodes, and be waiting for the lock to delete the node.
    /// Once that thread has the lock, it must check which list the node is on.
    pub fn append<N: Nodes + ?Sized>(&mut self, nodes: &N, other: &mut Self) {
        let (first, last) = (other.head().next().to_node(), other.head().prev().to_node());
        let (Some(first), Some(last)) = (first, last) else { return };
        other.head().set_prev(other.head_link());
        other.head().open(other.head_link());
        nodes.links(last).close();
        self.splice_ends(nodes, first, last);
    }

    /// Moves a node of this list to its head. The node may be claimed.
    pub fn move_to_head<N: Nodes + ?Sized>(&mut self, nodes: &N, node: u32) {
        self.del(nodes, node);
        self.add_head(nodes, node);
    }
}

/// Iterates over the numbers of a list's nodes, from the head on.
#[derive(Debug)]
pub struct Iter<'a, N: ?Sized> {
    nodes: &'a N,
    at: Link,
}

impl<N: Nodes + ?Sized> Iterator for Iter<'_, N> {
    type Item = u32;

    fn next(&mut self) -> Option<u32> {
        let node = self.at.to_node()?;
        self.at = self.nodes.links(node).next();
        Some(node)
    }
}
