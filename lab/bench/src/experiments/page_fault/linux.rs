//! The old designs: a lock for the space, one for each node's free pages, one for each node's page
//! lists.
//!
//! Each of the latter two comes as it was, or eased as in the published patches: batches of free
//! pages cut off as one; batches of pages spliced onto the lists, and taken off them, without the
//! lock.

use std::cell::UnsafeCell;
use std::marker::PhantomData;

use span_lock::LockRange;
use sync::atomic::{AtomicU32, AtomicU64, Ordering, spin_hint};

use super::{AREA, Memory, PAGE, measure};
use crate::experiments::range::{Fair, FileLock, QueuedSpinlock, Use};
use crate::scaling::experiment::Scheme;
use crate::scaling::stage::{own_work, zero_work};

/// As it was.
pub(super) const BASELINE: Scheme = Scheme {
    name: "baseline",
    about: "Linux 4.18's locks: one of the space, one of each node's free pages, one of each node's page lists",
    hidden: false,
    measure: |job| measure::<Linux<Locked, Locked>>(job),
};
/// Free pages eased.
pub(super) const FREE_FRAMES: Scheme = Scheme {
    name: "free-frames",
    about: "the same, but batches of free pages are cut off without a look at each",
    hidden: false,
    measure: |job| measure::<Linux<Eased, Locked>>(job),
};
/// Page lists eased.
pub(super) const LRU: Scheme = Scheme {
    name: "lru",
    about: "as baseline, but batches go on the page lists without the lock, and pages are taken off by their \
            neighbours' words",
    hidden: false,
    measure: |job| measure::<Linux<Locked, Eased>>(job),
};
/// Both.
pub(super) const BOTH: Scheme = Scheme {
    name: "both",
    about: "both eased: then the lock of the space is left",
    hidden: false,
    measure: |job| measure::<Linux<Eased, Eased>>(job),
};

/// Which way a list is changed.
trait Way: Send + Sync {
    const EASED: bool;
}
struct Locked;
struct Eased;
impl Way for Locked {
    const EASED: bool = false;
}
impl Way for Eased {
    const EASED: bool = true;
}

/// Pages moved between a CPU's list of free pages and its node's at once, as in Linux
/// (`pcp->batch`).
const FREE_BATCH: usize = 31;
/// Free pages that a CPU keeps at most (`pcp->high`).
const FREE_MAX: usize = 186;
/// Pages put on the lists at once (a `pagevec`).
const LRU_BATCH: usize = 15;
/// Trap, page table, charge and checks: 1 / 0.627 M/s on one CPU, less zeroing and lists.
const FAULT_NS: u64 = 1_000;

/// A page's record: links of the list that it is on.
#[derive(Default)]
#[repr(align(64))]
struct Record {
    next: AtomicU32,
    prev: AtomicU32,
}

/// A line of a node's.
#[derive(Default)]
#[repr(align(64))]
struct Head(AtomicU64);

struct Node {
    free_lock: QueuedSpinlock,
    free_head: Head,
    free: UnderLock<Vec<u32>>,
    lru_lock: QueuedSpinlock,
    lru_head: Head,
}

/// A value that belongs to the holder of a lock, or to one task.
#[repr(align(64))]
struct UnderLock<T>(UnsafeCell<T>);

// SAFETY: `with` is called under the lock that belongs to the value, or by the one task that it is
// of.
unsafe impl<T: Send> Sync for UnderLock<T> {}

impl<T> UnderLock<T> {
    fn with<R>(&self, use_it: impl FnOnce(&mut T) -> R) -> R {
        // SAFETY: as above; calls aren't nested.
        use_it(unsafe { &mut *self.0.get() })
    }
}

/// What a task's CPU has for itself.
#[derive(Default)]
struct Cpu {
    free: Vec<u32>,
    entering: Vec<u32>,
    mapped: Vec<u32>,
}

/// All of it.
struct Linux<F, L> {
    spaces: Vec<Fair>,
    nodes: [Node; 2],
    records: Box<[Record]>,
    cpus: Box<[UnderLock<Cpu>]>,
    tasks: usize,
    next_area: AtomicU64,
    ways: PhantomData<(F, L)>,
}

impl<F: Way, L: Way> Linux<F, L> {
    fn node(&self, task: usize) -> &Node {
        &self.nodes[usize::from(2 * task >= self.tasks && self.tasks > 1)]
    }

    /// Touches a record as a task does that links or unlinks it.
    fn relink(&self, page: u32) {
        let record = &self.records[page as usize];
        // Relaxed: under a lock, or by the one that claimed the page.
        record.next.store(record.next.load(Ordering::Relaxed) ^ 1, Ordering::Relaxed);
        record.prev.store(page, Ordering::Relaxed);
    }

