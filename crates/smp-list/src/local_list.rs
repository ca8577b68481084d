//! A list that one thread owns, to be spliced into a shared list.

use crate::link::{Link, Nodes};

/// Nodes that the caller owns: nodes that are on no list, or were claimed and deleted.
///
/// The edges between the nodes exist already. The `next` of the last node names nothing: a thread
/// that mistakes this node for the last node of a shared list finds no edge there that it could
/// hold. Dropping the list only forgets its nodes; the caller still owns them.
#[derive(Debug, Default)]
#[must_use = "its nodes are on no list yet"]
pub struct LocalList {
    ends: Option<(u32, u32)>,
    len: usize,
}

impl LocalList {
    /// Creates an empty list.
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the number of its nodes.
    #[must_use]
    pub fn len(&self) -> usize {
        self.len
    }

    /// Returns whether it has no nodes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Returns the first and the last node.
    pub(crate) fn ends(&self) -> Option<(u32, u32)> {
        self.ends
    }

    /// Appends `node`.
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

    /// Prepends `node`.
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
