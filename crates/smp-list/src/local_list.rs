//! A list that one thread owns, on its way to a shared list.

use crate::link::{Link, Nodes};

/// Nodes that the caller owns: that are on no list, or claimed and deleted.
///
/// The edges between them exist already. The last node's `next` names nothing, so that a thread
/// that takes it for the last node of some list can't hold it. Dropping the list forgets its nodes,
/// which stay the caller's.
#[derive(Debug, Default)]
#[must_use = "its nodes are on no list yet"]
pub struct LocalList {
    ends: Option<(u32, u32)>,
    len: usize,
}

impl LocalList {
    /// An empty one.
    pub fn new() -> Self {
        Self::default()
    }

    /// Its nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The first and the last node.
    pub(crate) fn ends(&self) -> Option<(u32, u32)> {
        self.ends
    }

    /// Puts `node` last.
    pub fn push_back<N: Nodes + ?Sized>(&mut self, nodes: &N, node: u32) {
        let links = nodes.links(node);
        links.close();
        self.ends = match self.ends {
            None => Some((node, node)),
            Some((first, last)) => {
                links.set_prev(Link::node(last));
                nodes.links(last).open(Link::node(node));
                Some((first, node))
            }
        };
        self.len += 1;
    }

    /// Puts `node` first.
    pub fn push_front<N: Nodes + ?Sized>(&mut self, nodes: &N, node: u32) {
        let links = nodes.links(node);
        self.ends = match self.ends {
            None => {
                links.close();
                Some((node, node))
            }
            Some((first, last)) => {
                links.open(Link::node(first));
                nodes.links(first).set_prev(Link::node(node));
                Some((node, last))
            }
        };
        self.len += 1;
    }
}
