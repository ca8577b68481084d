//! How does memory scale that is larger than its budget? The experiment covers a page's whole way
//! to swap and back: fault, reclaim, slot, device.
//!
//! Tasks touch pages of one region, which is four times as large as the budget. In the workload
//! `processes`, each task has a region and a space of its own. Usually pages are chosen at random,
//! and four of five accesses are reads. Every word of a page says which page it belongs to, and
//! every read checks this: one wrong word fails the run. Unless the workload says otherwise, pages
//! are incompressible.
//!
//! First the swap area is fragmented: a second region fills it, and is then discarded, except one
//! in eight of its pages, chosen at random. So hardly any cluster is empty. Together with the pages
//! of the first region, a little less than half of the slots are in use.
//!
//! A fault swaps one page in and, on average, one page out. The CPU time per fault is the CPU time
//! of all threads, including accesses that hit, divided by the number of faults. For the kernel, it
//! is the CPU time of the process, without the kernel's own threads.

mod contents;
#[cfg(not(pagefold_manycore))]
pub(crate) mod kernel;
mod older;
mod pagefold;

use anyhow::Result;
use std::ops::Range;
use std::time::Duration;

use crate::experiments::OURS;
use crate::popularity::{Distribution, Popularity};
use crate::random::Random;
use crate::scaling::device::Device;
use crate::scaling::experiment::{Bound, Claim, Column, Experiment, Figure, Measure, Published, Scheme};
use crate::scaling::job::Job;
use crate::scaling::parts::Part;
use crate::scaling::row::Row;
use crate::scaling::sample::{Counts, Sample, Traffic};
use crate::scaling::workload::Workload;
use contents::Contents;

const PAGE: u64 = 4096;
/// The budget in pages: for each task on virtual CPUs, and for all tasks on real ones. The stocks
/// and batches of CPUs are proportional to the budget. So with a smaller budget, CPUs contend more.
const VIRTUAL_BUDGET: u64 = 256;
const PROCESSES_BUDGET: u64 = 1024;
const REAL_BUDGET: u64 = (64 << 20) / PAGE;
/// The same to show that everything works.
const QUICK_SHARE: u64 = 16;
/// Pages of the region and of the area, in budgets.
const REGION_BUDGETS: u64 = 4;
const AREA_BUDGETS: u64 = 12;
/// What both are divided by to show that everything works.
const QUICK_BUDGETS_SHARE: u64 = 2;
/// One in so many accesses writes.
const ONE_WRITES_IN: u32 = 5;
/// One in so many pages of what fragments the area stays.
const ONE_STAYS_IN: u32 = 8;

const UNIFORM: Workload = Workload { name: "uniform", about: "every page as often as any other; incompressible" };
const ZIPF: Workload = Workload { name: "zipf", about: "by Zipf's law, exponent 0.99; incompressible" };
const FIFTH: Workload = Workload { name: "80-20", about: "80 % of accesses to 20 % of the pages; incompressible" };
const SEQUENTIAL: Workload = Workload {
    name: "sequential",
    about: "each task goes round its part of the pages, one access to each; incompressible",
};
const SAME_FILLED: Workload = Workload {
    name: "same-filled",
    about: "every page as often as any other; each repeats one word, which isn't zero",
};
const COMPRESSIBLE: Workload = Workload {
    name: "compressible",
    about: "every page as often as any other; three eighths of each look random, the rest repeats one word",
};
const ZEROS: Workload = Workload { name: "zeros", about: "every page as often as any other; all zeros" };

const PROCESSES: Workload =
    Workload { name: "processes", about: "as uniform, each task in a space of its own, with pages of its own" };
/// Accesses of each task.
const PROCESSES_ROUND: u64 = 2_000;
const QUICK_ROUND: u64 = 50;

