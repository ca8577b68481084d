//! How do locks over ranges scale? Compares the lock proposed for Linux in 2019 with a plain lock
//! and with `span-lock`.
//!
//! The proposed lock keeps all ranges, held and requested, in an interval tree under a spinlock;
//! each waiter counts the earlier ranges that conflict with its own. The authors of XFS found their
//! B-tree of extents faster than the interval tree. With either collection, all tasks write to one
//! cache line, even if their ranges are far apart. `span-lock` has no such line.

mod counting;
mod extents;
mod file_io;
mod intervals;
mod parking;
mod plain;
mod striped;

use std::hint::black_box;

use anyhow::Result;
use span_lock::LockRange;
use sync::random::Random;

use crate::experiments::older::rw_sem::Use;
use crate::scaling::experiment::{Bound, Claim, Experiment, Figure, Measure, Published, Scheme};
use crate::scaling::job::Job;
use crate::scaling::sample::Sample;
use crate::scaling::stage::own_work;
use crate::scaling::workload::Workload;

const FIRST: Workload = Workload {
    name: "uncontended",
    about: "each task locks ranges of 4 KiB to 1 MiB of a file of its own; nothing is done inside",
};
const AFTER: Workload =
    Workload { name: "uncontended-after", about: "the same, but disjoint ranges of each file have met before" };
const DISJOINT: Workload = Workload {
    name: "disjoint",
    about: "each task reads and writes, in turn, ranges of 4 KiB to 1 MiB in its own 64 MiB of one file; 400 ns \
            inside, a \
            page's copy",
};
const OVERLAPPING: Workload =
    Workload { name: "overlapping", about: "the same, but one use in ten is of the same MiB for all tasks" };
const FULL_READERS: Workload =
    Workload { name: "full-readers", about: "all read the full range, one lock for all; 100 ns inside" };
const FULL_WRITERS: Workload =
    Workload { name: "full-writers", about: "all write the full range, one lock for all; 100 ns inside" };
const MIXED: Workload = Workload { name: "mixed", about: "as disjoint, but one use in 64 writes the full range" };
const DISJOINT_IO: Workload = Workload {
    name: "file",
    about: "each task reads or writes 4 KiB at random places of its own 4 MiB of one cached file",
};
const OVERLAPPING_IO: Workload = Workload { name: "file-overlapping", about: "the same, all tasks in the same 4 MiB" };

/// The experiment.
pub(crate) const RANGE: Experiment = Experiment {
    name: "range",
    question: "How does locking ranges of one file scale?",
    operation: "one range locked, used and unlocked",
    machine: "xeon-e5-2699v4",
    workloads: &[FIRST, AFTER, DISJOINT, OVERLAPPING, FULL_READERS, FULL_WRITERS, MIXED, DISJOINT_IO, OVERLAPPING_IO],
    long: &[],
    schemes: SCHEMES,
    bytes: None,
    devices: &[],
    time: None,
    lists: false,
    spread: false,
    published: &[Published {
        machine: "xeon-4-cores",
        workload: DISJOINT_IO.name,
        source: "Davidlohr Bueso, \"[RFC PATCH 00/14] mmap_sem range locking\", linux-kernel, 21 May 2019",
        about: "buffered reads and writes by fio, as many of each, together; 1 to 16 processes on disjoint ranges of \
                one file; the machine isn't named",
        unit: "kIOPS",
        higher_is_better: true,
        older: Some("rwlock"),
        figures: &[
            published("rwlock", 1, 114.0),
            published("rwlock", 2, 122.0),
            published("rwlock", 4, 122.0),
            published("rwlock", 8, 110.0),
            published("rwlock", 16, 30.0),
            published("interval-tree", 1, 128.0),
            published("interval-tree", 2, 222.0),
            published("interval-tree", 4, 456.0),
            published("interval-tree", 8, 390.0),
            published("interval-tree", 16, 80.0),
        ],
        beside: &[OVERLAPPING_IO.name, FULL_READERS.name, FULL_WRITERS.name, FIRST.name],
        columns: &[],
        note: "The published machine isn't named. Its curve, which falls from 8 processes on, is that of a machine \
               with four cores and eight threads, so that is what is simulated.",
    }],
    unpublished: &[],
    claims: &[
        Claim { cpus: 16, gate: false, ..on_88(DISJOINT.name, Measure::Scaling, Bound::AtLeast(15.0)) },
        on_88(DISJOINT.name, Measure::Efficiency, Bound::AtLeast(0.95)),
        on_88(FULL_WRITERS.name, Measure::Over("rwlock"), Bound::AtLeast(1.0)),
        Claim { cpus: 1, gate: false, ..on_88(FIRST.name, Measure::Over("rwlock"), Bound::AtLeast(1.0)) },
        Claim { cpus: 1, gate: false, ..on_88(AFTER.name, Measure::Over("rwlock"), Bound::AtLeast(1.0)) },
    ],
};

