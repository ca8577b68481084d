//! Taking a batch off an end.
//!
//! Others go on meanwhile, in shared mode as in exclusive mode: what keeps nodes apart is the
//! claim. The walk reads a link and claims the node that it names, which by then may be on another
//! list; the caller's claim looks again. Nodes that others have claimed are stepped over, on the
//! word of a link that may lead anywhere, so the number of steps is bounded. What was claimed in a
//! row is cut off as one (L4 of `list`):
//! ```text
//!   head ⇄ … ⇄ P ⇄ [A ⇄ B ⇄ C] ⇄ D ⇄ [E ⇄ F] ⇄ head        A, B, C, E, F claimed here, D elsewhere
//!   head ⇄ … ⇄ P ⇄ D ⇄ head                                 two runs, two edges held for each
//! ```
//! Two claimed nodes are neighbours if there is an open edge from one to the other, looked at after
//! both were claimed. The other's `prev` doesn't say as much:
//! ```text
//!   delete B of A⇄B⇄C                      take two off the tail
//!   holds B→C, A→B; C.prev = A             claims C; reads C.prev; claims A; C.prev names A, so they are a run
//!                                          deletes it; A's `next` still leads to B
//!   A.next = C
//! ```

use crate::link::{Link, Nodes};
use crate::list::SmpList;

/// What a try to claim a node came to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Claim {
    /// The caller has it now, and it is on this list.
    Won,
    /// Another thread has it, or it is on another list: the node is as before.
    Lost,
    /// The walk should end here, without this node.
    Stop,
}

/// A walk looks at so many times as many nodes as it may take, and a few more.
const STEPS_EACH: usize = 2;
const STEPS_MORE: usize = 32;

impl SmpList {
    /// Takes up to `max` nodes off the tail, from the last one on: each that `claim` wins, which is
    /// called with its number. They are on no list afterwards. Says how many. It may be fewer than
    /// there are, if others are at it too.
    pub fn take_tail<N: Nodes + ?Sized>(&self, nodes: &N, max: usize, claim: impl FnMut(u32) -> Claim) -> usize {
        let towards_head = |node: u32| {
            nodes.prefetch_ahead(node);
            nodes.links(node).prev()
        };
        self.take(nodes, max, self.head().prev(), claim, towards_head)
    }

    /// As [`take_tail`](Self::take_tail), off the head.
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
        for _ in 0..STEPS_EACH * max + STEPS_MORE {
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

    /// Deletes nodes of this list, all of them claimed by the caller: neighbours that come one
    /// after the other, in either direction, at the price of one.
    pub fn del_all<N: Nodes + ?Sized>(&self, nodes: &N, claimed: impl IntoIterator<Item = u32>) {
        let mut run = Run::default();
        claimed.into_iter().for_each(|node| run.add(self, nodes, node));
        run.delete(self, nodes);
    }
}

/// Claimed neighbours, the first and the last.
#[derive(Default)]
struct Run(Option<(u32, u32)>);

impl Run {
    /// Adds a claimed node, deleting what was there if that isn't next to it.
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
