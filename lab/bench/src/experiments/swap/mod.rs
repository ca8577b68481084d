//! How memory larger than its budget scales, with the whole way there and back: fault, reclaim,
//! slot, device.
//!
//! Tasks touch pages of one region of four times the budget, at random; four accesses of five read.
//! Every word of a page says which one it is, and is checked when it is read: pages are
//! incompressible, and one foreign word fails the run.
//!
//! The area is fragmented first: a second region fills it, and then loses all but an eighth of its
//! pages, at random; so there is hardly a cluster without a page in it. With the region's pages in
//! it as well, a little less than half of the slots are in use.
//!
//! A fault has one page come in, and on the average one go out. CPU time for each is that of all
//! threads, accesses that hit included; for the kernel that of the process, without the kernel's
//! own threads.

mod contents;
#[cfg(not(pagefold_manycore))]
pub(crate) mod kernel;
mod pagefold;

use anyhow::Result;
use std::ops::Range;
use std::time::Duration;

use crate::popularity::{Distribution, Popularity};
use crate::random::Random;
use crate::scaling::args::Device;
use crate::scaling::experiment::{Bound, Claim, Experiment, Measure, Scheme, Workload};
use crate::scaling::job::{Counts, Job, Sample};
use contents::Contents;

const PAGE: u64 = 4096;
/// Pages of the budget for each task on virtual CPUs, and for all on real ones.
const VIRTUAL_BUDGET: u64 = 256;
const REAL_BUDGET: u64 = (64 << 20) / PAGE;
/// The same to show that everything works.
const QUICK_SHARE: u64 = 8;
/// Pages of the region and of the area, in budgets.
const REGION_BUDGETS: u64 = 4;
const AREA_BUDGETS: u64 = 12;
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

/// The experiment.
pub(crate) const SWAP: Experiment = Experiment {
    name: "swap",
    question: "How does memory of four times the budget scale, in swap?",
    operation: "one access to 8 bytes of a page, of which some are in memory",
    machine: "xeon-e5-2699v4",
    workloads: &[UNIFORM, ZIPF, FIFTH, SEQUENTIAL, COMPRESSIBLE, SAME_FILLED, ZEROS],
    long: &[],
    schemes: SCHEMES,
    bytes: None,
    devices: DEVICES,
    time: Some(Duration::from_millis(1)),
    lists: false,
    spread: false,
    published: &[],
    claims: &[Claim {
        machine: "xeon-e5-2699v4",
        workload: UNIFORM.name,
        scheme: "pagefold",
        cpus: 88,
        measure: Measure::Efficiency,
        bound: Bound::AtLeast(0.9),
        gate: false,
    }],
};

#[cfg(pagefold_manycore)]
const SCHEMES: &[Scheme] = &[pagefold::SCHEME];
#[cfg(not(pagefold_manycore))]
const SCHEMES: &[Scheme] = &[kernel::SCHEME, pagefold::SCHEME];
#[cfg(pagefold_manycore)]
const DEVICES: &[Device] = &[Device::Memory, Device::Simulated];
#[cfg(not(pagefold_manycore))]
const DEVICES: &[Device] = &[Device::Memory, Device::Compressed, Device::Disk, Device::Simulated];

/// Sizes in pages.
#[derive(Clone, Copy)]
struct Sizes {
    budget: u64,
    region: u64,
    area: u64,
}

impl Sizes {
    fn of(job: &Job<'_>) -> Self {
        let all = if cfg!(pagefold_manycore) { job.tasks as u64 * VIRTUAL_BUDGET } else { REAL_BUDGET };
        // No budget is so small that its overheads are most of it.
        let budget = if job.choices.quick { (all / QUICK_SHARE).clamp(512, 2048) } else { all.max(4 * VIRTUAL_BUDGET) };
        Self { budget, region: REGION_BUDGETS * budget, area: AREA_BUDGETS * budget }
    }
}

/// Memory that is larger than its budget.
trait Memory: Sync {
    /// Addresses of `pages` pages of zeros.
    fn map(&self, pages: u64) -> u64;
    /// Fills a page.
    fn fill(&self, address: u64, page: &[u8; PAGE as usize]);
    /// Gives a page up.
    fn discard(&self, address: u64);
    /// The word at an address.
    fn read(&self, address: u64) -> u64;
    /// Changes the word at an address.
    fn write(&self, address: u64, word: u64);
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
    /// Where the region begins, and what fragments the area.
    region: u64,
    filler: u64,
}

/// One task.
struct Toucher {
    random: Random,
    /// Its part of the pages, and where in it it is, if it goes round.
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
        let popularity = Popularity::new(distribution, u32::try_from(sizes.region).expect("a few GiB"));
        let (region, filler) = (memory.map(sizes.region), memory.map(sizes.area));
        Self {
            memory,
            sizes,
            contents,
            popularity,
            is_sequential: job.workload.name == SEQUENTIAL.name,
            region,
            filler,
        }
    }

    /// Does a task's share of fragmenting the area and filling the region, and touches pages until
    /// it looks as ever.
    fn begin(&self, task: usize, tasks: usize) -> Toucher {
        let mut random = Random::new(task as u64);
        let share = |pages: u64| {
            let at = |task: usize| pages * task as u64 / tasks as u64;
            at(task)..at(task + 1)
        };
        let fill = |base: u64, page: u64| self.memory.fill(base + page * PAGE, &self.contents.page(page));
        share(self.sizes.area).for_each(|page| fill(self.filler, page));
        for page in share(self.sizes.area) {
            if random.below(ONE_STAYS_IN) > 0 {
                self.memory.discard(self.filler + page * PAGE);
            }
        }
        share(self.sizes.region).for_each(|page| fill(self.region, page));
        let round = self.is_sequential.then(|| share(self.sizes.region)).map(|part| (part.clone(), part.start));
        let mut toucher = Toucher { random, round };
        // Other tasks may still be filling theirs.
        share(self.sizes.region).for_each(|_| self.access(&mut toucher, |found| found == 0));
        toucher
    }

    /// One access; `may_be` says which word is none of the page's and all right nevertheless.
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
        let address = self.region + page * PAGE + word * 8;
        if toucher.random.below(ONE_WRITES_IN) == 0 {
            self.memory.write(address, self.contents.word(page, word, (draw >> 48) as u16));
        } else {
            let found = self.memory.read(address);
            let is_good = self.contents.is(page, word, found) || may_be(found);
            assert!(is_good, "page {page}, word {word}: {found:#x} isn't of that page");
        }
    }
}

fn measure<M: Memory + Send>(job: &Job<'_>, new: impl Fn(Sizes) -> M + Send + Sync) -> Result<Sample> {
    job.measure_traffic(
        || Subject::new(job, new(Sizes::of(job))),
        |subject, task| subject.begin(task, job.tasks),
        |subject, toucher| subject.access(toucher, |_| false),
        |subject| subject.memory.count(),
    )
}
