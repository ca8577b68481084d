//! How does the end of many processes scale that share pages? All of them have mapped and used the
//! pages of one cached file, and they end at the same time.
//!
//! When a process ends, Linux decrements the counts of each page that the process had mapped. If
//! the process had used the page, Linux also marks the page as used. The first mark sets a bit of
//! the page. The second one activates the page: pages are moved to the active list 15 at a time,
//! under the lock of the LRU lists. A page counts as active only after that. So processes that end
//! together all try to activate the same pages. With lists that CPUs change side by side, a
//! database exited 6.3 times as fast, according to the author of that change.

mod older;
mod pagefold;

use anyhow::Result;

use crate::scaling::experiment::{Bound, Claim, Experiment, Figure, Measure, Published};
use crate::scaling::job::Job;
use crate::scaling::sample::Sample;
use crate::scaling::stage::own_work;
use crate::scaling::workload::Workload;

/// Pages that all share.
const SHARED: u64 = 4096;

const SHARED_PAGES: Workload = Workload {
    name: "shared",
    about: "each task's space has mapped and read the same 16 MiB of a file; all end at once",
};

/// The experiment.
pub(crate) const EXIT: Experiment = Experiment {
    name: "exit",
    question: "How does it scale when spaces end that share a file's pages?",
    operation: "one mapped page of a space that ends",
    machine: "xeon-e5-2699v4",
    workloads: &[SHARED_PAGES],
    long: &[],
    schemes: &[older::ONE_LOCK, older::SIDE_BY_SIDE, pagefold::SCHEME],
    bytes: None,
    devices: &[],
    time: None,
    lists: true,
    spread: false,
    published: &[Published {
        machine: "xeon-e5-2699v4",
        workload: SHARED_PAGES.name,
        source: "Daniel Jordan, \"[RFC PATCH v2 0/8] lru_lock scalability and SMP list functions\", linux-kernel, \
                 11 September 2018",
        about: "a commercial database with pages of 4 KiB exits 6.3 times faster; how many processes isn't said",
        unit: "×",
        higher_is_better: true,
        older: Some("one-lock"),
        figures: &[
            Figure { scheme: "one-lock", cpus: 88, value: 1.0, deviation: None },
            Figure { scheme: "side-by-side", cpus: 88, value: 6.3, deviation: None },
        ],
        beside: &[],
        columns: &[],
        note: "The gain depends on how many processes end together: 1.1 with 16, 3.3 with 64, 3.6 with 88. How many \
               there were isn't said.",
    }],
    unpublished: &[],
    claims: &[Claim {
        machine: "xeon-e5-2699v4",
        workload: SHARED_PAGES.name,
        scheme: "pagefold",
        cpus: 88,
        measure: Measure::Over("side-by-side"),
        bound: Bound::AtLeast(30.0),
        gate: true,
    }],
};

/// A file's pages, which spaces share.
trait Memory: Sync + Sized {
    /// A space that has mapped and used all of them.
    type Space: Send;
    /// With all pages in memory, for so many spaces.
    fn new(spaces: usize) -> Self;
    /// A space that has mapped and used all pages.
    fn begin(&self) -> Self::Space;
    /// Unmaps the next page of a space that ends, in the order of their numbers.
    fn unmap(&self, space: &mut Self::Space, page: u64);
    /// The end of the space, all of whose pages were unmapped.
    fn end(&self, space: Self::Space);
}

/// A task's space, until its end.
struct Life<S> {
    space: Option<S>,
    next: u64,
}

fn measure<M: Memory + Send>(job: &Job<'_>) -> Result<Sample> {
    job.measure_once(
        SHARED,
        || M::new(job.tasks),
        |memory, _| Life { space: Some(memory.begin()), next: 0 },
        |memory, life| {
            let Some(space) = &mut life.space else { return own_work(1_000) };
            memory.unmap(space, life.next);
            life.next += 1;
            if life.next == SHARED
                && let Some(space) = life.space.take()
            {
                memory.end(space);
            }
        },
    )
}
