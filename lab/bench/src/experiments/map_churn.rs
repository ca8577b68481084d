//! How do mapping and unmapping in one space scale? Each task maps an area, touches a page of it,
//! protects it and unmaps it.

use std::collections::BTreeMap;

use anyhow::Result;
use pagefold::{Pagefold, Protection, Space};
use sync::lock::Mutex;

use super::OURS;
use super::older::rw_sem::{RwSem, Use};
use crate::scaling::experiment::{Bound, Claim, Experiment, Measure, Scheme};
use crate::scaling::job::Job;
use crate::scaling::sample::Sample;
use crate::scaling::stage::own_work;
use crate::scaling::workload::Workload;

const SMALL: Workload = Workload { name: "small", about: "areas of 64 KiB, all tasks in one space" };
const LARGE: Workload = Workload { name: "large", about: "areas of 8 MiB, all tasks in one space" };

/// The experiment.
pub(crate) const MAP_CHURN: Experiment = Experiment {
    name: "map-churn",
    question: "How do mapping and unmapping in one space scale?",
    operation: "one area mapped, a page of it touched, protected, unmapped",
    machine: "xeon-e5-2699v4",
    workloads: &[SMALL, LARGE],
    long: &[],
    schemes: SCHEMES,
    bytes: None,
    devices: &[],
    time: None,
    lists: false,
    spread: false,
    published: &[],
    unpublished: &[],
    claims: &[Claim {
        machine: "xeon-e5-2699v4",
        workload: SMALL.name,
        scheme: OURS,
        cpus: 88,
        measure: Measure::Efficiency,
        bound: Bound::AtLeast(0.7),
        gate: false,
    }],
};

const OLD: Scheme = Scheme {
    name: "one-lock",
    about: "one fair reader/writer lock around a tree of areas, as Linux has for changes; 300 ns in each, without \
            trap or memory",
    hidden: false,
    measure: |job| measure::<OneLock>(job),
};
const PAGEFOLD: Scheme = Scheme {
    name: OURS,
    about: "a Pagefold space: each change locks its own range, and there is no tree",
    hidden: false,
    measure: |job| measure::<Spaces>(job),
};

#[cfg(pagefold_manycore)]
const SCHEMES: &[Scheme] = &[OLD, PAGEFOLD];
#[cfg(not(pagefold_manycore))]
const SCHEMES: &[Scheme] = &[kernel::SCHEME, OLD, PAGEFOLD];

/// A space in which tasks map and unmap.
trait Churn: Sync {
    fn new(tasks: usize) -> Self;
    /// One turn with an area of `len` bytes.
    fn turn(&self, task: usize, len: u64);
}

fn measure<C: Churn + Send>(job: &Job<'_>) -> Result<Sample> {
    let len = if job.workload.name == SMALL.name { 64 << 10 } else { 8 << 20 };
    let begin = |churn: &C, task: usize| {
        (0..32).for_each(|_| churn.turn(task, len));
        task
    };
    job.measure(|| C::new(job.tasks), begin, |churn, task| churn.turn(*task, len))
}

struct Spaces {
    space: Space,
    _manager: Pagefold,
}

impl Churn for Spaces {
    fn new(tasks: usize) -> Self {
        let budget = tasks as u64 * (1 << 20) + (128 << 20);
        let manager = Pagefold::builder().memory(budget).build().expect("a budget that is large enough");
        let group = manager.group("churn").build().expect("a group without a limit of its own");
        Self { space: group.space().expect("room for a space"), _manager: manager }
    }

    fn turn(&self, _: usize, len: u64) {
        let area = self.space.map(len, Protection::ReadWrite).expect("addresses are plenty");
        self.space.write_at(&[1; 8], area.start).expect("the budget holds it");
        self.space.protect(area.clone(), Protection::Read).expect("it is mapped");
        self.space.unmap(area).expect("it is mapped");
    }
}

/// Areas by start. `lock` protects them. The mutex only satisfies the borrow checker: no task ever
/// waits for it.
struct OneLock {
    lock: RwSem,
    areas: Mutex<BTreeMap<u64, u64>>,
}

impl Churn for OneLock {
    fn new(tasks: usize) -> Self {
        Self { lock: RwSem::new(tasks), areas: Mutex::default() }
    }

    fn turn(&self, task: usize, len: u64) {
        let area = (1 + task as u64) << 30;
        let change = |inside: &mut dyn FnMut(&mut BTreeMap<u64, u64>)| {
            self.lock.with(task, Use::Write, || {
                own_work(300);
                inside(&mut self.areas.lock());
            });
        };
        change(&mut |areas| _ = areas.insert(area, len));
        self.lock.with(task, Use::Read, || own_work(300));
        change(&mut |areas| {
            areas.entry(area).and_modify(|len| *len |= 1);
        });
        change(&mut |areas| _ = areas.remove(&area));
    }
}

/// The kernel that this runs on.
#[cfg(not(pagefold_manycore))]
mod kernel {
    use std::ptr::null_mut;

    use rustix::mm::{MapFlags, MprotectFlags, ProtFlags, mmap_anonymous, mprotect, munmap};

    use super::{Churn, measure};
    use crate::scaling::experiment::Scheme;

    pub(super) const SCHEME: Scheme = Scheme {
        name: "kernel",
        about: "this machine's kernel: mmap, a write, mprotect, munmap",
        hidden: false,
        measure: |job| measure::<Mappings>(job),
    };

    struct Mappings;

    impl Churn for Mappings {
        fn new(_: usize) -> Self {
            Self
        }

        fn turn(&self, _: usize, len: u64) {
            let len = len as usize;
            // SAFETY: the mapping is new and this task's own; it is written to only while it is
            // writable, and isn't used after it is unmapped.
            unsafe {
                let area = mmap_anonymous(null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, MapFlags::PRIVATE)
                    .expect("the system has memory");
                area.cast::<u64>().write_volatile(1);
                mprotect(area, len, MprotectFlags::READ).expect("it is mapped");
                munmap(area, len).expect("it is mapped");
            }
        }
    }
}
