//! The older designs: each kind of free pages with each kind of lists.

use super::{Memory, REGION, measure};
use crate::experiments::older::charges::{Charges, Stock};
use crate::experiments::older::free_pages::{Batches, CpuStock, FreePages, PageByPage};
use crate::experiments::older::lru_lists::{BATCH, LruLists, SideBySide, UnderOneLock};
use crate::experiments::older::records::Pages;
use crate::scaling::experiment::Scheme;

/// Linux 4.16.
pub(super) const BASELINE: Scheme = Scheme {
    name: "baseline",
    about: "Linux 4.16: a spinlock for each node's free pages, and one over all its LRU lists",
    hidden: false,
    measure: measure::<Older<PageByPage, UnderOneLock>>,
};

/// Free pages eased.
pub(super) const FREE: Scheme = Scheme {
    name: "free",
    about: "baseline, but free pages move in whole batches, and aren't merged (Aaron Lu)",
    hidden: false,
    measure: measure::<Older<Batches, UnderOneLock>>,
};

/// Lists eased.
pub(super) const LRU: Scheme = Scheme {
    name: "lru",
    about: "baseline, but LRU lists are changed side by side, in the shared mode of their lock (Daniel Jordan)",
    hidden: false,
    measure: measure::<Older<PageByPage, SideBySide>>,
};

/// Both.
pub(super) const BOTH: Scheme =
    Scheme { name: "both", about: "both of these", hidden: false, measure: measure::<Older<Batches, SideBySide>> };

struct Older<F, L> {
    pages: Pages,
    free: F,
    lists: L,
    charges: Charges,
    groups: usize,
}

struct Task {
    group: usize,
    stock: CpuStock,
    charges: Stock,
    /// Pages that wait to be listed.
    entering: Vec<u32>,
    region: Vec<u32>,
}

impl<F: FreePages, L: LruLists> Memory for Older<F, L> {
    type Task = Task;

    fn new(tasks: usize, groups: usize) -> Self {
        let pages = Pages::new(tasks * (REGION as usize + 128));
        Self { free: F::new(&pages), lists: L::new(), charges: Charges::new(groups), pages, groups }
    }

    fn begin(&self, task: usize) -> Task {
        Task {
            group: task % self.groups,
            stock: CpuStock::default(),
            charges: Stock::default(),
            entering: Vec::with_capacity(BATCH),
            region: Vec::with_capacity(REGION as usize),
        }
    }

    fn touch(&self, task: &mut Task, _: u64) {
        let page = task.stock.take(&self.free, &self.pages).expect("there are more pages than regions have");
        self.charges.charge(task.group, &mut task.charges);
        self.pages.zero(page);
        task.entering.push(page);
        task.region.push(page);
        if task.entering.len() == BATCH {
            self.lists.add(&self.pages, &task.entering);
            task.entering.clear();
        }
    }

    fn unmap(&self, task: &mut Task) {
        self.lists.add(&self.pages, &task.entering);
        task.entering.clear();
        for batch in task.region.chunks(32) {
            self.lists.delete(&self.pages, batch);
            batch.iter().for_each(|&page| task.stock.put(&self.free, &self.pages, page));
            self.charges.uncharge(task.group, &mut task.charges, batch.len() as u64);
        }
        task.region.clear();
    }
}
