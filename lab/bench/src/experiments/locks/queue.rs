//! A queue without a lock (Michael and Scott, "Simple, fast, and practical non-blocking and
//! blocking concurrent queue algorithms", PODC 1996). The first node is a dummy, whose value has
//! been taken. The tail may be one node behind the last node; a task that sees this moves the tail.
//!
//! Each link has a tag, which changes with each change of the link. So a compare-and-swap doesn't
//! mistake a link for an older link to the same node. An operation takes a value, and appends it
//! again in the node that became free.
//!
//! # Memory ordering
//! All links are read with Acquire and changed with Release, so a task that follows a link sees the
//! node behind it as it was enqueued. The tail is never behind the head: a task moves the head only
//! after it has seen that the tail is at another node. A task that later reads this head therefore
//! also sees the tail at that node, or further on.

use sync::atomic::{AtomicU64, Ordering};

use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "queue",
    about: "a Michael-Scott queue of 64 values, and one for each task; each operation takes the first and appends it",
    hidden: false,
    measure: |job| measure(job, new),
};

/// Values besides one for each task.
const VALUES: usize = 64;
/// No node.
const NONE: u32 = u32::MAX;

/// A node in the low half, a tag in the high one.
#[repr(align(64))]
struct End(AtomicU64);

#[repr(align(64))]
struct Node {
    /// As an [`End`].
    next: AtomicU64,
    value: AtomicU64,
}

struct Queue {
    head: End,
    tail: End,
    nodes: Box<[Node]>,
}

/// A queue for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    let node = |_| Node { next: AtomicU64::new(u64::from(NONE)), value: AtomicU64::new(0) };
    let nodes: Box<[Node]> = (0..=VALUES + tasks).map(node).collect();
    let queue = Queue { head: End(AtomicU64::new(0)), tail: End(AtomicU64::new(0)), nodes };
    (1..queue.nodes.len() as u32).for_each(|node| queue.enqueue(node, 0));
    queue
}

/// A link to `node` that follows `link`.
fn successor(link: u64, node: u32) -> u64 {
    ((link >> 32).wrapping_add(1) << 32) | u64::from(node)
}

/// Changes a link, unless another task has.
fn change(link: &AtomicU64, from: u64, node: u32) -> bool {
    // Release: see the module. Relaxed on failure: the value that was found isn't used.
    link.compare_exchange(from, successor(from, node), Ordering::Release, Ordering::Relaxed).is_ok()
}

impl Queue {
    fn node(&self, link: u64) -> &Node {
        &self.nodes[link as u32 as usize]
    }

    /// Appends a value in a node that is this task's alone.
    fn enqueue(&self, node: u32, value: u64) {
        let mine = self.node(u64::from(node));
        // Relaxed: the change of the last node's link publishes it.
        mine.value.store(value, Ordering::Relaxed);
        // Release pairs with the Acquire load of `next` below, in other tasks. Such a task may
        // still have this node as the tail, from before the node became free. If it loads this new
        // link, it also sees that the tail has moved on, and retries. The load is Relaxed because
        // no other task changes the link of a free node.
        mine.next.store(successor(mine.next.load(Ordering::Relaxed), NONE), Ordering::Release);
        loop {
            let tail = self.tail.0.load(Ordering::Acquire);
            let next = self.node(tail).next.load(Ordering::Acquire);
            // Relaxed: the Acquire load of `next` keeps this load behind it. If the tail is still
            // the same, `next` was the link of the last node.
            if self.tail.0.load(Ordering::Relaxed) != tail {
                continue;
            }
            if next as u32 != NONE {
                change(&self.tail.0, tail, next as u32);
            } else if change(&self.node(tail).next, next, node) {
                // If it fails, another task has helped.
                change(&self.tail.0, tail, node);
                return;
            }
        }
    }

    /// Takes the first value, and the node that is free then.
    fn dequeue(&self) -> Option<(u32, u64)> {
        loop {
            let head = self.head.0.load(Ordering::Acquire);
            let tail = self.tail.0.load(Ordering::Acquire);
            let next = self.node(head).next.load(Ordering::Acquire);
            // Relaxed: as in `enqueue`.
            if self.head.0.load(Ordering::Relaxed) != head {
                continue;
            }
            match (next as u32, head as u32 == tail as u32) {
                (NONE, _) => return None,
                (next, true) => _ = change(&self.tail.0, tail, next),
                (node, false) => {
                    // Relaxed: the Release of the change below keeps this load before it. After the
                    // change, another task may free the node and use it again.
                    let value = self.node(next).value.load(Ordering::Relaxed);
                    if change(&self.head.0, head, node) {
                        return Some((head as u32, value));
                    }
                }
            }
        }
    }
}

impl Shared for Queue {
    fn operate(&self, _: usize, _: u64) {
        let (node, value) = self.dequeue().expect("the other tasks have one value each at most");
        self.enqueue(node, value + 1);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        let values: Vec<(u32, u64)> = std::iter::from_fn(|| self.dequeue()).take(self.nodes.len()).collect();
        assert_eq!(values.len(), self.nodes.len() - 1);
        assert_eq!(values.iter().map(|(_, value)| value).sum::<u64>(), uses);
    }
}
