//! Three locks around the same two words, for judging the virtual machine: none of them took part
//! in its calibration, so `--beside` says how far it can be believed.

mod mutex;
mod seqlock;
mod ticket;

use anyhow::Result;

use crate::scaling::experiment::{Experiment, Workload};
use crate::scaling::job::{Job, Sample};
use crate::scaling::stage::own_work;

const BUSY: Workload = Workload { name: "busy", about: "100 ns of own work between two operations" };
const RELAXED: Workload = Workload { name: "relaxed", about: "1 µs of own work between two operations" };

/// The experiment.
pub(crate) const LOCKS: Experiment = Experiment {
    name: "locks",
    question: "How far can the virtual machine be believed? Locks that took no part in its calibration.",
    operation: "one use of two words under the lock, and own work",
    machine: "xeon-e5-2699v4",
    workloads: &[BUSY, RELAXED],
    long: &[],
    schemes: &[ticket::SCHEME, mutex::SCHEME, seqlock::SCHEME],
    bytes: None,
    devices: &[],
    time: None,
    lists: false,
    spread: false,
    published: &[],
    claims: &[],
};

/// Two words that belong together.
trait Pair: Sync {
    /// One use; `turn` counts those of the task.
    fn operate(&self, turn: u64);
}

fn measure<P: Pair + Send>(job: &Job<'_>, new: fn() -> P) -> Result<Sample> {
    let own_ns = if job.workload.name == BUSY.name { 100 } else { 1000 };
    let operate = |pair: &P, turn: &mut u64| {
        pair.operate(*turn);
        own_work(own_ns);
        *turn += 1;
    };
    let begin = |pair: &P, task: usize| {
        // Tasks write at different times.
        let mut turn = task as u64 * 7;
        operate(pair, &mut turn);
        turn
    };
    job.measure(new, begin, operate)
}
