//! A file's pages in a radix tree, as Linux had it: 64 slots in a node, a record with a count for
//! each page.
//!
//! The tree's nodes stay; pages come and go. All slots are atomics. A reader under a lock could
//! load plain words, but a reader without a lock can't, and both must pay for what they load.

use super::seam::{AtomicU32, AtomicU64, Ordering};

/// Bits of a page's number that a node decides.
const SHIFT: u32 = 6;
const SLOTS: usize = 1 << SHIFT;

/// 0, or one more than the number of a node below, or of a page.
type Slot = AtomicU64;

#[repr(align(64))]
struct Node {
    slots: [Slot; SLOTS],
}

/// A page's record, on a line of its own.
#[repr(align(64))]
pub(super) struct Page {
    /// Users, the tree among them; 0 means that the page is being freed.
    pub(super) count: AtomicU32,
    /// Its place in memory.
    pub(super) number: usize,
}

/// Pages by their number in the file.
pub(super) struct Tree {
    /// Levels of nodes.
    height: AtomicU32,
    /// The root first.
    nodes: Vec<Node>,
    pages: Box<[Page]>,
}

impl Tree {
    /// A tree of the pages `0..pages`. No virtual CPU touches its lines yet: each line is in the
    /// memory of the task that touches it first.
    pub(super) fn new(pages: u64) -> Self {
        let height = (1..).find(|&height| pages <= 1 << (SHIFT * height)).unwrap_or(1);
        let mut nodes = vec![[0_u64; SLOTS]];
        for page in 0..pages {
            let mut node = 0;
            for level in (1..height).rev() {
                let slot = slot_of(page, level);
                if nodes[node][slot] == 0 {
                    nodes.push([0; SLOTS]);
                    nodes[node][slot] = nodes.len() as u64;
                }
                node = nodes[node][slot] as usize - 1;
            }
            nodes[node][slot_of(page, 0)] = page + 1;
        }
        let nodes = nodes.into_iter().map(|slots| Node { slots: slots.map(AtomicU64::new) }).collect();
        let pages = (0..pages as usize).map(|number| Page { count: AtomicU32::new(1), number }).collect();
        Self { height: AtomicU32::new(height), nodes, pages }
    }

    /// Takes a page out of the tree and puts it back, under a lock that other changes take. Gives
    /// up if the page has users besides the tree.
    pub(super) fn change(&self, index: u64) {
        let Some(slot) = self.slot(index) else { return };
        let value = slot.load(Ordering::Relaxed);
        let Some(page) = self.page(value) else { return };
        // Acquire pairs with the Release in `put`: the last user is done with the page.
        if page.count.compare_exchange(1, 0, Ordering::Acquire, Ordering::Relaxed).is_ok() {
            slot.store(0, Ordering::Relaxed);
            page.count.store(1, Ordering::Relaxed);
            // Release pairs with the Acquire of readers.
            slot.store(value, Ordering::Release);
        }
    }

    /// The slot in which page `index` is, if it is in the tree.
    #[inline]
    pub(super) fn slot(&self, index: u64) -> Option<&AtomicU64> {
        // Relaxed: a tree grows at its root, and readers of an older height find the same pages.
        let height = self.height.load(Ordering::Relaxed);
        if index >> (SHIFT * height) != 0 {
            return None;
        }
        let mut node = self.nodes.first()?;
        for level in (1..height).rev() {
            // Acquire pairs with the publication of the node below: its slots are seen as they were
            // then.
            let below = node.slots[slot_of(index, level)].load(Ordering::Acquire);
            node = self.nodes.get(usize::try_from(below.checked_sub(1)?).ok()?)?;
        }
        Some(&node.slots[slot_of(index, 0)])
    }

    /// The page that a slot's value means, if any.
    #[inline]
    pub(super) fn page(&self, value: u64) -> Option<&Page> {
        self.pages.get(usize::try_from(value.checked_sub(1)?).ok()?)
    }
}

#[inline]
fn slot_of(index: u64, level: u32) -> usize {
    (index >> (SHIFT * level)) as usize % SLOTS
}

impl Page {
    /// One user more. The caller knows that there is one already, or holds the lock of the tree.
    #[inline]
    pub(super) fn get(&self) {
        // Relaxed: a page that is known to stay needs no ordering to be counted once more.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// One user more, unless the page is being freed.
    #[inline]
    pub(super) fn get_unless_zero(&self) -> bool {
        // Acquire pairs with the Release in `put` of the task that used the page's memory before.
        self.count.fetch_update(Ordering::Acquire, Ordering::Relaxed, |count| (count != 0).then(|| count + 1)).is_ok()
    }

    /// One user less.
    #[inline]
    pub(super) fn put(&self) {
        // Release: what this user read was read before the page can be used for something else.
        self.count.fetch_sub(1, Ordering::Release);
    }
}