/// The experiment.
pub(crate) const SWAP: Experiment = Experiment {
    name: "swap",
    question: "How does memory of four times the budget scale, in swap?",
    operation: "one access to 8 bytes of a page, of which some are in memory",
    machine: "xeon-e5-2699v4",
    workloads: &[PROCESSES, UNIFORM, ZIPF, FIFTH, SEQUENTIAL, COMPRESSIBLE, SAME_FILLED, ZEROS],
    long: &[],
    schemes: SCHEMES,
    bytes: None,
    devices: DEVICES,
    time: Some(Duration::from_millis(1)),
    lists: false,
    spread: true,
    published: PUBLISHED,
    unpublished: &[],
    claims: &[
        Claim {
            machine: "xeon-e5-2699v4",
            workload: UNIFORM.name,
            scheme: OURS,
            cpus: 88,
            measure: Measure::Efficiency,
            bound: Bound::AtLeast(0.95),
            gate: false,
        },
        of_processes(Measure::Efficiency, Bound::AtLeast(0.76)),
        of_processes(Measure::Over("cpu-clusters"), Bound::AtLeast(7.0)),
    ],
};

const fn of_processes(measure: Measure, bound: Bound) -> Claim {
    Claim { machine: PUBLISHED_ON, workload: PROCESSES.name, scheme: OURS, cpus: 16, measure, bound, gate: true }
}

const PUBLISHED_ON: &str = "xeon-48-cores";
const PUBLISHED: &[Published] = &[Published {
    machine: PUBLISHED_ON,
    workload: PROCESSES.name,
    source: "Huang Ying, \"swap: Add percpu cluster_next to reduce lock contention on swap cache\", linux-mm, 14 May \
             2020",
    about: "16 processes on 48 cores, random accesses, four of five reads, a ram disk for each of two sockets; what \
            was swapped in is shown: score +15.9 %, swapped out 2.87 and 3.33 GB/s, locks of the swap cache from \
            15.0 % of time to 0.5 %",
    unit: "GB/s",
    higher_is_better: true,
    older: Some("shared-position"),
    figures: &[
        Figure { scheme: "shared-position", cpus: 16, value: 2.84, deviation: None },
        Figure { scheme: "cpu-positions", cpus: 16, value: 3.30, deviation: None },
    ],
    beside: &[],
    columns: COLUMNS,
    note: "The published gain comes out in part: the locks of the swap cache took 15.0 % of time there, and here 0.9 % \
           is lost at the swap cache. Of what the kernel does under its locks, only the words that CPUs share are \
           modelled; how long the rest takes was not published. With 700 ns under each lock they take 4.0 %, and the \
           gain is 1.05. The last columns show where time is lost, waiting or moving cache lines, in percent of all \
           CPU time. Published, before and after: swap cache 15.0 and 0.5, freeing slots 2.9 and 3.0, charging 3.7 and \
           4.0, scanning 2.2 and 2.8.",
}];

const COLUMNS: &[Column] = &[
    Column { head: "in, GB/s", figure: |row| rate(row, |traffic| traffic.bytes_in) },
    Column { head: "out, GB/s", figure: |row| rate(row, |traffic| traffic.bytes_out) },
    Column { head: "lost at the swap cache, %", figure: |row| row.lost(&SWAP_CACHE) },
    Column { head: "slots, %", figure: |row| row.lost(&SLOTS) },
    Column { head: "charging, %", figure: |row| row.lost(&CHARGING) },
    Column { head: "listing, %", figure: |row| row.lost(&LISTING) },
    Column { head: "scan, %", figure: |row| row.lost(&SCAN) },
];

/// Parts of the way to swap and back: regions of the older designs, and Pagefold's files. Pagefold
/// has no swap cache.
const SWAP_CACHE: Part = Part { files: &[], regions: &["add_to_swap_cache", "remove_mapping"] };
const SLOTS: Part = Part {
    files: &["crates/swap/src/", "pagefold/src/swapping/"],
    regions: &["get_swap_page", "free_swap_slot", "swap_info lock"],
};
const CHARGING: Part = Part {
    files: &["pagefold/src/group/", "pagefold/src/memory/charges.rs", "pagefold/src/memory/shares.rs"],
    regions: &["charge"],
};
const LISTING: Part =
    Part { files: &["pagefold/src/memory/listing.rs", "pagefold/src/lru/entry_batches.rs"], regions: &["lru_add"] };
const SCAN: Part = Part {
    files: &[
        "crates/smp-list/src/",
        "pagefold/src/lru/list.rs",
        "pagefold/src/lru/stripe.rs",
        "pagefold/src/lru/window.rs",
        "pagefold/src/manager/reclaim/",
        "pagefold/src/memory/eviction.rs",
    ],
    regions: &["shrink_lists"],
};

