//! How taking, charging, listing, unlisting and freeing pages scales: what `page_fault1` does below
//! the page tables.
//!
//! A task maps a region, touches each page, and unmaps it. Scaled down: a region has 256 pages
//! rather than 32,768, and a CPU keeps two batches of free pages in stock rather than six, so that
//! most pages still come from the node and go back to it. The rest of a fault (trap, page tables)
//! is named work, the same for all; each task has its own address space.
//!
//! Linux 4.16 had a lock for a node's free pages and one for its LRU lists. Daniel Jordan took the
//! second apart, Aaron Lu the first, and the published table says that neither helps alone.

mod older;
mod pagefold;

use anyhow::Result;
use std::time::Duration;

use crate::scaling::experiment::{Bound, Claim, Experiment, Figure, Measure, Published, Workload};
use crate::scaling::job::{Job, Sample};
use crate::scaling::stage::own_work;

/// Pages of a region.
const REGION: u64 = 256;
/// The rest of a fault: what makes one task of the baseline as fast as the published one, on the
/// machine's preset.
const FAULT_NS: u64 = 1186;

const GROUPS: Workload =
    Workload { name: Workload::GROUPS, about: "page_fault1, scaled down; each task is in a memory group of its own" };
const ONE_GROUP: Workload = Workload { name: Workload::ONE_GROUP, about: "the same; all tasks are in one group" };

/// The experiment.
pub(crate) const LRU: Experiment = Experiment {
    name: "lru",
    question: "How do taking, listing, unlisting and freeing pages scale?",
    operation: "one page taken, charged, zeroed and listed, and in the end unlisted and freed",
    machine: "xeon-e5-2699v4",
    workloads: &[GROUPS, ONE_GROUP],
    schemes: &[older::BASELINE, older::FREE, older::LRU, older::BOTH, pagefold::SCHEME],
    bytes: None,
    devices: &[],
    time: Some(Duration::from_micros(1600)),
    lists: true,
    spread: false,
    published: &[Published {
        machine: "xeon-e5-2699v4",
        workload: GROUPS.name,
        source: "Daniel Jordan, \"[RFC PATCH v2 0/8] lru_lock scalability and SMP list functions\", linux-mm, 11 \
                 September \
                 2018",
        about: "will-it-scale/page_fault1, processes, on 44 cores with 88 threads: Linux 4.16, with free pages eased \
                (Aaron \
                Lu), with concurrent LRU lists, with both",
        unit: "million faults/s",
        higher_is_better: true,
        figures: &[
            figure("baseline", 1, 0.627),
            figure("baseline", 22, 7.569),
            figure("baseline", 44, 13.446),
            figure("baseline", 66, 11.465),
            figure("baseline", 88, 10.322),
            figure("free", 1, 0.740),
            figure("free", 22, 7.800),
            figure("free", 44, 13.876),
            figure("free", 66, 12.114),
            figure("free", 88, 10.914),
            figure("lru", 1, 0.627),
            figure("lru", 22, 7.785),
            figure("lru", 44, 13.717),
            figure("lru", 66, 11.510),
            figure("lru", 88, 10.328),
            figure("both", 1, 0.736),
            figure("both", 22, 9.748),
            figure("both", 44, 15.948),
            figure("both", 66, 18.185),
            figure("both", 88, 17.943),
        ],
    }],
    claims: &[
        on_88("pagefold", ONE_GROUP.name, Measure::Efficiency, Bound::AtLeast(0.7), true),
        on_88("pagefold", GROUPS.name, Measure::Efficiency, Bound::AtLeast(0.95), true),
        on_88("pagefold", GROUPS.name, Measure::ListsLost, Bound::AtMost(2.0), true),
    ],
};

const fn figure(scheme: &'static str, cpus: usize, value: f64) -> Figure {
    Figure { scheme, cpus, value }
}

const fn on_88(scheme: &'static str, workload: &'static str, measure: Measure, bound: Bound, gate: bool) -> Claim {
    Claim { machine: "xeon-e5-2699v4", workload, scheme, cpus: 88, measure, bound, gate }
}

/// Memory that tasks map regions of.
trait Memory: Sync + Sized {
    /// A task's own: its region, and what its CPU has in stock.
    type Task: Send;
    /// For so many tasks, in so many groups.
    fn new(tasks: usize, groups: usize) -> Self;
    /// A new task.
    fn begin(&self, task: usize) -> Self::Task;
    /// Takes a page, charges it, zeroes it and lists it.
    fn touch(&self, task: &mut Self::Task, page: u64);
    /// Unlists and frees the region's pages.
    fn unmap(&self, task: &mut Self::Task);
}

/// A task, and how far it is with its region.
struct Walk<T> {
    task: T,
    touched: u64,
}

impl<T> Walk<T> {
    fn step<M: Memory<Task = T>>(&mut self, memory: &M) {
        memory.touch(&mut self.task, self.touched);
        own_work(FAULT_NS);
        self.touched += 1;
        if self.touched == REGION {
            memory.unmap(&mut self.task);
            self.touched = 0;
        }
    }
}

fn measure<M: Memory + Send>(job: &Job<'_>) -> Result<Sample> {
    let groups = if job.workload.name == ONE_GROUP.name { 1 } else { job.tasks };
    job.measure(
        || M::new(job.tasks, groups),
        |memory, task| {
            let mut walk = Walk { task: memory.begin(task), touched: 0 };
            // Two regions to warm up, and then each task is somewhere else in its own.
            let ahead = task as u64 * REGION / job.tasks as u64;
            (0..2 * REGION + ahead).for_each(|_| walk.step(memory));
            walk
        },
        |memory, walk| walk.step(memory),
    )
}
