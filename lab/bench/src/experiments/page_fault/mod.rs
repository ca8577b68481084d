//! How do first touches of anonymous memory scale? The older designs are the fault path of Linux
//! 4.16, and three variants of it: one of its two list locks (free pages, LRU lists) is relaxed, or
//! both are, as in Daniel Jordan's patches of 2018. They are compared with a space of Pagefold.
//!
//! This is `page_fault1` of will-it-scale, as published: each task maps 128 MiB, touches each page,
//! and unmaps the area, again and again. On virtual CPUs, the measurement counts one such round of
//! each task. Tasks begin it at different pages, so that they don't unmap at the same time, and a
//! task goes on until all tasks have made their round. With more than 8 tasks on virtual CPUs, each
//! task maps only 16 MiB, because 128 MiB would take hours. Even so, each CPU's stock of free pages
//! holds less than a twentieth of an area. So nearly all pages come from the node's lists and
//! return to them, as with 128 MiB.

#[cfg(not(pagefold_manycore))]
mod kernel;
mod older;
mod pagefold;
mod published;

use anyhow::Result;

use crate::scaling::experiment::{Bound, Claim, Experiment, Measure, Scheme};
use crate::scaling::job::Job;
use crate::scaling::sample::Sample;
use crate::scaling::workload::Workload;

const PAGE: u64 = 4096;
/// Bytes that a task maps, touches and unmaps.
const AREA: u64 = 128 << 20;
/// The same of more than `FEW` tasks on virtual CPUs.
const CROWD_AREA: u64 = 16 << 20;
const FEW: usize = 8;
/// The same where there is no time for that.
const SMALL_AREA: u64 = 2 << 20;
const QUICK_AREA: u64 = 256 << 10;

const PRIVATE: Workload =
    Workload { name: "private", about: "each task maps 128 MiB in a space of its own, touches each page, unmaps it" };
const PRIVATE_SMALL: Workload = Workload { name: "private-small", about: "as private, with areas of 2 MiB" };
const SHARED_SMALL: Workload = Workload { name: "shared-small", about: "as shared, with areas of 2 MiB" };
const SHARED: Workload = Workload { name: "shared", about: "as private, all tasks in one space" };
const SHARED_1: Workload =
    Workload { name: "shared-1", about: "as shared-small, each page read once after it was touched" };
const SHARED_10: Workload =
    Workload { name: "shared-10", about: "as shared-small, each page read 10 times after it was touched" };
const SHARED_100: Workload =
    Workload { name: "shared-100", about: "as shared-small, each page read 100 times after it was touched" };

/// The experiment.
pub(crate) const PAGE_FAULT: Experiment = Experiment {
    name: "page-fault",
    question: "How do first touches of anonymous pages scale?",
    operation: "one page touched, with its share of mapping and unmapping",
    machine: "xeon-e5-2699v4",
    workloads: &[PRIVATE, SHARED, PRIVATE_SMALL, SHARED_SMALL, SHARED_1, SHARED_10, SHARED_100],
    long: &[PRIVATE.name, SHARED.name],
    schemes: SCHEMES,
    bytes: None,
    devices: &[],
    time: None,
    lists: true,
    spread: false,
    published: published::ALL,
    unpublished: &[],
    claims: &[
        on_88(PRIVATE_SMALL.name, Measure::Efficiency, Bound::AtLeast(0.95)),
        on_88(SHARED_SMALL.name, Measure::Efficiency, Bound::AtLeast(0.95)),
        on_88(PRIVATE_SMALL.name, Measure::ListsLost, Bound::AtMost(0.5)),
        on_88(PRIVATE_SMALL.name, Measure::Over("baseline"), Bound::AtLeast(1.3)),
        on_88(SHARED_SMALL.name, Measure::Over("both"), Bound::AtLeast(11.0)),
    ],
};

#[cfg(pagefold_manycore)]
const SCHEMES: &[Scheme] =
    &[older::BASELINE, older::ZONE, older::LRU, older::BOTH, pagefold::SCHEME, pagefold::UNLISTED];
#[cfg(not(pagefold_manycore))]
const SCHEMES: &[Scheme] = &[
    kernel::PLAIN,
    kernel::HUGE,
    older::BASELINE,
    older::ZONE,
    older::LRU,
    older::BOTH,
    pagefold::SCHEME,
    pagefold::UNLISTED,
    pagefold::ZEROING,
];

const fn on_88(workload: &'static str, measure: Measure, bound: Bound) -> Claim {
    Claim { machine: "xeon-e5-2699v4", workload, scheme: "pagefold", cpus: 88, measure, bound, gate: true }
}

/// Memory that tasks map, touch and unmap.
trait Memory: Sync {
    /// Whether a task with a space of its own has to be a process.
    #[cfg(not(pagefold_manycore))]
    const SPACE_IS_PROCESS: bool = false;
    /// For `tasks` tasks, in one space if `shared`, or with a space each. They map areas of `area`
    /// bytes.
    fn new(tasks: usize, shared: bool, area: u64) -> Self;
    /// A new area: its address.
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
    let area = match workload {
        _ if job.choices.quick => QUICK_AREA,
        name if name != PRIVATE.name && name != SHARED.name => SMALL_AREA,
        _ if cfg!(pagefold_manycore) && tasks > FEW => CROWD_AREA,
        _ => AREA,
    };
    let shared = workload != PRIVATE.name && workload != PRIVATE_SMALL.name;
    let operation = |memory: &M, toucher: &mut Toucher| {
        let address = toucher.area + toucher.next;
        memory.touch(toucher.task, address);
        (0..reads).for_each(|_| memory.read(toucher.task, address));
        toucher.next += PAGE;
        if toucher.next == area {
            memory.unmap(toucher.task, toucher.area);
            toucher.area = memory.map(toucher.task);
            toucher.next = 0;
        }
    };
    let begin = |memory: &M, task: usize| {
        let mut toucher = Toucher { task, area: memory.map(task), next: 0 };
        // Tasks begin at different pages, so that they don't unmap at the same time. Multiples of
        // the golden ratio, modulo 1, spread any number of tasks evenly.
        let part = (task as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 32;
        let warm_up = (part * (area / PAGE)) >> 32;
        (0..warm_up).for_each(|_| operation(memory, &mut toucher));
        toucher
    };
    let set_up = || M::new(tasks, shared, area);
    #[cfg(not(pagefold_manycore))]
    if M::SPACE_IS_PROCESS && !shared {
        return job.measure_processes(set_up, begin, operation);
    }
    job.measure_rounds(area / PAGE, set_up, begin, operation)
}