/// Returns how much is moved in a second, in GB. `bytes` are those of an access.
fn rate(row: &Row, bytes: fn(&Traffic) -> f64) -> Option<f64> {
    Some(row.traffic(|traffic| Some(bytes(traffic)))?.median * row.throughput().median / 1e9)
}

const SCHEMES: &[Scheme] = &[
    #[cfg(not(pagefold_manycore))]
    kernel::SCHEME,
    older::SHARED_POSITION,
    older::CPU_POSITIONS,
    older::CPU_CLUSTERS,
    pagefold::SCHEME,
    older::IN_STEP,
    pagefold::ONE_POSITION,
];
#[cfg(pagefold_manycore)]
const DEVICES: &[Device] = &[Device::Memory, Device::Simulated, Device::Rotating];
#[cfg(not(pagefold_manycore))]
const DEVICES: &[Device] = &[Device::Memory, Device::Compressed, Device::Disk, Device::Simulated];

/// Sizes in pages.
#[derive(Clone, Copy)]
struct Sizes {
    budget: u64,
    region: u64,
    area: u64,
    /// Each task has a space of its own, with its part of the region.
    own_spaces: bool,
}

impl Sizes {
    fn of(job: &Job<'_>) -> Self {
        let own_spaces = job.workload.name == PROCESSES.name;
        let usual = if own_spaces { PROCESSES_BUDGET } else { VIRTUAL_BUDGET };
        let tasks = job.tasks as u64;
        let all = match job.choices.memory_per_cpu {
            Some(each) => tasks * each.0 / PAGE,
            None if cfg!(pagefold_manycore) => tasks * usual,
            None => REAL_BUDGET,
        };
        // No budget is so small that its overheads are most of it.
        let quick = job.choices.quick;
        let budget = if quick { (all / QUICK_SHARE).clamp(256, 2048) } else { all.max(4 * VIRTUAL_BUDGET) };
        let share = if quick { QUICK_BUDGETS_SHARE } else { 1 };
        let [region, area] = [REGION_BUDGETS, AREA_BUDGETS].map(|budgets| budgets / share * budget);
        Self { budget, region, area, own_spaces }
    }
}

/// Memory that is larger than its budget. Addresses are those of a task's space.
trait Memory: Sync {
    /// Half of its area is in use from the beginning, here and there.
    const BEGINS_FRAGMENTED: bool = false;
    /// Addresses of `pages` pages of zeros.
    fn map(&self, task: usize, pages: u64) -> u64;
    /// Fills a page.
    fn fill(&self, task: usize, address: u64, page: &[u8; PAGE as usize]);
    /// Gives a page up.
    fn discard(&self, task: usize, address: u64);
    /// The word at an address.
    fn read(&self, task: usize, address: u64) -> u64;
    /// Changes the word at an address.
    fn write(&self, task: usize, address: u64, word: u64);
    /// What happened so far.
    fn count(&self) -> Counts;
}

/// What all tasks have.
struct Subject<M> {
    memory: M,
    sizes: Sizes,
    contents: Contents,
    popularity: Popularity,
    is_sequential: bool,
    tasks: u64,
    /// If all tasks share one space: the address of the region that tasks touch, and that of the
    /// region that fragments the area.
    shared: Option<[u64; 2]>,
}

/// One task.
struct Toucher {
    task: usize,
    random: Random,
    /// The address of the first page that it touches, and that page's number.
    region: u64,
    first: u64,
    /// If the task goes through its pages in order: the pages of its part, and the next page.
    round: Option<(Range<u64>, u64)>,
}

