//! How swap slots scale: older designs beside Pagefold's.
//!
//! Linux looked for a free slot from one position on that all CPUs shared. Once an area was
//! fragmented, slots next to each other went to different CPUs, and those slots' pages were in the
//! same part of the swap cache, which had a lock for each 64 MiB. Huang Ying then gave each CPU a
//! position of its own, and let it jump to a random part whenever it came to the end of one.
//! Pagefold has clusters of 512 slots, an array of words that is looked at without a lock, and none
//! of the rest. The old designs are made of `sync`'s atomics throughout: the map of slots, the
//! nodes of the swap cache and the counters beside them.
//!
//! Half of an area's slots are in use from the beginning, here and there, so that no cluster is
//! free. A task takes one page in after the other, at random, and each time it has taken 32, it
//! writes 32 out: as in the published runs, as many pages go as come. What is between is named
//! work:
//! - a copy for each transfer;
//! - `OTHER_NS` for the rest of a fault, half of it for the page that comes and half for the page
//!   that goes: what is left of 19.9 µs, the time of a fault in the published run with the change
//!   (16 tasks, 3.30 GB/s);
//! - `HELD_NS` under a lock of the swap cache, each time, for what the kernel does there besides
//!   touching words that CPUs share: walking the tree, making nodes, the page's flags and count,
//!   memory groups. No published figure says how long that takes. It is chosen such that the two
//!   locks take the share of time that was published for the shared position, 15.0 %. Without it
//!   (`bare`) they take less than one percent, and there is nothing to gain.
//!
//! So throughput with the change, and the locks' share without it, are put in; how much the change
//! gains, and what is left of the locks' share, come out.
//!
//! Not in it: the kernel's lock over the list of swap devices, the locks of its page lists, and
//! interrupts.

mod pagefold;
mod queue_lock;
mod shared_position;
mod swap_cache;
mod trunked;

use std::time::Duration;

use anyhow::Result;
use sync::lock::Mutex;
use sync::random::Random;

use crate::scaling::experiment::{Bound, Claim, Experiment, Figure, Measure, Published, Workload};
use crate::scaling::job::{Job, Sample};
use crate::scaling::stage::{device_copy, own_work};

/// Bytes in a page.
const PAGE: usize = 4096;
/// Pages that reclaim takes at once.
const BATCH: usize = 32;
/// The rest of a fault: see above.
const OTHER_NS: u64 = 16_500;
/// See above.
const HELD_NS: u64 = 700;
/// Areas: a memory device for each of two sockets.
const AREAS: usize = 2;

const FAULTS: Workload = Workload {
    name: "faults",
    about: "as published: 16.5 µs of other work for each fault; who writes a page out isn't who takes it in again",
};
const BARE: Workload =
    Workload { name: "bare", about: "the same, but swap cache locks are held for the accesses to shared words alone" };
const ANY_MEMORY: Workload =
    Workload { name: "any-memory", about: "faults without other work: only copies and the slots" };
const OWN_MEMORY: Workload = Workload {
    name: "own-memory",
    about: "only copies and the slots; each task writes out and takes in pages of its own group",
};

/// The experiment.
pub(crate) const SWAP_SLOTS: Experiment = Experiment {
    name: "swap-slots",
    question: "How do taking, looking up and freeing swap slots scale, in a fragmented area?",
    operation: "one page taken in and one written out, 4 KiB each",
    machine: "xeon-48-cores",
    workloads: &[FAULTS, BARE, ANY_MEMORY, OWN_MEMORY],
    time: Some(Duration::from_millis(20)),
    lists: false,
    spread: true,
    long: &[],
    schemes: &[shared_position::BEFORE, shared_position::AFTER, pagefold::SCHEME],
    bytes: None,
    devices: &[],
    published: &[Published {
        machine: "xeon-48-cores",
        workload: FAULTS.name,
        source: "Huang Ying, \"swap: Add percpu cluster_next to reduce lock contention on swap cache\", linux-mm, 14 \
                 May 2020",
        about: "16 processes, random access, four of five reads, a ram disk for each of two sockets, 48 cores; score \
                +15.9 %, \
                locks of the swap cache from 15.0 % of time to 0.5 %; here: what was swapped in",
        unit: "GB/s",
        higher_is_better: true,
        older: None,
        figures: &[
            Figure { scheme: "shared-position", cpus: 16, value: 2.84, deviation: None },
            Figure { scheme: "cpu-positions", cpus: 16, value: 3.30, deviation: None },
        ],
        beside: &[],
        note: "",
    }],
    claims: &[
        published_gain(Bound::AtLeast(1.08)),
        published_gain(Bound::AtMost(1.24)),
        on_88(ANY_MEMORY.name, Measure::Efficiency, Bound::AtLeast(0.9), false),
        on_88(OWN_MEMORY.name, Measure::Efficiency, Bound::AtLeast(0.9), true),
        on_88(OWN_MEMORY.name, Measure::SharedWrites, Bound::AtMost(0.1), false),
    ],
};

