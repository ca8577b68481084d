//! The collection of the lock proposed for Linux: an interval tree. Here it is a treap (Seidel and
//! Aragon, "Randomized search trees", 1996) in which each node knows the greatest end in its
//! subtree. Linux uses a red-black tree, whose depth differs at most by a constant factor.

use span_lock::LockRange;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::random::mix;

use super::counting::{Counting, Ranges};
use super::measure;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "interval-tree",
    about: "the range lock proposed for Linux: all ranges in an interval tree under a spinlock, each waiter counts \
            its conflicts",
    hidden: false,
    measure: |job| measure::<Counting<Treap>>(job),
};

/// No node. Tasks are numbered from 1 here.
const NONE: u32 = 0;

/// A task's node: on Linux it is on the task's stack.
#[derive(Default)]
#[repr(align(64))]
struct Node {
    start: AtomicU64,
    end: AtomicU64,
    /// The largest end in the subtree.
    reach: AtomicU64,
    left: AtomicU32,
    right: AtomicU32,
}

/// The tree. All under the spinlock, so `Relaxed` throughout.
pub(super) struct Treap {
    nodes: Box<[Node]>,
    root: Root,
}

#[derive(Default)]
#[repr(align(64))]
struct Root(AtomicU32);

fn load(word: &AtomicU64) -> u64 {
    word.load(Ordering::Relaxed)
}

fn link(word: &AtomicU32) -> u32 {
    word.load(Ordering::Relaxed)
}

impl Treap {
    fn node(&self, at: u32) -> &Node {
        &self.nodes[at as usize]
    }

    fn key(&self, at: u32) -> (u64, u32) {
        (load(&self.node(at).start), at)
    }

    fn reach(&self, at: u32) -> u64 {
        if at == NONE { 0 } else { load(&self.node(at).reach) }
    }

    fn update(&self, at: u32) {
        let node = self.node(at);
        let reach = load(&node.end).max(self.reach(link(&node.left))).max(self.reach(link(&node.right)));
        if reach != load(&node.reach) {
            node.reach.store(reach, Ordering::Relaxed);
        }
    }

    /// Cuts a tree in two: what comes before `key`, and the rest.
    fn split(&self, at: u32, key: (u64, u32)) -> (u32, u32) {
        if at == NONE {
            return (NONE, NONE);
        }
        let node = self.node(at);
        if self.key(at) < key {
            let (low, high) = self.split(link(&node.right), key);
            node.right.store(low, Ordering::Relaxed);
            self.update(at);
            (at, high)
        } else {
            let (low, high) = self.split(link(&node.left), key);
            node.left.store(high, Ordering::Relaxed);
            self.update(at);
            (low, at)
        }
    }

    fn join(&self, low: u32, high: u32) -> u32 {
        if low == NONE || high == NONE {
            return low.max(high);
        }
        if rank(low) > rank(high) {
            let node = self.node(low);
            node.right.store(self.join(link(&node.right), high), Ordering::Relaxed);
            self.update(low);
            low
        } else {
            let node = self.node(high);
            node.left.store(self.join(low, link(&node.left)), Ordering::Relaxed);
            self.update(high);
            high
        }
    }

    /// Inserts below `at`: goes down by rank, then cuts what it meets.
    fn insert_at(&self, at: u32, new: u32) -> u32 {
        if at == NONE || rank(new) > rank(at) {
            let (low, high) = self.split(at, self.key(new));
            self.node(new).left.store(low, Ordering::Relaxed);
            self.node(new).right.store(high, Ordering::Relaxed);
            self.update(new);
            return new;
        }
        let node = self.node(at);
        let side = if self.key(new) < self.key(at) { &node.left } else { &node.right };
        let (old, below) = (link(side), self.insert_at(link(side), new));
        if old != below {
            side.store(below, Ordering::Relaxed);
        }
        self.update(at);
        at
    }

    fn remove_at(&self, at: u32, gone: u32) -> u32 {
        let node = self.node(at);
        if at == gone {
            return self.join(link(&node.left), link(&node.right));
        }
        let side = if self.key(gone) < self.key(at) { &node.left } else { &node.right };
        let (old, below) = (link(side), self.remove_at(link(side), gone));
        if old != below {
            side.store(below, Ordering::Relaxed);
        }
        self.update(at);
        at
    }

    fn visit_at(&self, at: u32, range: LockRange, visit: &mut impl FnMut(usize)) {
        if at == NONE || self.reach(at) <= range.start() {
            return;
        }
        let node = self.node(at);
        self.visit_at(link(&node.left), range, visit);
        if load(&node.start) < range.end() {
            if load(&node.end) > range.start() {
                visit(at as usize - 1);
            }
            self.visit_at(link(&node.right), range, visit);
        }
    }
}

/// A node's rank. Nodes of larger rank are further up.
fn rank(at: u32) -> u64 {
    mix(u64::from(at))
}

impl Ranges for Treap {
    fn new(tasks: usize) -> Self {
        Self { nodes: (0..=tasks).map(|_| Node::default()).collect(), root: Root::default() }
    }

    fn insert(&self, task: usize, range: LockRange) {
        let new = task as u32 + 1;
        self.node(new).start.store(range.start(), Ordering::Relaxed);
        self.node(new).end.store(range.end(), Ordering::Relaxed);
        let root = self.insert_at(link(&self.root.0), new);
        self.root.0.store(root, Ordering::Relaxed);
    }

    fn remove(&self, task: usize, _: LockRange) {
        let root = self.remove_at(link(&self.root.0), task as u32 + 1);
        self.root.0.store(root, Ordering::Relaxed);
    }

    fn overlapping(&self, range: LockRange, mut visit: impl FnMut(usize)) {
        self.visit_at(link(&self.root.0), range, &mut visit);
    }
}