#[cfg(pagefold_manycore)]
const SCHEMES: &[Scheme] = &[plain::SCHEME, intervals::SCHEME, extents::SCHEME, parking::SCHEME, striped::SCHEME];
#[cfg(not(pagefold_manycore))]
const SCHEMES: &[Scheme] =
    &[plain::SCHEME, intervals::SCHEME, extents::SCHEME, parking::SCHEME, parking::FAIR, striped::SCHEME];

const fn published(scheme: &'static str, cpus: usize, value: f64) -> Figure {
    Figure { scheme, cpus, value, deviation: None }
}

const fn on_88(workload: &'static str, measure: Measure, bound: Bound) -> Claim {
    Claim { machine: "xeon-e5-2699v4", workload, scheme: "pagefold", cpus: 88, measure, bound, gate: true }
}

/// A lock of ranges, for as many tasks as there are CPUs.
trait FileLock: Sync {
    /// A free lock for so many tasks.
    fn new(tasks: usize) -> Self;

    /// Runs `inside` while `task` holds the range. A task may hold only one range at a time. All
    /// implementations are inlined, so that the figures don't depend on which locks the compiler
    /// would inline.
    fn with(&self, task: usize, range: LockRange, what: Use, inside: impl FnOnce());

    /// Lets disjoint ranges meet, for a lock that remembers that.
    fn meet(&self) {}
}

const KIB: u64 = 1 << 10;
const MIB: u64 = 1 << 20;
/// The part of the file that a task has for itself.
const PART: u64 = 64 * MIB;

/// A file's lock on lines of its own.
#[repr(align(128))]
struct File<L>(L);

/// A task, and what it does next.
struct User {
    task: usize,
    random: Random,
    workload: &'static str,
}

impl User {
    /// Where and how the next use is.
    #[inline(always)]
    fn next(&mut self) -> (LockRange, Use) {
        let (full, what) = match self.workload {
            name if name == FULL_READERS.name => (true, Use::Read),
            name if name == FULL_WRITERS.name => (true, Use::Write),
            name if name == MIXED.name && self.random.one_in(64) => (true, Use::Write),
            _ => (false, if self.random.one_in(2) { Use::Read } else { Use::Write }),
        };
        if full {
            return (LockRange::FULL, what);
        }
        // The lengths 4 KiB, 8 KiB, … 1 MiB are equally frequent.
        let shift = self.random.below(9);
        let shared = self.workload == OVERLAPPING.name && self.random.one_in(10);
        let (start, room) = if shared { (0, MIB) } else { ((1 + self.task as u64) * PART, PART) };
        let len = ((4 * KIB) << shift).min(MIB);
        let pages = (room - len) / (4 * KIB) + 1;
        // The black boxes make sure that the range is computed even for locks that don't use it.
        // They are around single numbers. Around a pair of words, a store of both words as one
        // could be followed by loads of each word, or the reverse, and such loads wait for the
        // store.
        let start = black_box(start + self.random.below(pages) * 4 * KIB);
        (LockRange::at(start, black_box(len)).unwrap_or(LockRange::FULL), what)
    }
}

/// Whether tasks read and write a file, and don't only lock its ranges.
fn is_io(job: &Job<'_>) -> bool {
    job.workload.name == DISJOINT_IO.name || job.workload.name == OVERLAPPING_IO.name
}

fn measure<L: FileLock + Send>(job: &Job<'_>) -> Result<Sample> {
    if is_io(job) {
        return file_io::measure_locked::<L>(job);
    }
    let workload = job.workload.name;
    let alone = workload == FIRST.name || workload == AFTER.name;
    let inside_ns = match workload {
        _ if alone => 0,
        name if name == FULL_READERS.name || name == FULL_WRITERS.name => 100,
        _ => 400,
    };
    let set_up = || {
        let locks = if alone { job.tasks } else { 1 };
        let locks: Vec<File<L>> = (0..locks).map(|_| File(L::new(job.tasks))).collect();
        if workload == AFTER.name {
            locks.iter().for_each(|lock| lock.0.meet());
        }
        locks
    };
    let operation = |locks: &Vec<File<L>>, user: &mut User| {
        let (range, what) = user.next();
        let lock = &locks[user.task % locks.len()].0;
        lock.with(user.task, range, what, || {
            if inside_ns != 0 {
                own_work(inside_ns);
            }
        });
    };
    let begin = |locks: &Vec<File<L>>, task: usize| {
        let mut user = User { task, random: Random::seeded(task as u64), workload };
        // Warms up. A lock that adapts to its use has done so after this many operations.
        (0..64).for_each(|_| operation(locks, &mut user));
        user
    };
    job.measure(set_up, begin, operation)
}
