//! How does reclaim scale when files are read again and again with too little memory? Pages are
//! loaded, used twice, and evicted.
//!
//! Each pair of readers has a part of a file. The part is twice as large as the pair's memory. Both
//! readers read the part from front to back, again and again, one a little behind the other
//! (vm-scalability's `lru-file-readtwice`, scaled down). Either each pair has a group and a file of
//! its own, or all pairs are in one group and read parts of one file, 32 MiB apart.
//!
//! In Linux, one lock protected the lists of all groups. Since 5.11, each group's lists have a lock
//! of their own (Alex Shi). This doesn't help if many CPUs use one group.

mod older;
mod pagefold;

use anyhow::Result;
use std::time::Duration;

use crate::scaling::experiment::{Bound, Claim, Column, Experiment, Figure, Measure, Published};
use crate::scaling::job::{Choices, Job};
use crate::scaling::lists::LISTS;
use crate::scaling::sample::Sample;
use crate::scaling::stage::own_work;
use crate::scaling::workload::Workload;

/// Pages that two readers read.
const PART: u64 = 2048;
/// Pages of memory for them.
const MEMORY: u64 = PART / 2;
/// Pages from one part to the next, where parts are in one file.
const STRIDE: u64 = 8192;
/// How many times each part is read before the measurement. The first time fills the memory.
const ROUNDS: u64 = 3;
const ROUNDS_BRIEF: u64 = 1;
/// Pages that the second reader is behind.
const BEHIND: u64 = 64;
/// Bytes of a read.
const READ: usize = 4096;
/// The rest of a read: the system call, and the user's.
const READ_NS: u64 = 500;

const GROUPS: Workload = Workload {
    name: Workload::GROUPS,
    about: "each two readers have a group and a file of their own, and too little memory",
};
const ONE_GROUP: Workload = Workload { name: Workload::ONE_GROUP, about: "the same readers in one group, on one file" };

const GROUP_A_CPU: Workload =
    Workload { name: "group-a-cpu", about: "a group and a file for each task, which is both of its readers in turn" };
const TWO_GROUPS_A_CPU: Workload = Workload {
    name: "two-groups-a-cpu",
    about: "two groups for each task, which is all four of their readers in turn",
};

const PUBLISHED_ON: &str = "xeon-80-cpus";
const COLUMNS: &[Column] = &[
    Column { head: "MB/s", figure: |row| Some(row.throughput().median * READ as f64 / 1e6) },
    Column { head: "lost at lists, %", figure: |row| row.lost(&LISTS) },
];

/// The experiment.
pub(crate) const READTWICE: Experiment = Experiment {
    name: "readtwice",
    question: "How does reclaim scale when files are re-read in too little memory?",
    operation: "one read of 4 KiB",
    machine: "xeon-e5-2699v4",
    workloads: &[GROUPS, ONE_GROUP, GROUP_A_CPU, TWO_GROUPS_A_CPU],
    long: &[GROUP_A_CPU.name, TWO_GROUPS_A_CPU.name],
    schemes: &[older::GLOBAL, older::GROUP, pagefold::SCHEME, older::GROUP_CUT],
    bytes: None,
    devices: &[],
    // Requesting a window of 256 pages takes a reader 0.3 ms. A run that isn't much longer would
    // measure little else.
    time: Some(Duration::from_millis(2)),
    lists: true,
    spread: false,
    published: &[
        Published {
            machine: PUBLISHED_ON,
            workload: GROUP_A_CPU.name,
            source: "Alex Shi, on the LRU lock of each memory group (in Chinese), 2021",
            about: "files read twice in many memory groups on 80 CPUs: throughput rose to 260 %, and the time spent on \
                    the lock fell from 70 % to half of that",
            unit: "×",
            higher_is_better: true,
            older: Some("global-lock"),
            figures: &[
                Figure { scheme: "global-lock", cpus: 80, value: 1.0, deviation: None },
                Figure { scheme: "group-lock", cpus: 80, value: 2.6, deviation: None },
            ],
            beside: &[],
            columns: COLUMNS,
            note: "",
        },
        Published {
            machine: PUBLISHED_ON,
            workload: TWO_GROUPS_A_CPU.name,
            source: "Alex Shi, \"per memcg lru lock\", linux-kernel, a later version",
            about: "files read twice in 40 memory groups on 20 cores",
            unit: "MB/s",
            higher_is_better: true,
            older: Some("global-lock"),
            figures: &[
                Figure { scheme: "global-lock", cpus: 20, value: 220.5, deviation: None },
                Figure { scheme: "group-lock", cpus: 20, value: 356.9, deviation: None },
            ],
            beside: &[],
            columns: COLUMNS,
            note: "",
        },
    ],
    unpublished: &[],
    claims: &[
        on_80(GROUPS.name, Bound::AtLeast(0.89)),
        on_80(ONE_GROUP.name, Bound::AtLeast(0.75)),
        Claim { measure: Measure::ListsLost, ..on_80(GROUPS.name, Bound::AtMost(0.5)) },
        Claim { measure: Measure::Over("group-lock"), ..on_80(GROUPS.name, Bound::AtLeast(1.3)) },
        Claim { measure: Measure::Over("group-lock"), ..on_80(ONE_GROUP.name, Bound::AtLeast(1.7)) },
        aim(GROUPS.name, "global-lock", 4.0),
        aim(ONE_GROUP.name, "group-lock", 5.0),
    ],
};

