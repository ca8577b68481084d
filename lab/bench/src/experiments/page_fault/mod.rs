//! How first touches of anonymous memory scale: models Linux 4.18's fault path with the two list
//! locks (free pages, page lists) relaxed one at a time, then together, as in Daniel Jordan's
//! patches of 2018, next to a space of Pagefold.
//!
//! The old designs do the same work a fault: lock the space, take a frame from a list of the CPU's
//! which is filled from its node's under a lock, zero it, put it in a batch that goes on the node's
//! page lists under another lock. The rest of a fault, the trap and the page table, is named work.
//! Areas are smaller than the published 128 MiB on virtual CPUs, where time is short.

#[cfg(not(pagefold_manycore))]
mod kernel;
mod linux;
mod pagefold;
mod published;

use anyhow::Result;

use crate::scaling::experiment::{Bound, Claim, Experiment, Measure, Scheme, Workload};
use crate::scaling::job::{Job, Sample};

const PAGE: u64 = 4096;
/// Bytes that a task maps, touches and unmaps.
const AREA: u64 = if cfg!(pagefold_manycore) { 2 << 20 } else { 128 << 20 };

const PRIVATE: Workload = Workload {
    name: "private",
    about: "each task maps an area in a space of its own, touches each page, unmaps it: 128 MiB, 2 MiB on virtual CPUs",
};
const SHARED: Workload = Workload { name: "shared", about: "the same, all tasks in one space" };
const SHARED_1: Workload = Workload { name: "shared-1", about: "the same, each page read once after it was touched" };
const SHARED_10: Workload =
    Workload { name: "shared-10", about: "the same, each page read 10 times after it was touched" };
const SHARED_100: Workload =
    Workload { name: "shared-100", about: "the same, each page read 100 times after it was touched" };

/// The experiment.
pub(crate) const PAGE_FAULT: Experiment = Experiment {
    name: "page-fault",
    question: "How do first touches of anonymous pages scale?",
    operation: "one page touched, with its share of mapping and unmapping",
    machine: "xeon-e5-2699v4",
    workloads: &[PRIVATE, SHARED, SHARED_1, SHARED_10, SHARED_100],
    schemes: SCHEMES,
    bytes: None,
    devices: &[],
    time: None,
    lists: false,
    spread: false,
    published: published::ALL,
    claims: &[on_88(PRIVATE.name, Bound::AtLeast(0.95)), on_88(SHARED.name, Bound::AtLeast(0.85))],
};

#[cfg(pagefold_manycore)]
const SCHEMES: &[Scheme] = &[linux::BASELINE, linux::FREE_FRAMES, linux::LRU, linux::BOTH, pagefold::SCHEME];
#[cfg(not(pagefold_manycore))]
const SCHEMES: &[Scheme] = &[
    kernel::PLAIN,
    kernel::HUGE,
    linux::BASELINE,
    linux::FREE_FRAMES,
    linux::LRU,
    linux::BOTH,
    pagefold::SCHEME,
    pagefold::ZEROING,
];

const fn on_88(workload: &'static str, bound: Bound) -> Claim {
    let (machine, scheme, measure) = ("xeon-e5-2699v4", "pagefold", Measure::Efficiency);
    Claim { machine, workload, scheme, cpus: 88, measure, bound, gate: false }
}

/// Memory that tasks map, touch and unmap.
trait Memory: Sync {
    /// Whether a task with a space of its own has to be a process.
    #[cfg(not(pagefold_manycore))]
    const SPACE_IS_PROCESS: bool = false;
    /// For so many tasks, in one space or one each.
    fn new(tasks: usize, shared: bool) -> Self;
    /// A new area of [`AREA`] bytes: its address.
    fn map(&self, task: usize) -> u64;
    /// The area's end.
    fn unmap(&self, task: usize, area: u64);
    /// Writes to a page that wasn't written before.
    fn touch(&self, task: usize, address: u64);
    /// Reads from it.
    fn read(&self, task: usize, address: u64);
}

/// A task, and where in its area it is.
struct Toucher {
    task: usize,
    area: u64,
    next: u64,
}

fn measure<M: Memory + Send>(job: &Job<'_>) -> Result<Sample> {
    let (workload, tasks) = (job.workload.name, job.tasks);
    let reads = match workload {
        name if name == SHARED_1.name => 1,
        name if name == SHARED_10.name => 10,
        name if name == SHARED_100.name => 100,
        _ => 0,
    };
    let operation = |memory: &M, toucher: &mut Toucher| {
        let address = toucher.area + toucher.next;
        memory.touch(toucher.task, address);
        (0..reads).for_each(|_| memory.read(toucher.task, address));
        toucher.next += PAGE;
        if toucher.next == AREA {
            memory.unmap(toucher.task, toucher.area);
            toucher.area = memory.map(toucher.task);
            toucher.next = 0;
        }
    };
    let begin = |memory: &M, task: usize| {
        let mut toucher = Toucher { task, area: memory.map(task), next: 0 };
        // Memory that was touched before, and tasks that don't unmap at the same time.
        let warm_up = AREA / PAGE + (task as u64 * 97) % (AREA / PAGE);
        (0..warm_up).for_each(|_| operation(memory, &mut toucher));
        toucher
    };
    let set_up = || M::new(tasks, workload != PRIVATE.name);
    #[cfg(not(pagefold_manycore))]
    if M::SPACE_IS_PROCESS && workload == PRIVATE.name {
        return job.measure_processes(set_up, begin, operation);
    }
    job.measure(set_up, begin, operation)
}