impl<M: Memory> Subject<M> {
    fn new(job: &Job<'_>, memory: M) -> Self {
        let sizes = Sizes::of(job);
        let (distribution, contents) = match job.workload.name {
            name if name == ZIPF.name => (Distribution::Zipf(0.99), Contents::Incompressible),
            name if name == FIFTH.name => (Distribution::Fifth, Contents::Incompressible),
            name if name == COMPRESSIBLE.name => (Distribution::Uniform, Contents::Compressible),
            name if name == SAME_FILLED.name => (Distribution::Uniform, Contents::SameFilled),
            name if name == ZEROS.name => (Distribution::Uniform, Contents::Zeros),
            _ => (Distribution::Uniform, Contents::Incompressible),
        };
        let tasks = job.tasks as u64;
        let touched = if sizes.own_spaces { sizes.region / tasks } else { sizes.region };
        let popularity = Popularity::new(distribution, u32::try_from(touched).expect("a few GiB"));
        let filler = |memory: &M| if M::BEGINS_FRAGMENTED { 0 } else { memory.map(0, sizes.area) };
        let shared = (!sizes.own_spaces).then(|| [memory.map(0, sizes.region), filler(&memory)]);
        let is_sequential = job.workload.name == SEQUENTIAL.name;
        Self { memory, sizes, contents, popularity, is_sequential, tasks, shared }
    }

    /// Does a task's part of the preparation: fragments the area and fills the region. Then makes
    /// as many accesses as its part has pages, so that the memory reaches its steady state.
    fn begin(&self, task: usize) -> Toucher {
        let mut random = Random::new(task as u64);
        let share = |pages: u64| {
            let at = |task: usize| pages * task as u64 / self.tasks;
            at(task)..at(task + 1)
        };
        // With a space of its own, a task uses the pages from 0 on.
        let own = |pages: u64| 0..pages / self.tasks;
        let (region, part, first) = match self.shared {
            Some([region, filler]) => {
                self.fragment(task, &mut random, filler, share(self.sizes.area));
                (region, share(self.sizes.region), 0)
            }
            None => {
                if !M::BEGINS_FRAGMENTED {
                    let part = own(self.sizes.area);
                    self.fragment(task, &mut random, self.memory.map(task, part.end), part);
                }
                let part = own(self.sizes.region);
                (self.memory.map(task, part.end), part, share(self.sizes.region).start)
            }
        };
        let fill = |page: u64| self.memory.fill(task, region + page * PAGE, &self.contents.page(first + page));
        part.clone().for_each(fill);
        let round = self.is_sequential.then(|| (part.clone(), part.start));
        let mut toucher = Toucher { task, random, region, first, round };
        // Other tasks may still be filling theirs.
        part.for_each(|_| self.access(&mut toucher, |found| found == 0));
        toucher
    }

    /// Fills a part of the area, and gives most of it up again.
    fn fragment(&self, task: usize, random: &mut Random, filler: u64, part: Range<u64>) {
        if M::BEGINS_FRAGMENTED {
            return;
        }
        for page in part.clone() {
            self.memory.fill(task, filler + page * PAGE, &self.contents.page(page));
        }
        for page in part {
            if random.below(ONE_STAYS_IN) > 0 {
                self.memory.discard(task, filler + page * PAGE);
            }
        }
    }

    /// Makes one access. A word that doesn't belong to the page is accepted only if `may_be`
    /// returns true for it.
    fn access(&self, toucher: &mut Toucher, may_be: impl Fn(u64) -> bool) {
        let page = match &mut toucher.round {
            Some((part, next)) => {
                let page = *next;
                *next = if page + 1 == part.end { part.start } else { page + 1 };
                page
            }
            None => u64::from(self.popularity.page(&mut toucher.random)),
        };
        let draw = toucher.random.next();
        let word = draw % (PAGE / 8);
        let (address, number) = (toucher.region + page * PAGE + word * 8, toucher.first + page);
        if toucher.random.below(ONE_WRITES_IN) == 0 {
            self.memory.write(toucher.task, address, self.contents.word(number, word, (draw >> 48) as u16));
        } else {
            let found = self.memory.read(toucher.task, address);
            let is_good = self.contents.is(number, word, found) || may_be(found);
            assert!(is_good, "page {number}, word {word}: {found:#x} isn't of that page");
        }
    }
}

fn measure<M: Memory + Send>(job: &Job<'_>, new: impl Fn(Sizes) -> M + Send + Sync) -> Result<Sample> {
    let operations = if job.choices.quick { QUICK_ROUND } else { PROCESSES_ROUND };
    let round = (job.workload.name == PROCESSES.name).then_some(operations);
    job.measure_traffic(
        round,
        || Subject::new(job, new(Sizes::of(job))),
        |subject, task| subject.begin(task),
        |subject, toucher| subject.access(toucher, |_| false),
        |subject| subject.memory.count(),
    )
}
