//! Two lists over a few nodes, operations on the lists, and a check of the state after all
//! operations.
#![allow(dead_code, reason = "each test uses a part")]

use smp_list::{Claim, Links, LocalList, Nodes, SmpList};
use sync::atomic::{AtomicU32, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Node {
    links: Links,
    /// The number of the node's list plus one; 0 if the node is on no list, or claimed.
    place: AtomicU32,
}

#[derive(Debug)]
pub(crate) struct World {
    nodes: Vec<Node>,
    pub(crate) lists: [SmpList; 2],
    len: u32,
}

/// An operation of a thread. It works on list 0 unless its comment says otherwise. The nodes that
/// it adds are spare nodes of the thread.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    Del(u32),
    /// Deletes it, and adds it at the head again.
    Touch(u32),
    /// Deletes it, and adds it at the tail again.
    Cool(u32),
    /// Deletes it, and adds it at the tail of list 1.
    Move(u32),
    AddHead,
    AddTail,
    SpliceHead,
    SpliceTail,
    /// Takes up to that many nodes off the tail.
    TakeTail(usize),
    TakeHead(usize),
    /// Takes two off the tail, and puts them at the head.
    Rotate,
    /// Moves the last node of list 1 to the tail of list 0.
    Fetch,
}

/// The number of spare nodes of each thread.
const SPARE: u32 = 2;

impl Nodes for World {
    fn links(&self, number: u32) -> &Links {
        &self.nodes[number as usize].links
    }
}

impl World {
    /// Creates nodes 0 to `len` − 1, which are on list 0 in this order, and spare nodes for
    /// `threads` threads.
    pub(crate) fn new(len: u32, threads: u32) -> Self {
        let nodes = (0..len + SPARE * threads).map(|_| Node::default()).collect();
        let world = Self { nodes, lists: [SmpList::new(0), SmpList::new(1)], len };
        world.splice(0, 0..len, SmpList::splice_tail);
        world
    }

    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    /// Claims a node if it is on the given list. Returns whether it was claimed.
    pub(crate) fn claim(&self, node: u32, list: u32) -> bool {
        let place = &self.node(node).place;
        place.compare_exchange(list + 1, 0, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn publish(&self, node: u32, list: u32) {
        self.node(node).place.store(list + 1, Ordering::Release);
    }

    fn splice(
        &self,
        list: u32,
        nodes: impl IntoIterator<Item = u32> + Clone,
        how: impl FnOnce(&SmpList, &Self, LocalList),
    ) {
        let mut local = LocalList::new();
        nodes.clone().into_iter().for_each(|node| local.push_back(self, node));
        how(&self.lists[list as usize], self, local);
        nodes.into_iter().for_each(|node| self.publish(node, list));
    }

    pub(crate) fn take(&self, list: u32, max: usize, tail: bool) -> Vec<u32> {
        let mut taken = Vec::new();
        let of = &self.lists[list as usize];
        let claim = |node| {
            if !self.claim(node, list) {
                return Claim::Lost;
            }
            taken.push(node);
            Claim::Won
        };
        let count = if tail { of.take_tail(self, max, claim) } else { of.take_head(self, max, claim) };
        assert_eq!(count, taken.len());
        taken
    }

    fn del(&self, node: u32) -> bool {
        let won = self.claim(node, 0);
        if won {
            self.lists[0].del(self, node);
        }
        won
    }

    /// Runs an operation as thread number `thread`.
    pub(crate) fn run(&self, op: Op, thread: u32) {
        let new = self.len + SPARE * thread..self.len + SPARE * (thread + 1);
        let one = new.start..new.start + 1;
        match op {
            Op::Del(node) => drop(self.del(node)),
            Op::Touch(node) if self.del(node) => self.splice(0, [node], SmpList::splice_head),
            Op::Cool(node) if self.del(node) => self.splice(0, [node], SmpList::splice_tail),
            Op::Move(node) if self.del(node) => self.splice(1, [node], SmpList::splice_tail),
            Op::Touch(_) | Op::Cool(_) | Op::Move(_) => {}
            Op::AddHead => self.splice(0, one, SmpList::splice_head),
            Op::AddTail => self.splice(0, one, SmpList::splice_tail),
            Op::SpliceHead => self.splice(0, new, SmpList::splice_head),
            Op::SpliceTail => self.splice(0, new, SmpList::splice_tail),
            Op::TakeTail(max) => drop(self.take(0, max, true)),
            Op::TakeHead(max) => drop(self.take(0, max, false)),
            Op::Rotate => self.splice(0, self.take(0, 2, true), SmpList::splice_head),
            Op::Fetch => self.splice(0, self.take(1, 1, true), SmpList::splice_tail),
        }
    }

    /// Checks both lists and all nodes. No thread may be using them.
    pub(crate) fn check(&mut self, about: &str) {
        let (most, mut seen) = (self.nodes.len(), vec![0; self.nodes.len()]);
        let Self { nodes, lists, len } = self;
        for (number, list) in lists.iter_mut().enumerate() {
            let nodes = NodeSlice(nodes);
            assert!(list.is_consistent(&nodes, most), "{about}: list {number} is torn: {nodes:?} {list:?}");
            let on_list: Vec<u32> = list.iter(&nodes).collect();
            for &node in &on_list {
                seen[node as usize] = number as u32 + 1;
            }
        }
        for (node, seen) in seen.into_iter().enumerate() {
            let place = nodes[node].place.load(Ordering::Relaxed);
            assert_eq!(seen, place, "{about}: node {node} of {len} is on list {seen} − 1, says {place} − 1");
        }
    }

    /// Returns the nodes of list 0, from the head on.
    pub(crate) fn all(&mut self) -> Vec<u32> {
        self.lists[0].iter(&NodeSlice(&self.nodes)).collect()
    }

    /// Returns the nodes that were on list 0 from the beginning and aren't in `moved`, from the
    /// head on.
    pub(crate) fn order(&mut self, moved: &[u32]) -> Vec<u32> {
        let (len, nodes) = (self.len, NodeSlice(&self.nodes));
        self.lists[0].iter(&nodes).filter(|&node| node < len && !moved.contains(&node)).collect()
    }
}

#[derive(Debug)]
struct NodeSlice<'a>(&'a [Node]);

impl Nodes for NodeSlice<'_> {
    fn links(&self, number: u32) -> &Links {
        &self.0[number as usize].links
    }
}
