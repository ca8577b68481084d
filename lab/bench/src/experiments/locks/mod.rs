//! Locks around two words, and structures without a lock. They judge the virtual machine: none of
//! them was used to calibrate it, so `--beside` shows how accurate its figures are.
//!
//! All shared memory consists of atomics and locks of `sync`, even words that a lock protects,
//! because the virtual machine doesn't see other memory.

mod cas_loop;
mod clh;
mod counter;
mod hash_map;
mod hazard;
mod mcs;
mod mutex;
mod queue;
mod ring;
mod rwlock;
mod seqlock;
mod sharded;
mod stack;
mod test_and_set;
mod ticket;
mod words;

use anyhow::Result;

use crate::scaling::experiment::Experiment;
use crate::scaling::job::Job;
use crate::scaling::sample::Sample;
use crate::scaling::stage::own_work;
use crate::scaling::workload::Workload;

const BUSY: Workload = Workload { name: "busy", about: "100 ns of own work between two operations" };
const RELAXED: Workload = Workload { name: "relaxed", about: "1 µs of own work between two operations" };

/// The experiment.
pub(crate) const LOCKS: Experiment = Experiment {
    name: "locks",
    question: "How far can the virtual machine be believed? Locks and structures that took no part in its calibration.",
    operation: "one use of a lock or of a structure, and own work",
    machine: "xeon-e5-2699v4",
    workloads: &[BUSY, RELAXED],
    long: &[],
    schemes: &[
        ticket::SCHEME,
        test_and_set::SCHEME,
        mcs::SCHEME,
        clh::SCHEME,
        mutex::SCHEME,
        rwlock::SCHEME,
        seqlock::SCHEME,
        hazard::SCHEME,
        counter::SCHEME,
        cas_loop::SCHEME,
        sharded::SCHEME,
        stack::SCHEME,
        queue::SCHEME,
        ring::SCHEME,
        hash_map::SCHEME,
    ],
    bytes: None,
    devices: &[],
    time: None,
    lists: false,
    spread: false,
    published: &[],
    unpublished: &[],
    claims: &[],
};

/// What tasks share.
trait Shared: Send + Sync {
    /// One use by a task; `turn` counts those of the task.
    fn operate(&self, task: usize, turn: u64);

    /// Checks that none of `uses` uses was lost. The caller must call it after all tasks have
    /// ended. The turns of each task must have begun at 0.
    #[cfg(test)]
    fn check(&self, uses: u64);
}

/// One in this many turns of a task is its rare one.
const RARE: u64 = 16;

/// Whether this turn is the rare one. In schemes with readers and writers, a rare turn writes.
fn is_rare(turn: u64) -> bool {
    turn.is_multiple_of(RARE)
}

/// Measures what `new` makes for so many tasks.
fn measure<S: Shared>(job: &Job<'_>, new: fn(usize) -> S) -> Result<Sample> {
    let own_ns = if job.workload.name == BUSY.name { 100 } else { 1000 };
    let operate = |shared: &S, (task, turn): &mut (usize, u64)| {
        shared.operate(*task, *turn);
        own_work(own_ns);
        *turn += 1;
    };
    let begin = |shared: &S, task: usize| {
        // Tasks write at different times.
        let mut state = (task, task as u64 * 7);
        operate(shared, &mut state);
        state
    };
    job.measure(|| new(job.tasks), begin, operate)
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Turns of each task on real threads.
    const MANY: u64 = 20_000 * RARE;
    /// The same for fair locks, where each turn may take a time slice: if the next task in the
    /// queue has lost its CPU, all others wait for it.
    const FEW: u64 = 250 * RARE;

    /// Each task uses the shared structure in `turns` turns, on real threads. The threads don't
    /// sleep while they wait for each other: if they did, the first might be done before the last
    /// wakes.
    #[cfg(not(pagefold_manycore))]
    fn use_together<S: Shared>(tasks: usize, turns: u64, new: fn(usize) -> S) {
        use std::sync::atomic::{AtomicUsize, Ordering};

        let (shared, missing) = (new(tasks), AtomicUsize::new(tasks));
        std::thread::scope(|scope| {
            for task in 0..tasks {
                let (shared, missing) = (&shared, &missing);
                scope.spawn(move || {
                    // Relaxed: no data depends on it.
                    missing.fetch_sub(1, Ordering::Relaxed);
                    while missing.load(Ordering::Relaxed) > 0 {
                        std::thread::yield_now();
                    }
                    (0..turns).for_each(|turn| shared.operate(task, turn));
                });
            }
        });
        shared.check(tasks as u64 * turns);
    }

    /// A few turns of each task, in many random orders.
    #[cfg(pagefold_manycore)]
    fn use_together<S: Shared>(tasks: usize, _: u64, new: fn(usize) -> S) {
        use manycore::{Costs, Machine, Shape};

        const TURNS: u64 = 2 * RARE;
        let machine = Machine::new(Shape::new(1, 3, 1).expect("a shape"), Costs::default()).expect("a machine");
        let run = |machine: &Machine| {
            let shared = new(tasks);
            let report = machine.run_tasks(tasks, |task| (0..TURNS).for_each(|turn| shared.operate(task, turn)))?;
            shared.check(tasks as u64 * TURNS);
            Ok(report)
        };
        machine.events_max(1_000_000).explore(0..200, run).unwrap_or_else(|failure| panic!("{failure}"));
    }

    #[test]
    fn fair_locks_lose_no_change() {
        use_together(2, FEW, ticket::new);
        use_together(2, FEW, mcs::new);
        use_together(2, FEW, clh::new);
    }

    #[test]
    fn locks_lose_no_change_and_readers_see_whole_ones() {
        use_together(4, MANY, test_and_set::new);
        use_together(4, MANY, mutex::new);
        use_together(4, MANY, rwlock::new);
        use_together(4, MANY, seqlock::new);
        use_together(4, MANY, hazard::new);
    }

    #[test]
    fn numbers_count_every_use() {
        use_together(4, MANY, counter::new);
        use_together(4, MANY, cas_loop::new);
        use_together(4, MANY, sharded::new);
        use_together(4, MANY, hash_map::new);
    }

    #[test]
    fn what_is_taken_out_is_put_back_once() {
        use_together(4, MANY, stack::new);
        use_together(4, MANY, queue::new);
        use_together(4, MANY, ring::new);
    }
}