    fn refill(&self, task: usize, free: &mut Vec<u32>) {
        let node = self.node(task);
        node.free_lock.with(task, || {
            node.free_head.0.store(node.free_head.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            node.free.with(|all| {
                let from = all.len() - FREE_BATCH;
                if !F::EASED {
                    all[from..].iter().for_each(|&page| self.relink(page));
                }
                free.extend(all.drain(from..));
            });
        });
    }

    fn free_some(&self, task: usize, free: &mut Vec<u32>) {
        let node = self.node(task);
        let batch: Vec<u32> = free.drain(..FREE_BATCH).collect();
        if F::EASED {
            batch.iter().for_each(|&page| self.relink(page)); // Linked to each other before.
        }
        node.free_lock.with(task, || {
            node.free_head.0.store(node.free_head.0.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
            if !F::EASED {
                batch.iter().for_each(|&page| self.relink(page));
            }
            node.free.with(|all| all.extend(batch));
        });
    }

    /// Changes the page lists by a batch: adds it at the head, or takes it off.
    fn change_lists(&self, task: usize, batch: &[u32]) {
        let node = self.node(task);
        let head = &node.lru_head.0;
        if L::EASED {
            batch.iter().for_each(|&page| self.relink(page));
            // The splice: the head is taken for a moment. Acquire pairs with the Release below.
            while head.swap(1, Ordering::Acquire) == 1 {
                while head.load(Ordering::Relaxed) == 1 {
                    spin_hint();
                }
            }
            head.store(0, Ordering::Release);
        } else {
            node.lru_lock.with(task, || {
                for &page in batch {
                    self.relink(page);
                    head.store(u64::from(page) << 1, Ordering::Relaxed);
                }
            });
        }
    }
}

impl<F: Way, L: Way> Memory for Linux<F, L> {
    fn new(tasks: usize, shared: bool) -> Self {
        let pages = (tasks as u64 * AREA / PAGE) as usize + tasks * 2 * FREE_MAX;
        let half = pages as u32 / 2 + 4 * FREE_MAX as u32;
        let node = |first: u32| Node {
            free_lock: QueuedSpinlock::new(tasks),
            free_head: Head::default(),
            free: UnderLock(UnsafeCell::new((first..first + if tasks > 1 { half } else { 2 * half }).collect())),
            lru_lock: QueuedSpinlock::new(tasks),
            lru_head: Head::default(),
        };
        let spaces = if shared { 1 } else { tasks };
        Self {
            spaces: (0..spaces).map(|_| Fair::new(tasks)).collect(),
            nodes: [node(0), node(half)],
            records: (0..4 * half).map(|_| Record::default()).collect(),
            cpus: (0..tasks).map(|_| UnderLock(UnsafeCell::new(Cpu::default()))).collect(),
            tasks,
            next_area: AtomicU64::new(0),
            ways: PhantomData,
        }
    }

    fn map(&self, task: usize) -> u64 {
        let space = &self.spaces[task % self.spaces.len()];
        let mut area = 0;
        space.with(task, LockRange::FULL, Use::Write, || {
            // Relaxed: a number.
            area = self.next_area.fetch_add(AREA, Ordering::Relaxed);
            own_work(FAULT_NS);
        });
        area
    }

    fn unmap(&self, task: usize, _: u64) {
        let space = &self.spaces[task % self.spaces.len()];
        space.with(task, LockRange::FULL, Use::Write, || {
            self.cpus[task].with(|cpu| {
                let mapped = std::mem::take(&mut cpu.mapped);
                for batch in mapped.chunks(LRU_BATCH) {
                    self.change_lists(task, batch);
                    cpu.free.extend(batch);
                    while cpu.free.len() > FREE_MAX {
                        self.free_some(task, &mut cpu.free);
                    }
                }
                cpu.mapped = mapped;
                cpu.mapped.clear();
            });
        });
    }

    fn touch(&self, task: usize, _: u64) {
        let space = &self.spaces[task % self.spaces.len()];
        space.with(task, LockRange::FULL, Use::Read, || {
            self.cpus[task].with(|cpu| {
                if cpu.free.is_empty() {
                    self.refill(task, &mut cpu.free);
                }
                let Some(page) = cpu.free.pop() else { return };
                zero_work(PAGE as usize);
                own_work(FAULT_NS);
                cpu.mapped.push(page);
                cpu.entering.push(page);
                if cpu.entering.len() == LRU_BATCH {
                    let batch = std::mem::take(&mut cpu.entering);
                    self.change_lists(task, &batch);
                }
            });
        });
    }

    fn read(&self, _: usize, _: u64) {
        own_work(1); // Mapped: free.
    }
}
