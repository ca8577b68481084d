//! Takes a batch of nodes off an end of the list.
//!
//! Other threads use the list at the same time. The walk reads a link, and claims the node that the
//! link names. Only one thread can claim a node, so no two threads take the same node. The node may
//! have moved to another list since the link was read, so the caller's claim must check which list
//! the node is on.
//!
//! If another thread has claimed the node, the walk skips the node and follows the node's link.
//! That link may lead anywhere, so the number of steps is bounded.
//!
//! Neighbours that the walk has claimed one after the other are deleted together (L4 of `list`):
//! ```text
//!   head ⇄ … ⇄ P ⇄ [A ⇄ B ⇄ C] ⇄ D ⇄ [E ⇄ F] ⇄ head        A, B, C, E, F claimed here, D elsewhere
//!   head ⇄ … ⇄ P ⇄ D ⇄ head                                 two runs, two edges held for each
//! ```
//! Two claimed nodes count as neighbours if the thread sees an open edge from the first to the
//! second after it has claimed both. It isn't sufficient that the second node's `prev` names the
//! first. Suppose that another thread deletes a third node that lies between the two. That thread
//! stores the second node's `prev` before it stores the first node's `next`, so for a moment `prev`
//! names the first node although the third is still linked:
//! ```text
//!   delete B of A⇄B⇄C                      take two off the tail
//!   holds B→C, A→B; C.prev = A             claims C; reads C.prev; claims A; C.prev names A, so they are a run
//!                                          deletes it; A's `next` still leads to B
//!   A.next = C
//! ```

use crate::link::{Link, NODES_MAX, Nodes};
use crate::list::SmpList;

/// The outcome of an attempt to claim a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller owns the node now, and the node is on this list.
    Won,
    /// Another thread has claimed the node, or the node is on another list. The node is unchanged.
    Lost,
    /// The walk ends here, without this node.
    Stop,
}

/// A walk of up to `max` nodes takes at most `STEPS_EACH × max + STEPS_MORE` steps.
const STEPS_EACH: usize = 2;
const STEPS_MORE: usize = 32;

impl SmpList {
    /// Takes up to `max` nodes off the tail, starting with the last one. Calls `claim` with the
    /// number of each node that it reaches, and takes the nodes for which `claim` returns
    /// [`Claim::Won`]. These nodes are on no list afterwards. Returns how many nodes were taken. If
    /// other threads use the list, the number may be less than `max` although the list has more
    /// nodes. If `claim` panics, the last run of neighbours that were claimed stays on the list;
    /// nodes claimed before that run have been taken.
    pub fn take_tail<N: Nodes + ?Sized>(&self, nodes: &N, max: usize, claim: impl FnMut(u32) -> Claim) -> usize {
        let towards_head = |node: u32| {
            nodes.prefetch_ahead(node);
            nodes.links(node).prev()
        };
        self.take(nodes, max, self.head().prev(), claim, towards_head)
    }

    /// Takes up to `max` nodes off the head. See also [`take_tail`](Self::take_tail).
    pub fn take_head<N: Nodes + ?Sized>(&self, nodes: &N, max: usize, claim: impl FnMut(u32) -> Claim) -> usize {
        self.take(nodes, max, self.head().next(), claim, |node| nodes.links(node).next())
    }

    fn take<N: Nodes + ?Sized>(
        &self,
        nodes: &N,
        max: usize,
        mut at: Link,
        mut claim: impl FnMut(u32) -> Claim,
        onward: impl Fn(u32) -> Link,
    ) -> usize {
        let mut taken = 0;
        let mut run = Run::default();
        // No list has more nodes than `NODES_MAX`, so a larger `max` means all nodes. The limit
        // prevents an overflow.
        for _ in 0..STEPS_EACH * max.min(NODES_MAX) + STEPS_MORE {
            let Some(node) = at.to_node().filter(|_| taken < max) else { break };
            let claimed = claim(node);
            if claimed == Claim::Stop {
                break;
            }
            at = onward(node);
            if claimed == Claim::Won {
                taken += 1;
                run.add(self, nodes, node);
            }
        }
        run.delete(self, nodes);
        taken
    }

    /// Deletes nodes of this list. The caller must have claimed these nodes. If nodes that follow
    /// each other in `claimed` are neighbours in the list, in either direction, they are deleted
    /// together, at the cost of one deletion.
    pub fn del_all<N: Nodes + ?Sized>(&self, nodes: &N, claimed: impl IntoIterator<Item = u32>) {
        let mut run = Run::default();
        claimed.into_iter().for_each(|node| run.add(self, nodes, node));
        run.delete(self, nodes);
    }
}

/// A run of claimed neighbours: the first and the last.
#[derive(Default)]
struct Run(Option<(u32, u32)>);

impl Run {
    /// Adds a claimed node. If the node isn't next to the run, deletes the run first, and starts a
    /// new one.
    fn add<N: Nodes + ?Sized>(&mut self, list: &SmpList, nodes: &N, node: u32) {
        let are_neighbours = |first, second| nodes.links(first).has_edge_to(Link::node(second));
        *self = match self.0 {
            Some((first, last)) if are_neighbours(node, first) => Self(Some((node, last))),
            Some((first, last)) if are_neighbours(last, node) => Self(Some((first, node))),
            _ => {
                std::mem::take(self).delete(list, nodes);
                Self(Some((node, node)))
            }
        };
    }

    fn delete<N: Nodes + ?Sized>(self, list: &SmpList, nodes: &N) {
        if let Some((first, last)) = self.0 {
            list.del_run(nodes, first, last);
        }
    }
}
