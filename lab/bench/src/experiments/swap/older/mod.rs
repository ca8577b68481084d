//! The older designs: a page's path to swap and back in Linux 5.7, with three ways to allocate
//! slots.
//!
//! A fault holds its space's semaphore for reading. It takes a page from the CPU's stock, charges
//! it, copies the bytes from the area, maps the page, and frees its slot. Pages are listed 15 at a
//! time, on the active list. If there is no free page, the fault reclaims 32 pages (see
//! `reclaim.rs`). There are two areas, one for each socket, on devices that are memory.
//!
//! The rest of a fault's work is modelled as a fixed time, [`OTHER_NS`], half of it for the page
//! that is swapped in and half for the page that is swapped out. It is the only figure that is
//! fitted to the published table.
//!
//! Not modelled: readahead, the lock over the list of areas, kernel threads, interrupts. A fault on
//! a page that is being written waits until the write has ended; Linux would take the page back.
//! The areas aren't fragmented by discarding pages: half of each area's slots, chosen at random,
//! are in use from the beginning.

mod area;
mod clustered;
mod page_table;
mod reclaim;
mod swap_cache;
mod trunked;

use std::ops::Range;
use std::sync::atomic::AtomicU64 as HostU64;
use std::sync::{Mutex, MutexGuard, PoisonError};

use anyhow::Result;
use sync::atomic::{AtomicBool, Backoff, Ordering, fence};

use super::{Memory, PAGE, Sizes, measure};
use crate::experiments::older::NODES;
use crate::experiments::older::charges::{Charges, Stock};
use crate::experiments::older::free_pages::{BATCH as BUDDY_BATCH, Buddies, CpuStock, FreePages};
use crate::experiments::older::lru_lists::{BATCH, LruLists, UnderOneLock};
use crate::experiments::older::records::Pages;
use crate::experiments::older::rw_sem::{RwSem, Use};
use crate::scaling::experiment::Scheme;
use crate::scaling::job::Job;
use crate::scaling::sample::{Counts, Sample};
use crate::scaling::stage::own_work;
use area::{Area, Slots};
use clustered::Clustered;
use page_table::{Entry, PageTable};
use trunked::Trunked;

/// Linux 5.7.
pub(super) const SHARED_POSITION: Scheme = Scheme {
    name: "shared-position",
    about: "Linux 5.7: all CPUs look for a free slot from the same place on; the swap cache has a lock for each 64 MiB",
    hidden: false,
    measure: measure_older::<Trunked<trunked::Shared>>,
};

/// Huang Ying's.
pub(super) const CPU_POSITIONS: Scheme = Scheme {
    name: "cpu-positions",
    about: "the same, but each CPU looks from its own place on, which jumps to a random 64 MiB when it comes to others",
    hidden: false,
    measure: measure_older::<Trunked<trunked::Own>>,
};

/// Huang Ying's at the worst.
pub(super) const IN_STEP: Scheme = Scheme {
    name: "in-step",
    about: "cpu-positions, but all CPUs begin at the same place and jump to the same ones (only when asked for)",
    hidden: true,
    measure: measure_older::<Trunked<trunked::InStep>>,
};

/// Kairui Song's.
pub(super) const CPU_CLUSTERS: Scheme = Scheme {
    name: "cpu-clusters",
    about: "Linux 6.18: each CPU takes slots from a cluster of 512 of its own, which has a lock and a part of the swap \
            cache",
    hidden: false,
    measure: measure_older::<Clustered>,
};

/// The time of a fault, and of reclaiming a page, that isn't modelled otherwise: half for each.
/// With it, 16 tasks with positions of their own swap in 3.30 GB/s on the preset of the published
/// machine, as published.
const OTHER_NS: u64 = 17_500;
/// One for each socket.
const AREAS: usize = NODES;
/// The position of the area's number in a swapped entry of a page table.
const AREA_SHIFT: usize = 40;

fn measure_older<S: Slots>(job: &Job<'_>) -> Result<Sample> {
    measure(job, |sizes| Older::<S>::new(sizes, job.tasks))
}

struct Older<S> {
    /// The semaphore of each space.
    spaces: Vec<RwSem>,
    pages: Pages,
    free: Buddies,
    lists: UnderOneLock,
    charges: Charges,
    table: PageTable,
    areas: Vec<Area<S>>,
    tasks: Box<[Own]>,
    /// For each space, the number of the first page that isn't mapped yet. A space has
    /// `pages_of_space`.
    next: Vec<HostU64>,
    pages_of_space: u64,
}

/// A task's own, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
struct Own {
    /// Whether it is in the middle of an access.
    accesses: AtomicBool,
    /// Pages that came from an area, and that went to one.
    came: HostU64,
    went: HostU64,
    /// The mutex is `std`'s: it is never contended, and costs nothing on virtual CPUs.
    task: Mutex<Task>,
}

impl Own {
    fn get(&self) -> MutexGuard<'_, Task> {
        self.task.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What a task's CPU has for itself.
#[derive(Default)]
struct Task {
    stock: CpuStock,
    charges: Stock,
    /// Pages that wait to be listed.
    entering: Vec<u32>,
}

impl<S: Slots> Older<S> {
    fn new(sizes: Sizes, tasks: usize) -> Self {
        let pages = Pages::new((sizes.budget as usize).div_ceil(NODES));
        let free = Buddies::new(&pages);
        // `Pages` rounds up to whole blocks of the largest order, which may exceed the budget. The
        // pages beyond the budget are taken here, and never freed.
        for batch in 0..(pages.records.len() - sizes.budget as usize) / BUDDY_BATCH {
            let mut taken = Vec::new();
            free.take(&pages, batch % NODES, &mut taken);
        }
        let spaces = if sizes.own_spaces { tasks } else { 1 };
        let pages_of_space = sizes.region.div_ceil(spaces as u64);
        Self {
            spaces: (0..spaces).map(|_| RwSem::new(tasks)).collect(),
            pages,
            free,
            lists: UnderOneLock::new(),
            charges: Charges::new(1),
            table: PageTable::new(spaces * pages_of_space as usize),
            areas: (0..AREAS).map(|_| Area::new(tasks)).collect(),
            tasks: (0..tasks).map(|_| Own::default()).collect(),
            next: (0..spaces).map(|_| HostU64::new(0)).collect(),
            pages_of_space,
        }
    }

