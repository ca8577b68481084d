//! How finding a cached page scales: older designs beside Pagefold's.
//!
//! Linux found pages of a file in a radix tree. Readers held a spinlock, and from 2.6.12 on a
//! reader/writer lock. Nick Piggin then let readers walk the tree without a lock: they increment
//! the page's count, which keeps the page. A reader of Pagefold writes nothing at all. The older
//! designs and Pagefold's file implement the same narrow trait. The older designs use `sync`'s
//! atomics (even for tree slots), so that on virtual CPUs each access to shared memory has its
//! cost.

mod counted;
mod locked;
mod memory;
mod pagefold;
mod planted;
mod rwlock;
mod speculative;
mod spinlock;
mod tree;

use std::ops::Range;

use anyhow::Result;
use sync::random::mix;

use crate::placed::Placed;
use crate::scaling::experiment::{Bound, Claim, Column, Experiment, Figure, Measure, Published};
use crate::scaling::job::Job;
use crate::scaling::row::Row;
use crate::scaling::sample::Sample;
use crate::scaling::stage::{own_work, user_work};
use crate::scaling::workload::Workload;

/// What [`tree`] and [`speculative`] import. A test compiles these files with `core`'s atomics
/// instead.
mod seam {
    pub(crate) use sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

/// Bytes in a page.
const PAGE: usize = 4096;
/// The number of pages in each task's own part. They fit into a core's cache, so that the
/// experiment measures lookups rather than memory.
const PART: u64 = 16;
/// The page that all tasks want.
const HOT: u64 = 3;
/// The number of pages that each task reads through its mapping. 64 tasks then read 128 Ki pages of
/// 4 KiB (512 MiB): a 16th of the pages in the published run, which had 32 GiB in pages of 16 KiB.
const MAPPED: u64 = 2048;
/// The same where figures mean nothing.
const QUICK_MAPPED: u64 = 256;
/// Pages that a task takes out of the file and puts back, one after the other.
const CHANGED: u64 = 512;
/// Reads from one such page to the next.
const CHANGE_EVERY: u64 = 16;
/// The time of a page fault of the older designs without the lookup. It is the only figure that is
/// fitted to the published table, in which [`PUBLISHED_FAULTS`] on one CPU took 2.04 s.
const FAULT_NS: u64 = 300;
/// What the published process did with each page, outside of the kernel: 0.65 s in all. Pagefold's
/// tasks do it, too.
const USER_NS: u64 = 310;
/// The faults of the published runs: 32 GiB in pages of 16 KiB.
const PUBLISHED_FAULTS: f64 = (2 << 20) as f64;

const OWN_PARTS: Workload =
    Workload { name: "own-parts", about: "each task reads its own part of one cached file, page after page" };
const HOT_PAGE: Workload = Workload { name: "hot-page", about: "all tasks read the same page" };
const FAULTS: Workload = Workload {
    name: "faults",
    about: "each task maps the file in a space of its own, and reads 8 bytes of each page of its own 8 MiB once",
};
const FAULTS_BESIDE_CHANGES: Workload = Workload {
    name: "faults-beside-changes",
    about: "the same; after each 16th page, a page that isn't read is taken out of the file and put back",
};

/// The experiment.
pub(crate) const LOOKUP: Experiment = Experiment {
    name: "lookup",
    question: "How does finding a page of a cached file scale?",
    operation: "one read_at within a cached page",
    machine: "xeon-e5-2699v4",
    workloads: &[OWN_PARTS, HOT_PAGE, FAULTS, FAULTS_BESIDE_CHANGES],
    long: &[],
    schemes: &[spinlock::SCHEME, rwlock::SCHEME, counted::SCHEME, pagefold::SCHEME, planted::SCHEME],
    bytes: Some(PAGE),
    devices: &[],
    time: None,
    lists: false,
    spread: false,
    published: &[Published {
        machine: "altix-64",
        workload: FAULTS.name,
        source: "Nick Piggin, \"[rfc] lockless pagecache\", linux-kernel, 27 June 2005",
        about: "a 64-way Altix, a cached file of 32 GiB read-faulted by 1 process, or by 64 with 512 MiB each: plain \
                2.6.12 \
                (rwlock) and lock-free; with lock-free there wasn't enough work to keep 64 CPUs busy",
        unit: "s",
        higher_is_better: false,
        older: None,
        figures: &[
            Figure { scheme: "rwlock", cpus: 1, value: 2.09, deviation: None },
            Figure { scheme: "rwlock", cpus: 64, value: 4.92, deviation: None },
            Figure { scheme: "counted", cpus: 1, value: 2.04, deviation: None },
            Figure { scheme: "counted", cpus: 64, value: 0.12, deviation: None },
        ],
        beside: &[FAULTS_BESIDE_CHANGES.name],
        columns: COLUMNS,
        note: "The scale is a 16th in pages: a task reads 2,048 pages of 4 KiB, where a process read 32,768 pages of \
               16 KiB. The times are those of as many faults as were published, 2 Mi. Of each fault, 310 ns are in \
               user mode, as published; the rest of the older designs' faults is fitted to the published time of one \
               process. Published in user mode and in the kernel: 0.65 and 1.43 s with 1 process, 0.75 and 291 s with \
               64; lock-free, 0.66 and 1.38 s, and 0.68 and 1.42 s. The loss of the reader/writer lock doesn't come \
               out: a fault hands its line over twice, and a hand-over would have to take 1.2 µs. The preset has 500 \
               ns, an estimate of 300 to 900, without the retries of a busy directory. The published lock-free run \
               hadn't enough work for 64 CPUs.",
    }],
    unpublished: &[],
    claims: &[
        published_scaling("spinlock", Bound::AtMost(1.0)),
        published_scaling("rwlock", Bound::AtMost(1.0)),
        published_scaling("counted", Bound::AtLeast(16.0)),
        Claim { gate: false, ..on_88("counted", HOT_PAGE.name, Measure::Efficiency, Bound::AtMost(0.5)) },
        on_88("pagefold", OWN_PARTS.name, Measure::Efficiency, Bound::AtLeast(0.99)),
        on_88("pagefold", OWN_PARTS.name, Measure::SharedWrites, Bound::AtMost(0.001)),
        on_88("pagefold", HOT_PAGE.name, Measure::Efficiency, Bound::AtLeast(0.99)),
        on_88("pagefold", HOT_PAGE.name, Measure::SharedWrites, Bound::AtMost(0.001)),
    ],
};

/// On 64 CPUs, the designs with a lock are at most as fast as on one CPU; the one without a lock is
/// at least 16 times as fast.
const fn published_scaling(scheme: &'static str, bound: Bound) -> Claim {
    let (machine, workload, measure) = ("altix-64", FAULTS.name, Measure::Scaling);
    Claim { machine, workload, scheme, cpus: 64, measure, bound, gate: false }
}

/// The times of as many faults as were published. The note has the published ones.
const COLUMNS: &[Column] = &[
    Column { head: "elapsed, s", figure: |row| Some(PUBLISHED_FAULTS / row.throughput().median) },
    Column { head: "user, s", figure: |row| cpu_s(row, |user| user) },
    Column { head: "sys, s", figure: |row| cpu_s(row, |user| 1.0 - user) },
];

/// Returns a part of the CPU time of all faults, in seconds. `part` takes the share of time in user
/// mode.
fn cpu_s(row: &Row, part: fn(f64) -> f64) -> Option<f64> {
    let user = row.inside(|inside| Some(inside.user() / 100.0))?.median;
    Some(PUBLISHED_FAULTS * row.summary(|sample| sample.cpu_ns_per_operation).median * part(user) / 1e9)
}

const fn on_88(scheme: &'static str, workload: &'static str, measure: Measure, bound: Bound) -> Claim {
    Claim { machine: "xeon-e5-2699v4", workload, scheme, cpus: 88, measure, bound, gate: true }
}

/// A cached file.
trait PageCache: Sync {
    /// Nanoseconds that a fault takes besides.
    const FAULT_NS: u64 = FAULT_NS;
    /// Copies the beginning of a page, which is in memory.
    fn read(&self, page: u64, into: &mut [u8]);
    /// Brings pages into memory, near the task that will read them. The task also maps the file.
    fn map(&self, _task: usize, _pages: Range<u64>) {}
    /// Reads a page through a task's mapping, for the first time.
    fn fault(&self, _task: usize, page: u64, into: &mut [u8]) {
        self.read(page, into);
    }
    /// Takes a page out of the file, and puts it back.
    fn change(&self, task: usize, page: u64);
}

/// What the file holds at a page's beginning.
fn contents(page: u64) -> u64 {
    mix(page + 1)
}

/// One task, and where it reads next.
struct Reader {
    task: usize,
    first: u64,
    pages: u64,
    next: u64,
    into: Placed,
    maps: bool,
    /// The first page of those that it takes out of the file.
    changes: Option<u64>,
}

impl Reader {
    fn new(job: &Job<'_>, task: usize) -> Self {
        let maps = maps(job);
        let (first, pages) = match (maps, job.workload.name == HOT_PAGE.name) {
            (true, _) => (task as u64 * mapped(job), mapped(job)),
            (_, true) => (HOT, 1),
            (_, false) => (task as u64 * PART, PART),
        };
        let beside = job.workload.name == FAULTS_BESIDE_CHANGES.name;
        let changes = beside.then_some(job.tasks as u64 * mapped(job) + task as u64 * CHANGED);
        let into = Placed::between_pages(if maps { 8 } else { job.choices.bytes.min(PAGE) });
        Self { task, first, pages, next: 0, into, maps, changes }
    }