/// +15.9 %, half of it more or less.
const fn published_gain(bound: Bound) -> Claim {
    let (workload, scheme, measure) = (FAULTS.name, "cpu-positions", Measure::Over("shared-position"));
    Claim { machine: "xeon-48-cores", workload, scheme, cpus: 16, measure, bound, gate: false }
}

const fn on_88(workload: &'static str, measure: Measure, bound: Bound, gate: bool) -> Claim {
    Claim { machine: "xeon-e5-2699v4", workload, scheme: "pagefold", cpus: 88, measure, bound, gate }
}

/// One swap area in memory.
trait SwapArea: Sync {
    /// Puts `pages` pages of `task` into slots; `unmap` is called for each before.
    fn swap_out(&self, task: usize, pages: usize, unmap: &dyn Fn(), slots: &mut Vec<u64>);

    /// Takes a page of `task` in, and frees its slot.
    fn swap_in(&self, task: usize, slot: u64);

    /// The slots that a task has at the beginning: its share of half of the area's.
    fn begin(&self, share: Share) -> Vec<u64>;
}

/// Which of the tasks that use an area.
#[derive(Clone, Copy)]
struct Share {
    number: usize,
    of: usize,
}

/// All areas, and what tasks hand on.
struct Areas<A> {
    areas: Vec<A>,
    /// The slots of pages that another task wrote out and that this task will take in.
    slots: Vec<Mutex<Vec<u64>>>,
    hands_on: bool,
}

/// One task.
struct Process {
    task: usize,
    area: usize,
    swapped: Vec<u64>,
    in_memory: usize,
    random: Random,
    other_work_ns: u64,
    hands_on_to: Option<usize>,
}

impl<A: SwapArea> Areas<A> {
    fn new(job: &Job<'_>, new: impl Fn() -> A) -> Self {
        let areas = (0..AREAS).map(|_| new()).collect();
        let slots = (0..job.tasks).map(|_| Mutex::new(Vec::new())).collect();
        Self { areas, slots, hands_on: job.workload.name != OWN_MEMORY.name }
    }

    fn process(&self, job: &Job<'_>, task: usize) -> Process {
        let next = if task + AREAS < job.tasks { task + AREAS } else { task % AREAS };
        let area = task % AREAS;
        let share = Share { number: task / AREAS, of: (job.tasks - area).div_ceil(AREAS) };
        let mut process = Process {
            task,
            area,
            swapped: self.areas[area].begin(share),
            in_memory: 0,
            random: Random::seeded(task as u64),
            other_work_ns: if without_work(job) { 0 } else { OTHER_NS / 2 },
            hands_on_to: self.hands_on.then_some(next),
        };
        // Tasks write at different times.
        (0..BATCH + task % BATCH).for_each(|_| self.fault(&mut process));
        process
    }

    /// A page is wanted that isn't in memory.
    fn fault(&self, process: &mut Process) {
        if process.in_memory == BATCH {
            self.reclaim(process);
        }
        let at = process.random.below(process.swapped.len() as u64) as usize;
        let slot = process.swapped.swap_remove(at);
        self.areas[process.area].swap_in(process.task, slot);
        process.in_memory += 1;
        other_work(process.other_work_ns);
    }

    fn reclaim(&self, process: &mut Process) {
        let before = process.swapped.len();
        let unmap = || other_work(process.other_work_ns);
        self.areas[process.area].swap_out(process.task, BATCH, &unmap, &mut process.swapped);
        process.in_memory = 0;
        if let Some(next) = process.hands_on_to {
            self.slots[next].lock().extend(process.swapped.drain(before..));
            process.swapped.append(&mut self.slots[process.task].lock());
        }
    }
}

/// Work besides slots and copies.
fn other_work(ns: u64) {
    if ns > 0 {
        own_work(ns);
    }
}

fn without_work(job: &Job<'_>) -> bool {
    [ANY_MEMORY.name, OWN_MEMORY.name].contains(&job.workload.name)
}

/// How long a swap cache lock is held, other than for accesses to shared words.
fn held_ns(job: &Job<'_>) -> u64 {
    if job.workload.name == FAULTS.name { HELD_NS } else { 0 }
}

/// Measures a kind of area; `new` makes one for so many tasks.
fn measure<A: SwapArea + Send>(job: &Job<'_>, new: impl Fn(usize) -> A + Send + Sync) -> Result<Sample> {
    job.measure(
        || Areas::new(job, || new(job.tasks)),
        |areas, task| areas.process(job, task),
        |areas, process| areas.fault(process),
    )
}

/// The copy of a page from or to a device that is memory.
fn transfer() {
    device_copy(PAGE);
}
