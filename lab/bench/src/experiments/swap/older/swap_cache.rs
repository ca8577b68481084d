//! The older swap cache: for each 64 MiB of an area, a tree whose nodes have 64 slots, under a
//! lock.
//!
//! A page is in the swap cache only from shortly before it is written until the write has ended, so
//! trees are nearly empty. Usually, adding a page also adds a node to the tree, and removing the
//! page removes the node.

use sync::atomic::{AtomicU64, Ordering};

use super::region;
use crate::experiments::older::queued_spinlock::{Places, QueuedSpinlock};

/// Slots in 64 MiB.
pub(super) const TRUNK: usize = 1 << 14;
const NODE: usize = 64;

/// The part of the swap cache for one trunk.
pub(super) struct Trunk {
    lock: QueuedSpinlock,
    pages: Line<AtomicU64>,
    root: Box<[AtomicU64]>,
    /// The nodes above the leaves: which leaves there are.
    above: Box<[Node]>,
    /// Leaves are never freed. `above` says which of them are in the tree.
    leaves: Box<[sync::lock::OnceCell<Box<Node>>]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Line<T>(T);

/// Slots, and on a line of its own how many are used.
#[repr(align(64))]
struct Node {
    slots: [AtomicU64; NODE],
    count: Line<AtomicU64>,
}

/// The task that takes a lock.
pub(super) struct Holder<'a> {
    pub(super) places: &'a Places,
    pub(super) task: usize,
}

/// Statistics that all trunks share and write to without a lock for them, as in the kernel.
#[derive(Default)]
#[repr(align(64))]
pub(super) struct CacheInfo {
    added: AtomicU64,
    deleted: AtomicU64,
    looked_up: AtomicU64,
}

impl Node {
    fn new() -> Self {
        Self { slots: [const { AtomicU64::new(0) }; NODE], count: Line(AtomicU64::new(0)) }
    }
}

/// Adds to a counter. The caller must hold a lock that protects it, unless it may lose counts.
fn add(counter: &AtomicU64, n: u64) {
    // Relaxed: under a lock, or a statistic.
    counter.store(counter.load(Ordering::Relaxed).wrapping_add(n), Ordering::Relaxed);
}

impl Trunk {
    pub(super) fn new() -> Self {
        Self {
            lock: QueuedSpinlock::default(),
            pages: Line::default(),
            root: (0..TRUNK / NODE / NODE).map(|_| AtomicU64::new(0)).collect(),
            above: (0..TRUNK / NODE / NODE).map(|_| Node::new()).collect(),
            leaves: (0..TRUNK / NODE).map(|_| sync::lock::OnceCell::new()).collect(),
        }
    }

    /// Gives the lock's line its name in the profile.
    pub(super) fn name(&self) {
        self.lock.name();
    }

    /// Adds a page that is about to be written.
    pub(super) fn add(&self, slot: usize, holder: &Holder<'_>, info: &CacheInfo) {
        let _region = region("add_to_swap_cache");
        // Relaxed, all of it: under the lock.
        self.lock.with(holder.places, holder.task, || {
            let (leaf, above) = (self.leaf(slot), &self.above[slot / NODE / NODE]);
            if leaf.count.0.load(Ordering::Relaxed) == 0 {
                // A new node, all zeros, into the tree.
                leaf.slots.iter().for_each(|slot| slot.store(0, Ordering::Relaxed));
                above.slots[slot / NODE % NODE].store(1, Ordering::Relaxed);
                add(&above.count.0, 1);
                if above.count.0.load(Ordering::Relaxed) == 1 {
                    self.root[slot / NODE / NODE].store(1, Ordering::Relaxed);
                }
            }
            leaf.slots[slot % NODE].store(1, Ordering::Relaxed);
            add(&leaf.count.0, 1);
            add(&self.pages.0, 1);
            add(&info.added, 1);
        });
    }

    /// Removes a page that was written and is dropped.
    pub(super) fn remove(&self, slot: usize, holder: &Holder<'_>, info: &CacheInfo) {
        let _region = region("remove_mapping");
        // Relaxed, all the rest: under the lock.
        self.lock.with(holder.places, holder.task, || {
            self.is_there(slot);
            let (leaf, above) = (self.leaf(slot), &self.above[slot / NODE / NODE]);
            // Release: the page's bytes are on the device.
            leaf.slots[slot % NODE].store(0, Ordering::Release);
            add(&leaf.count.0, u64::MAX);
            if leaf.count.0.load(Ordering::Relaxed) == 0 {
                above.slots[slot / NODE % NODE].store(0, Ordering::Relaxed);
                add(&above.count.0, u64::MAX);
                if above.count.0.load(Ordering::Relaxed) == 0 {
                    self.root[slot / NODE / NODE].store(0, Ordering::Relaxed);
                }
            }
            add(&self.pages.0, u64::MAX);
            add(&info.deleted, 1);
        });
    }

    /// Looks a slot's page up, without the lock.
    pub(super) fn look_up(&self, slot: usize, info: &CacheInfo) -> bool {
        add(&info.looked_up, 1);
        self.is_there(slot)
    }

    fn is_there(&self, slot: usize) -> bool {
        // Acquire: as readers do that have no lock.
        let set = |word: &AtomicU64| word.load(Ordering::Acquire) != 0;
        set(&self.root[slot / NODE / NODE])
            && set(&self.above[slot / NODE / NODE].slots[slot / NODE % NODE])
            && set(&self.leaf(slot).slots[slot % NODE])
    }

    fn leaf(&self, slot: usize) -> &Node {
        self.leaves[slot / NODE].get_or_init(|| Box::new(Node::new()))
    }
}
