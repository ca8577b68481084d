//! The older designs: a process that ends decrements the counts of each page, and marks the page as
//! used. A page that is marked for the second time is activated, in batches of 15 pages.

use sync::atomic::Ordering;

use super::{Memory, SHARED, measure};
use crate::experiments::older::NODES;
use crate::experiments::older::lru_lists::{BATCH, LruLists, SideBySide, UnderOneLock};
use crate::experiments::older::records::Pages;
use crate::scaling::experiment::Scheme;
use crate::scaling::stage::own_work;

/// Linux.
pub(super) const ONE_LOCK: Scheme = Scheme {
    name: "one-lock",
    about: "used pages are activated under the lock over all LRU lists of a node, 15 at a time",
    hidden: false,
    measure: measure::<Older<UnderOneLock>>,
};

/// As proposed.
pub(super) const SIDE_BY_SIDE: Scheme = Scheme {
    name: "side-by-side",
    about: "used pages are activated side by side, in the shared mode of that lock (Daniel Jordan)",
    hidden: false,
    measure: measure::<Older<SideBySide>>,
};

/// The time to clear an entry of the page table, and for other work on a page: a guess.
const ENTRY_NS: u64 = 30;

/// Bits of a page's `flags`.
const REFERENCED: u32 = 1;

struct Older<L> {
    pages: Pages,
    lists: L,
    /// The pages' numbers.
    shared: Vec<u32>,
}

struct Space {
    /// Pages that wait to be activated.
    activating: Vec<u32>,
}

impl<L: LruLists> Memory for Older<L> {
    type Space = Space;

    fn new(spaces: usize) -> Self {
        let pages = Pages::new(SHARED as usize / NODES);
        let lists = L::new();
        // A part of the file on each node.
        let shared: Vec<u32> = (0..NODES).flat_map(|node| pages.of_node(node).take(SHARED as usize / NODES)).collect();
        for &page in &shared {
            let record = pages.record(page);
            record.owner.store(spaces as u32, Ordering::Relaxed);
            record.below.store(spaces as u32 + 1, Ordering::Relaxed);
        }
        shared.chunks(BATCH).for_each(|batch| lists.add(&pages, batch));
        Self { pages, lists, shared }
    }

    fn begin(&self) -> Space {
        Space { activating: Vec::with_capacity(BATCH) }
    }

    /// A record's `owner` counts mappings here, and `below` users.
    fn unmap(&self, space: &mut Space, page: u64) {
        own_work(ENTRY_NS);
        let page = self.shared[page as usize];
        let record = self.pages.record(page);
        // Relaxed throughout: what matters is which lines move.
        if record.flags.load(Ordering::Relaxed) & REFERENCED == 0 {
            record.flags.fetch_or(REFERENCED, Ordering::Relaxed);
        } else if !self.lists.is_active(&self.pages, page) {
            space.activating.push(page);
            if space.activating.len() == BATCH {
                self.lists.activate(&self.pages, &space.activating);
                space.activating.clear();
            }
        }
        record.owner.fetch_sub(1, Ordering::Relaxed);
        record.below.fetch_sub(1, Ordering::Relaxed);
    }

    fn end(&self, space: Space) {
        self.lists.activate(&self.pages, &space.activating);
    }
}
