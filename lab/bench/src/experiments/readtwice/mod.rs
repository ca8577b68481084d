//! How reclaim scales when files are re-read in too little memory: pages come in, are used twice,
//! and go.
//!
//! Two readers have a part of a file of their own, twice as large as the memory that there is for
//! it, which they read from the front to the back again and again, one a little behind the other
//! (vm-scalability's `lru-file-readtwice`, scaled down). Either each two are in a group with a file
//! of its own, or all are in one group and read one file, 32 MiB apart.
//!
//! Linux had the lists of each group under one lock for all groups, and from 5.11 on under a lock
//! for each (Alex Shi). A lock for each group is of no use to one group that many CPUs use.

mod older;
mod pagefold;

use anyhow::Result;
use std::time::Duration;

use crate::scaling::experiment::{Bound, Claim, Experiment, Measure, Workload};
use crate::scaling::job::{Job, Sample};
use crate::scaling::stage::own_work;

/// Pages that two readers read.
const PART: u64 = 2048;
/// Pages of memory for them.
const MEMORY: u64 = PART / 2;
/// Pages from one part to the next, where parts are in one file.
const STRIDE: u64 = 8192;
/// Times that all of a part is read before anything is measured.
const ROUNDS: u64 = 3;
/// Pages that the second reader is behind.
const BEHIND: u64 = 64;
/// The rest of a read: the system call, and the user's.
const READ_NS: u64 = 500;

const GROUPS: Workload = Workload {
    name: Workload::GROUPS,
    about: "each two readers have a group and a file of their own, and too little memory",
};
const ONE_GROUP: Workload = Workload { name: Workload::ONE_GROUP, about: "the same readers in one group, on one file" };

/// The experiment.
pub(crate) const READTWICE: Experiment = Experiment {
    name: "readtwice",
    question: "How does reclaim scale when files are re-read in too little memory?",
    operation: "one read of 4 KiB",
    machine: "xeon-e5-2699v4",
    workloads: &[GROUPS, ONE_GROUP],
    schemes: &[older::GLOBAL, older::GROUP, pagefold::SCHEME],
    bytes: None,
    devices: &[],
    // A reader that asks for a window of 256 pages is at it for 0.3 ms: with less, its end is what
    // is measured.
    time: Some(Duration::from_millis(2)),
    lists: true,
    spread: false,
    published: &[],
    claims: &[
        on_80(GROUPS.name, Bound::AtLeast(0.8)),
        on_80(ONE_GROUP.name, Bound::AtLeast(0.5)),
        Claim { measure: Measure::ListsLost, ..on_80(GROUPS.name, Bound::AtMost(2.0)) },
        over(GROUPS.name, "global-lock", 4.0),
        over(ONE_GROUP.name, "group-lock", 5.0),
    ],
};

const fn on_80(workload: &'static str, bound: Bound) -> Claim {
    let (machine, scheme, measure) = ("xeon-e5-2699v4", "pagefold", Measure::Efficiency);
    Claim { machine, workload, scheme, cpus: 80, measure, bound, gate: true }
}

/// Not gates: what the older designs do under their locks is a guess.
const fn over(workload: &'static str, other: &'static str, times: f64) -> Claim {
    let (machine, scheme, bound) = ("xeon-e5-2699v4", "pagefold", Bound::AtLeast(times));
    Claim { machine, workload, scheme, cpus: 80, measure: Measure::Over(other), bound, gate: false }
}

/// Files, and too little memory for them.
trait PageCache: Sync + Sized {
    /// A reader's own.
    type Reader: Send;
    /// For so many parts, in one group or in a group each.
    fn new(parts: usize, one_group: bool) -> Self;
    /// The reader number `reader` of two of a part.
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
}

fn measure<C: PageCache + Send>(job: &Job<'_>) -> Result<Sample> {
    let one_group = job.workload.name == ONE_GROUP.name;
    job.measure(
        || C::new(job.tasks.div_ceil(2), one_group),
        |cache, task| {
            let (part, second) = (task / 2, task % 2);
            let reader = cache.begin(part, second);
            let mut walk = Walk { reader, next: 0, into: vec![0; 4096].into() };
            // What is measured is read again, and each two are somewhere else in their part.
            let ahead = part as u64 * 7 % PART + (1 - second as u64) * BEHIND;
            (0..ROUNDS * PART + ahead).for_each(|_| walk.step(cache));
            walk
        },
        |cache, walk| walk.step(cache),
    )
}
