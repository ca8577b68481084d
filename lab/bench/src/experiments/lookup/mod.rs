//! How finding a cached page scales: older designs beside Pagefold's.
//!
//! Linux found pages of a file in a radix tree, under a spinlock; from 2.6.12 on under a
//! reader/writer lock. Nick Piggin then let readers walk the tree without a lock and made sure of
//! the page by its count. Pagefold writes nothing at all. The old designs live here, made of
//! `sync`'s atomics (tree slots too), so that on virtual CPUs nothing they share is free, and
//! behind the same narrow trait as Pagefold's file.

mod counted;
mod locked;
mod memory;
mod pagefold;
mod planted;
mod rwlock;
mod speculative;
mod spinlock;
mod tree;

use anyhow::Result;
use sync::random::mix;

use crate::placed::Placed;
use crate::scaling::experiment::{Bound, Claim, Experiment, Figure, Measure, Published, Workload};
use crate::scaling::job::{Job, Sample};
use crate::scaling::stage::own_work;

/// What [`tree`] and [`speculative`] take from elsewhere; a test compiles them without the seam.
mod seam {
    pub(crate) use sync::atomic::{AtomicU32, AtomicU64, Ordering};
}

/// Bytes in a page.
const PAGE: usize = 4096;
/// Pages of each task's own part: they stay in its core's cache, as in a test that measures lookups
/// and not memory.
const PART: u64 = 16;
/// The page that all tasks want.
const HOT: u64 = 3;
/// The rest of a page fault: 2.04 s for 2 Mi faults of 16 KiB in the published run on one CPU, less
/// the lookup.
const FAULT_NS: u64 = 900;

const OWN_PARTS: Workload =
    Workload { name: "own-parts", about: "each task reads its own part of one cached file, page after page" };
const HOT_PAGE: Workload = Workload { name: "hot-page", about: "all tasks read the same page" };
const FAULTS: Workload = Workload {
    name: "faults",
    about: "as published: pages of each task's own part are found, and 900 ns of other work are done for each; 8 \
            bytes are \
            copied",
};

/// The experiment.
pub(crate) const LOOKUP: Experiment = Experiment {
    name: "lookup",
    question: "How does finding a page of a cached file scale?",
    operation: "one read_at within a cached page",
    machine: "xeon-e5-2699v4",
    workloads: &[OWN_PARTS, HOT_PAGE, FAULTS],
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
        figures: &[
            Figure { scheme: "rwlock", cpus: 1, value: 2.09 },
            Figure { scheme: "rwlock", cpus: 64, value: 4.92 },
            Figure { scheme: "counted", cpus: 1, value: 2.04 },
            Figure { scheme: "counted", cpus: 64, value: 0.12 },
        ],
    }],
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

/// Locked is slower on 64 CPUs than on one, lock-free at least 16 times as fast.
const fn published_scaling(scheme: &'static str, bound: Bound) -> Claim {
    let (machine, workload, measure) = ("altix-64", FAULTS.name, Measure::Scaling);
    Claim { machine, workload, scheme, cpus: 64, measure, bound, gate: false }
}

const fn on_88(scheme: &'static str, workload: &'static str, measure: Measure, bound: Bound) -> Claim {
    Claim { machine: "xeon-e5-2699v4", workload, scheme, cpus: 88, measure, bound, gate: true }
}

/// A cached file.
trait PageCache: Sync {
    /// Copies the beginning of a page, which is in memory.
    fn read(&self, page: u64, into: &mut [u8]);
}

/// What the file holds at a page's beginning.
fn contents(page: u64) -> u64 {
    mix(page + 1)
}

/// One task, and where it reads next.
struct Reader {
    first: u64,
    pages: u64,
    next: u64,
    into: Placed,
    other_work_ns: u64,
}

impl Reader {
    fn new(job: &Job<'_>, task: usize) -> Self {
        let (first, pages) = match job.workload.name == HOT_PAGE.name {
            true => (HOT, 1),
            false => (task as u64 * PART, PART),
        };
        let faults = job.workload.name == FAULTS.name;
        let bytes = if faults { 8 } else { job.choices.bytes.min(PAGE) };
        let other_work_ns = if faults { FAULT_NS } else { 0 };
        Self { first, pages, next: 0, into: Placed::between_pages(bytes), other_work_ns }
    }

    /// Reads all of the part twice, and looks at what it read.
    fn warm_up(&mut self, cache: &impl PageCache) {
        for _ in 0..2 * self.pages {
            let page = self.first + self.next;
            self.read(cache);
            let (expected, read) = (contents(page).to_ne_bytes(), self.into.bytes());
            let len = read.len().min(8);
            assert_eq!(read[..len], expected[..len], "the bytes of page {page}");
        }
    }

    fn read(&mut self, cache: &impl PageCache) {
        cache.read(self.first + self.next, self.into.bytes());
        if self.other_work_ns != 0 {
            own_work(self.other_work_ns);
        }
        self.next = (self.next + 1) % self.pages;
    }
}

/// Measures a page cache; `new` makes one that holds so many pages.
fn measure<C: PageCache + Send>(job: &Job<'_>, new: fn(u64) -> C) -> Result<Sample> {
    let pages = job.tasks as u64 * PART;
    job.measure(
        || new(pages),
        |cache, task| {
            let mut reader = Reader::new(job, task);
            reader.warm_up(cache);
            reader
        },
        |cache, reader| reader.read(cache),
    )
}
