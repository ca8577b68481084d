//! The older designs: Linux 4.16's fault path, with each kind of free pages ([`FreePages`]) and of
//! LRU lists ([`LruLists`]).
//!
//! A fault holds its space's semaphore for reading. It takes a page from the CPU's stock, charges
//! it, and zeroes it; pages are listed 15 at a time. Unmapping holds the semaphore for writing, and
//! takes pages off the lists 32 at a time. The rest of a fault (the trap, the page table) is
//! modelled as a fixed time, [`FAULT_NS`].

use std::sync::{Mutex, MutexGuard, PoisonError};

use sync::atomic::{AtomicU64, Ordering};

use super::{Memory, PAGE, measure};
use crate::experiments::older::NODES;
use crate::experiments::older::charges::{Charges, Stock};
use crate::experiments::older::free_pages::{Batches, Buddies, CpuStock, FreePages, HIGH};
use crate::experiments::older::lru_lists::{BATCH, LruLists, SideBySide, UnderOneLock};
use crate::experiments::older::records::Pages;
use crate::experiments::older::rw_sem::{RwSem, Use};
use crate::scaling::experiment::Scheme;
use crate::scaling::stage::own_work;

/// Linux 4.16.
pub(super) const BASELINE: Scheme = Scheme {
    name: "baseline",
    about: "Linux 4.16's locks: each space's semaphore, a spinlock for each node's free pages, one over its LRU lists",
    hidden: false,
    measure: measure::<Older<Buddies, UnderOneLock>>,
};
/// Free pages eased.
pub(super) const ZONE: Scheme = Scheme {
    name: "free-frames",
    about: "baseline, but free pages move in whole batches, and aren't merged (Aaron Lu)",
    hidden: false,
    measure: measure::<Older<Batches, UnderOneLock>>,
};
/// Lists eased.
pub(super) const LRU: Scheme = Scheme {
    name: "lru",
    about: "baseline, but LRU lists are changed side by side, in the shared mode of their lock (Daniel Jordan)",
    hidden: false,
    measure: measure::<Older<Buddies, SideBySide>>,
};
/// Both.
pub(super) const BOTH: Scheme = Scheme {
    name: "both",
    about: "both of these: then each space's semaphore is left",
    hidden: false,
    measure: measure::<Older<Batches, SideBySide>>,
};

/// The time for the trap, the page table, checks, and the page's part of unmapping. It is the only
/// figure that is fitted to the published table: with it, one task of the baseline makes 0.627 M
/// faults a second on the preset of the published machine, as published.
pub(super) const FAULT_NS: u64 = 945;
/// The time of the call that maps an area. It is a guess, and matters little because areas are
/// large.
const MAP_NS: u64 = 1_000;
/// Pages that are taken off the lists in one go: Linux's.
const UNMAP_BATCH: usize = 32;

struct Older<F, L> {
    spaces: Vec<RwSem>,
    pages: Pages,
    free: F,
    lists: L,
    charges: Charges,
    tasks: Box<[Own]>,
    next_area: AtomicU64,
    area: u64,
}

/// What belongs to one task, on cache lines of its own. The mutex is `std`'s: it is never
/// contended, and costs nothing on virtual CPUs.
#[derive(Default)]
#[repr(align(128))]
struct Own(Mutex<Task>);

impl Own {
    fn get(&self) -> MutexGuard<'_, Task> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a task's CPU has for itself.
#[derive(Default)]
struct Task {
    stock: CpuStock,
    charges: Stock,
    /// Pages that wait to be listed.
    entering: Vec<u32>,
    mapped: Vec<u32>,
}

impl<F: FreePages, L: LruLists> Memory for Older<F, L> {
    fn new(tasks: usize, shared: bool, area: u64) -> Self {
        // A task's pages are on its CPU's node. A single task has all its pages on one node.
        let most = if tasks == 1 { tasks } else { tasks.div_ceil(NODES) };
        let pages = Pages::new(most * ((area / PAGE) as usize + 2 * HIGH) + tasks * HIGH);
        Self {
            spaces: (0..if shared { 1 } else { tasks }).map(|_| RwSem::new(tasks)).collect(),
            free: F::new(&pages),
            pages,
            lists: L::new(),
            charges: Charges::new(1),
            tasks: (0..tasks).map(|_| Own::default()).collect(),
            next_area: AtomicU64::new(0),
            area,
        }
    }

    fn map(&self, task: usize) -> u64 {
        self.spaces[task % self.spaces.len()].with(task, Use::Write, || {
            own_work(MAP_NS);
            // Relaxed: a number.
            self.next_area.fetch_add(self.area, Ordering::Relaxed)
        })
    }

    fn touch(&self, task: usize, _: u64) {
        self.spaces[task % self.spaces.len()].with(task, Use::Read, || {
            let own = &mut *self.tasks[task].get();
            let page = own.stock.take(&self.free, &self.pages).expect("there are more pages than areas have");
            self.charges.charge(0, &mut own.charges);
            self.pages.zero(page);
            own_work(FAULT_NS);
            own.mapped.push(page);
            own.entering.push(page);
            if own.entering.len() == BATCH {
                self.lists.add(&self.pages, &own.entering);
                own.entering.clear();
            }
        });
    }

    fn unmap(&self, task: usize, _: u64) {
        self.spaces[task % self.spaces.len()].with(task, Use::Write, || {
            let own = &mut *self.tasks[task].get();
            self.lists.add(&self.pages, &own.entering);
            own.entering.clear();
            for batch in own.mapped.chunks(UNMAP_BATCH) {
                self.lists.delete(&self.pages, batch);
                batch.iter().for_each(|&page| own.stock.put(&self.free, &self.pages, page));
                self.charges.uncharge(0, &mut own.charges, batch.len() as u64);
            }
            own.mapped.clear();
        });
    }

    fn read(&self, _: usize, _: u64) {
        own_work(1); // Mapped: free.
    }
}