    /// Calls `what` with the page at an address and the offset in it. Swaps the page in first if
    /// necessary.
    fn access<R>(&self, task: usize, address: u64, what: impl Fn(u32, usize) -> R) -> R {
        let (at, offset) = ((address / PAGE) as usize, (address % PAGE) as usize);
        let accesses = &self.tasks[task].accesses;
        loop {
            // SeqCst pairs with that in `wait_for_users_of`.
            accesses.store(true, Ordering::Relaxed);
            fence(Ordering::SeqCst);
            let result = match self.table.use_page(at) {
                Entry::Present(page) => Some(what(page, offset)),
                Entry::None | Entry::Swapped(_) => None,
            };
            accesses.store(false, Ordering::Release);
            match result {
                Some(result) => return result,
                None => self.fault(task, at),
            }
        }
    }

    /// Brings a page into memory.
    fn fault(&self, task: usize, at: usize) {
        self.spaces[task % self.spaces.len()].with(task, Use::Read, || {
            let own = &mut *self.tasks[task].get();
            let page = self.free_page(task, own);
            {
                let _region = region("charge");
                self.charges.charge(0, &mut own.charges);
            }
            let found = self.table.get(at);
            match found {
                Entry::Present(_) => {}
                Entry::None => self.pages.zero(page),
                Entry::Swapped(slot) => self.swap_in(task, slot, page),
            }
            // Relaxed: published with the list.
            self.pages.record(page).owner.store(at as u32, Ordering::Relaxed);
            let is_ours = !matches!(found, Entry::Present(_)) && self.table.replace(at, found, Entry::Present(page));
            if !is_ours {
                // Another thread of the process was faster.
                self.charges.uncharge(0, &mut own.charges, 1);
                return own.stock.put(&self.free, &self.pages, page);
            }
            if let Entry::Swapped(slot) = found {
                let (area, slot) = self.place(slot);
                area.slots.free(task, slot);
            }
            own.entering.push(page);
            if own.entering.len() == BATCH {
                self.list(own);
            }
        });
    }

    fn swap_in(&self, task: usize, slot: u64, page: u32) {
        let (area, slot) = self.place(slot);
        let mut backoff = Backoff::new();
        while area.slots.is_cached(slot) {
            backoff.wait();
        }
        self.pages.bytes(page).copy_from_shared(area.bytes(slot));
        own_work(OTHER_NS / 2);
        self.tasks[task].came.fetch_add(1, Ordering::Relaxed);
    }

    /// Lists the new pages on the active list, as Linux did with anonymous pages until 5.8.
    fn list(&self, own: &mut Task) {
        let _region = region("lru_add");
        self.lists.put(&self.pages, &own.entering, true);
        own.entering.clear();
    }

    /// The area and the slot that a page table names.
    fn place(&self, slot: u64) -> (&Area<S>, usize) {
        let slot = slot as usize;
        (&self.areas[slot >> AREA_SHIFT], slot & ((1 << AREA_SHIFT) - 1))
    }

    /// The tasks of the space to which a page belongs.
    fn tasks_of(&self, at: usize) -> Range<usize> {
        let space = at / self.pages_of_space as usize;
        if self.spaces.len() == 1 { 0..self.tasks.len() } else { space..space + 1 }
    }
}

impl<S: Slots> Memory for Older<S> {
    const BEGINS_FRAGMENTED: bool = true;

    fn map(&self, task: usize, pages: u64) -> u64 {
        let space = task % self.spaces.len();
        let first = self.next[space].fetch_add(pages, Ordering::Relaxed);
        assert!(first + pages <= self.pages_of_space, "it is told how many pages there will be");
        (space as u64 * self.pages_of_space + first) * PAGE
    }

    fn fill(&self, task: usize, address: u64, bytes: &[u8; PAGE as usize]) {
        self.access(task, address, |page, _| self.pages.fill(page, bytes));
    }

    fn discard(&self, _: usize, _: u64) {
        unreachable!("its areas are fragmented from the beginning");
    }

    fn read(&self, task: usize, address: u64) -> u64 {
        self.access(task, address, |page, offset| self.pages.read(page, offset))
    }

    fn write(&self, task: usize, address: u64, word: u64) {
        self.access(task, address, |page, offset| self.pages.write(page, offset, word));
    }

    fn count(&self) -> Counts {
        let sum =
            |of: fn(&Own) -> &HostU64| self.tasks.iter().map(|task| of(task).load(Ordering::Relaxed)).sum::<u64>();
        let (came, went) = (sum(|task| &task.came), sum(|task| &task.went));
        Counts { faults: came, bytes_in: came * PAGE, bytes_out: went * PAGE }
    }
}

/// A region of the profile, on virtual CPUs.
fn region(name: &str) -> impl Sized {
    #[cfg(pagefold_manycore)]
    return manycore::profile::region(name);
    #[cfg(not(pagefold_manycore))]
    return name.len();
}
