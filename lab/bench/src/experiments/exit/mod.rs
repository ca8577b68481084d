//! How the end of many processes scales that share pages: 64 owners drop the same shared pages at
//! once, each handing on that they were used, and free their private ones.
//!
//! Linux looks at each page's accessed bit when a process ends, and marks the page as used: the
//! first time that is a bit, the second time the page goes to the active list, under the lock of
//! the LRU lists. With those lists changed side by side a database exited 6.3 times as fast, its
//! author says. Here owners come and go all the time: for each private page that is taken and
//! freed, one of the shared pages is handed on.

mod older;
mod pagefold;

use anyhow::Result;
use std::time::Duration;

use crate::scaling::experiment::{Bound, Claim, Experiment, Measure, Workload};
use crate::scaling::job::{Job, Sample};
use crate::scaling::stage::own_work;

/// Private pages of an owner, and pages that all share.
const PRIVATE: u64 = 64;
const SHARED: u64 = 1024;
/// What else there is to do for a page, in taking and in dropping it.
const PAGE_NS: u64 = 500;

const SHARED_PAGES: Workload =
    Workload { name: "shared", about: "owners of 64 private pages hand on 64 of 1,024 shared ones, the same at once" };

/// The experiment.
pub(crate) const EXIT: Experiment = Experiment {
    name: "exit",
    question: "How does it scale when owners of shared pages end?",
    operation: "one shared page handed on, and one private page taken and freed",
    machine: "xeon-e5-2699v4",
    workloads: &[SHARED_PAGES],
    schemes: &[older::ONE_LOCK, older::SIDE_BY_SIDE, pagefold::SCHEME],
    bytes: None,
    devices: &[],
    time: Some(Duration::from_micros(800)),
    lists: true,
    spread: false,
    published: &[],
    claims: &[Claim {
        machine: "xeon-e5-2699v4",
        workload: SHARED_PAGES.name,
        scheme: "pagefold",
        cpus: 64,
        measure: Measure::Efficiency,
        bound: Bound::AtLeast(0.7),
        gate: true,
    }],
};

/// Pages that owners share, and private ones.
trait Memory: Sync + Sized {
    /// An owner's own.
    type Owner: Send;
    /// For so many owners.
    fn new(owners: usize) -> Self;
    /// A new owner.
    fn begin(&self, owner: usize) -> Self::Owner;
    /// Takes a private page.
    fn take(&self, owner: &mut Self::Owner, page: u64);
    /// Marks a shared page as used.
    fn hand_on(&self, owner: &mut Self::Owner, page: u64);
    /// Frees the private pages.
    fn end(&self, owner: &mut Self::Owner);
}

struct Life<O> {
    owner: O,
    page: u64,
    shared: u64,
}

impl<O> Life<O> {
    fn step<M: Memory<Owner = O>>(&mut self, memory: &M) {
        memory.take(&mut self.owner, self.page);
        memory.hand_on(&mut self.owner, self.shared);
        own_work(PAGE_NS);
        self.shared = (self.shared + 1) % SHARED;
        self.page += 1;
        if self.page == PRIVATE {
            memory.end(&mut self.owner);
            self.page = 0;
        }
    }
}

fn measure<M: Memory + Send>(job: &Job<'_>) -> Result<Sample> {
    job.measure(
        || M::new(job.tasks),
        |memory, task| {
            let mut life = Life { owner: memory.begin(task), page: 0, shared: 0 };
            (0..2 * PRIVATE).for_each(|_| life.step(memory));
            life
        },
        |memory, life| life.step(memory),
    )
}
