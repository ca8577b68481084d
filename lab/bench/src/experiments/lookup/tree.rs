//! A file's pages in a radix tree, as in Linux: each node has 64 slots, and each page has a record
//! with a count.
//!
//! Nodes are never removed; pages are removed and put back. All slots are atomics. Readers that
//! hold a lock could load plain words, but readers without a lock need atomics. With atomics
//! everywhere, both kinds of readers pay for their loads on virtual CPUs.

use super::seam::{AtomicU32, AtomicU64, Ordering};

/// Bits of a page's number that a node decides.
const SHIFT: u32 = 6;
const SLOTS: usize = 1 << SHIFT;

/// 0, or one more than the number of a page or of a node of the next level.
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
    /// A tree of the pages `0..pages`. On virtual CPUs, a line is in the memory of the task that
    /// touches it first; building the tree doesn't count as a touch.
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

    /// Removes a page from the tree and puts it back, unless the page has users besides the tree.
    /// The caller must hold the lock that all changes take.
    pub(super) fn change(&self, index: u64) {
        let Some(slot) = self.slot(index) else { return };
        let value = slot.load(Ordering::Relaxed);
        let Some(page) = self.page(value) else { return };
        // Acquire pairs with the Release in `put`: the last user has finished with the page.
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
        // Relaxed: the height doesn't change while tasks use the tree.
        let height = self.height.load(Ordering::Relaxed);
        if index >> (SHIFT * height) != 0 {
            return None;
        }
        let mut node = self.nodes.first()?;
        for level in (1..height).rev() {
            // Acquire pairs with the Release that would publish a new node: a reader sees the
            // node's slots as they were then.
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
    /// Adds a user. The caller must know that the page has a user already, or hold the tree's lock.
    #[inline]
    pub(super) fn get(&self) {
        // Relaxed: the page can't be freed meanwhile, so there is nothing to order.
        self.count.fetch_add(1, Ordering::Relaxed);
    }

    /// One user more, unless the page is being freed.
    #[inline]
    pub(super) fn get_unless_zero(&self) -> bool {
        // Acquire pairs with the Release in `put` of an earlier user of the page's memory.
        self.count.fetch_update(Ordering::Acquire, Ordering::Relaxed, |count| (count != 0).then(|| count + 1)).is_ok()
    }

    /// One user less.
    #[inline]
    pub(super) fn put(&self) {
        // Release pairs with the Acquire in `change`: this user has finished reading the page
        // before the page's memory can be used for another page.
        self.count.fetch_sub(1, Ordering::Release);
    }
}