const fn on_80(workload: &'static str, bound: Bound) -> Claim {
    let (machine, scheme, measure) = ("xeon-e5-2699v4", "pagefold", Measure::Efficiency);
    Claim { machine, workload, scheme, cpus: 80, measure, bound, gate: true }
}

/// Aims from before contended lines left the links between sockets to others; they aren't met.
const fn aim(workload: &'static str, other: &'static str, times: f64) -> Claim {
    let (machine, scheme, bound) = ("xeon-e5-2699v4", "pagefold", Bound::AtLeast(times));
    Claim { machine, workload, scheme, cpus: 80, measure: Measure::Over(other), bound, gate: false }
}

/// Files, and too little memory for them.
trait PageCache: Sync + Sized {
    /// A reader's own.
    type Reader: Send;
    /// For so many parts, in one group or in a group each.
    fn new(parts: usize, one_group: bool) -> Self;
    /// Returns reader 0 or 1 of a part.
    fn begin(&self, part: usize, reader: usize) -> Self::Reader;
    /// Reads a page of the reader's part.
    fn read(&self, reader: &mut Self::Reader, page: u64, into: &mut [u8]);
}

struct Walk<R> {
    reader: R,
    next: u64,
    into: Box<[u8]>,
}

impl<R> Walk<R> {
    fn step<C: PageCache<Reader = R>>(&mut self, cache: &C) {
        cache.read(&mut self.reader, self.next % PART, &mut self.into);
        own_work(READ_NS);
        self.next += 1;
    }

    fn begin<C: PageCache<Reader = R>>(cache: &C, part: usize, second: usize) -> Self {
        Self { reader: cache.begin(part, second), next: 0, into: vec![0; READ].into() }
    }
}

/// The readers of a task, which take turns.
struct Task<R> {
    walks: Vec<Walk<R>>,
    turn: usize,
}

impl<R> Task<R> {
    fn step<C: PageCache<Reader = R>>(&mut self, cache: &C) {
        self.walks[self.turn].step(cache);
        self.turn = (self.turn + 1) % self.walks.len();
    }
}

/// The readers of all parts, two each, for each task.
fn readers(job: &Job<'_>) -> usize {
    match job.workload.name {
        name if name == GROUP_A_CPU.name => 2,
        name if name == TWO_GROUPS_A_CPU.name => 4,
        _ => 1,
    }
}

fn measure<C: PageCache + Send>(job: &Job<'_>) -> Result<Sample> {
    let (one_group, each) = (job.workload.name == ONE_GROUP.name, readers(job));
    let rounds = match job.choices {
        Choices { quick: true, .. } => 0,
        Choices { brief: true, .. } => ROUNDS_BRIEF,
        _ => ROUNDS,
    };
    job.measure(
        || C::new((job.tasks * each).div_ceil(2), one_group),
        |cache, task| {
            let mut of_task = Task { walks: Vec::with_capacity(each), turn: 0 };
            // Before the measurement, each reader reads its part `rounds` times and then this many
            // pages more. So each pair is at another place of its part, and the first reader is
            // `BEHIND` pages ahead.
            let ahead = |part: usize, second: usize| part as u64 * 7 % PART + (1 - second as u64) * BEHIND;
            let mut to_go = Vec::with_capacity(each);
            for reader in task * each..(task + 1) * each {
                let (part, second) = (reader / 2, reader % 2);
                of_task.walks.push(Walk::begin(cache, part, second));
                to_go.push(rounds * PART + ahead(part, second));
            }
            for step in 0..to_go.iter().copied().max().unwrap_or(0) {
                let walks = of_task.walks.iter_mut().zip(&to_go).filter(|(_, to_go)| step < **to_go);
                walks.for_each(|(walk, _)| walk.step(cache));
            }
            of_task
        },
        |cache, task| task.step(cache),
    )
}
