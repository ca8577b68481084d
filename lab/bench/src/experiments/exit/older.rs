//! The older designs: a used page goes to the head of its list, 15 at a time.

use super::{Memory, PRIVATE, SHARED, measure};
use crate::experiments::older::NODES;
use crate::experiments::older::free_pages::{Batches, CpuStock, FreePages};
use crate::experiments::older::lru_lists::{BATCH, LruLists, SideBySide, UnderOneLock};
use crate::experiments::older::records::Pages;
use crate::scaling::experiment::Scheme;

/// Linux.
pub(super) const ONE_LOCK: Scheme = Scheme {
    name: "one-lock",
    about: "used pages are moved under the lock over all LRU lists of a node, 15 at a time",
    hidden: false,
    measure: measure::<Older<UnderOneLock>>,
};

/// As proposed.
pub(super) const SIDE_BY_SIDE: Scheme = Scheme {
    name: "side-by-side",
    about: "used pages are moved side by side, in the shared mode of that lock (Daniel Jordan)",
    hidden: false,
    measure: measure::<Older<SideBySide>>,
};

struct Older<L> {
    pages: Pages,
    free: Batches,
    lists: L,
    shared: Vec<u32>,
}

struct Owner {
    stock: CpuStock,
    private: Vec<u32>,
    used: Vec<u32>,
}

impl<L: LruLists> Memory for Older<L> {
    type Owner = Owner;

    fn new(owners: usize) -> Self {
        let pages = Pages::new((owners * (PRIVATE as usize + 128) + SHARED as usize) / NODES + 64);
        let (free, lists) = (Batches::new(&pages), L::new());
        let mut stock = CpuStock::default();
        let shared: Vec<u32> = (0..SHARED).filter_map(|_| stock.take(&free, &pages)).collect();
        lists.add(&pages, &shared);
        Self { pages, free, lists, shared }
    }

    fn begin(&self, _: usize) -> Owner {
        Owner { stock: CpuStock::default(), private: Vec::new(), used: Vec::with_capacity(BATCH) }
    }

    fn take(&self, owner: &mut Owner, _: u64) {
        let page = owner.stock.take(&self.free, &self.pages).expect("there are more pages than owners have");
        self.pages.zero(page);
        owner.private.push(page);
        if owner.private.len().is_multiple_of(BATCH) {
            self.lists.add(&self.pages, &owner.private[owner.private.len() - BATCH..]);
        }
    }

    fn hand_on(&self, owner: &mut Owner, page: u64) {
        owner.used.push(self.shared[page as usize]);
        if owner.used.len() == BATCH {
            self.lists.touch(&self.pages, &owner.used);
            owner.used.clear();
        }
    }

    fn end(&self, owner: &mut Owner) {
        let listed = owner.private.len() / BATCH * BATCH;
        self.lists.delete(&self.pages, &owner.private[..listed]);
        owner.private.drain(..).for_each(|page| owner.stock.put(&self.free, &self.pages, page));
    }
}