    /// If the task reads through a mapping, maps its part of the file. Otherwise reads the part
    /// twice, and checks the bytes.
    fn warm_up(&mut self, cache: &impl PageCache) {
        if let Some(first) = self.changes {
            cache.map(self.task, first..first + CHANGED);
        }
        if self.maps {
            return cache.map(self.task, self.first..self.first + self.pages);
        }
        for _ in 0..2 * self.pages {
            self.read(cache);
            self.check();
        }
    }

    /// Checks what was read last.
    fn check(&mut self) {
        let page = self.first + (self.next + self.pages - 1) % self.pages;
        let (expected, read) = (contents(page).to_ne_bytes(), self.into.bytes());
        let len = read.len().min(8);
        assert_eq!(read[..len], expected[..len], "the bytes of page {page}");
    }

    fn read<C: PageCache>(&mut self, cache: &C) {
        let page = self.first + self.next;
        self.next = (self.next + 1) % self.pages;
        if !self.maps {
            return cache.read(page, self.into.bytes());
        }
        cache.fault(self.task, page, self.into.bytes());
        if C::FAULT_NS != 0 {
            own_work(C::FAULT_NS);
        }
        user_work(USER_NS);
        if let Some(first) = self.changes.filter(|_| self.next.is_multiple_of(CHANGE_EVERY)) {
            cache.change(self.task, first + self.next / CHANGE_EVERY % CHANGED);
        }
        self.check();
    }
}

/// Whether tasks read through mappings.
fn maps(job: &Job<'_>) -> bool {
    job.workload.name == FAULTS.name || job.workload.name == FAULTS_BESIDE_CHANGES.name
}

/// The pages that each task then reads.
fn mapped(job: &Job<'_>) -> u64 {
    if job.choices.quick { QUICK_MAPPED } else { MAPPED }
}

/// Measures a page cache. `new(pages, tasks)` creates one.
fn measure<C: PageCache + Send>(job: &Job<'_>, new: fn(u64, usize) -> C) -> Result<Sample> {
    let pages = job.tasks as u64 * if maps(job) { mapped(job) + CHANGED } else { PART };
    let set_up = || new(pages, job.tasks);
    let begin = |cache: &C, task: usize| {
        let mut reader = Reader::new(job, task);
        reader.warm_up(cache);
        reader
    };
    let operation = |cache: &C, reader: &mut Reader| reader.read(cache);
    if maps(job) {
        job.measure_rounds(mapped(job), set_up, begin, operation)
    } else {
        job.measure(set_up, begin, operation)
    }
}
