//! A stack without a lock (R. K. Treiber, "Systems programming: coping with parallelism", IBM
//! 1986). Each change of the top gives the top another tag. So if a node is taken and put back, a
//! task that had read the top before finds another tag, and its exchange fails.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "stack",
    about: "a Treiber stack with as many nodes as tasks; each operation takes one off and puts it back",
    hidden: false,
    measure: |job| measure(job, new),
};

/// No node.
const NONE: u32 = u32::MAX;

#[derive(Default)]
#[repr(align(64))]
struct Node {
    next: AtomicU32,
    value: AtomicU64,
}

/// The top node in the low half, a tag in the high one.
#[repr(align(64))]
struct Top(AtomicU64);

struct Stack {
    top: Top,
    nodes: Box<[Node]>,
}

/// A stack for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    let stack =
        Stack { top: Top(AtomicU64::new(u64::from(NONE))), nodes: (0..tasks).map(|_| Node::default()).collect() };
    (0..tasks as u32).for_each(|node| stack.push(node));
    stack
}

/// The word after `top` with another node.
fn successor(top: u64, node: u32) -> u64 {
    ((top >> 32).wrapping_add(1) << 32) | u64::from(node)
}

impl Stack {
    fn node(&self, node: u32) -> &Node {
        &self.nodes[node as usize]
    }

    fn push(&self, node: u32) {
        // Relaxed: nothing is read through it.
        let mut top = self.top.0.load(Ordering::Relaxed);
        loop {
            // Relaxed: the exchange publishes the node.
            self.node(node).next.store(top as u32, Ordering::Relaxed);
            let to = successor(top, node);
            // Release pairs with the Acquire in `pop`.
            match self.top.0.compare_exchange_weak(top, to, Ordering::Release, Ordering::Relaxed) {
                Ok(_) => return,
                Err(now) => top = now,
            }
        }
    }

    fn pop(&self) -> Option<u32> {
        // Acquire, here and below, pairs with the Release in `push` of every node on the stack, not
        // only of the top one: the top is changed only by exchanges, so each change continues the
        // release sequences of all earlier pushes.
        let mut top = self.top.0.load(Ordering::Acquire);
        loop {
            let node = top as u32;
            if node == NONE {
                return None;
            }
            // Relaxed: if another task has taken the node meanwhile, the value may be wrong; but
            // then the top has another tag, and the exchange fails.
            let to = successor(top, self.node(node).next.load(Ordering::Relaxed));
            match self.top.0.compare_exchange_weak(top, to, Ordering::Acquire, Ordering::Acquire) {
                Ok(_) => return Some(node),
                Err(now) => top = now,
            }
        }
    }
}

impl Shared for Stack {
    fn operate(&self, _: usize, _: u64) {
        let node = self.pop().expect("the other tasks have one node each at most");
        let value = &self.node(node).value;
        // Relaxed: the node is this task's alone.
        value.store(value.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        self.push(node);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        let nodes: Vec<u32> = std::iter::from_fn(|| self.pop()).take(self.nodes.len() + 1).collect();
        assert_eq!(nodes.len(), self.nodes.len());
        // Relaxed: all tasks have ended.
        assert_eq!(nodes.iter().map(|&node| self.node(node).value.load(Ordering::Relaxed)).sum::<u64>(), uses);
    }
}
