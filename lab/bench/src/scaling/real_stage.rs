//! Real CPUs to run on: one pinned thread for each task.

use std::panic::{AssertUnwindSafe, catch_unwind, resume_unwind};
use std::sync::{Arc, Barrier, OnceLock};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow};
use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
use rustix::time::{ClockId, clock_gettime};

use super::sample::{Counts, Sample, Traffic, Unavailable};
use crate::calibrate::distance::Placement;

/// How long a run is, and between which CPUs.
pub(crate) struct Stage {
    /// Time in which operations are counted.
    pub(crate) time: Duration,
    /// Where the first two CPUs are to be; none if there is one.
    pub(crate) placement: Option<Arc<Placement>>,
}

/// Operations between two looks at the clock.
const CHUNK: u64 = 64;

/// What one task did.
pub(crate) struct Share {
    pub(crate) operations: u64,
    pub(crate) wall: Duration,
}

/// Work of a task's own, in user mode.
pub(crate) fn user_work(ns: u64) {
    own_work(ns);
}

/// A task's own work of about `ns` nanoseconds: a chain of multiplications, whose speed is measured
/// once.
pub(crate) fn own_work(ns: u64) {
    static STEPS_PER_NS: OnceLock<f64> = OnceLock::new();
    let steps_per_ns = *STEPS_PER_NS.get_or_init(|| {
        const STEPS: u64 = 1 << 20;
        let fastest = (0..9).map(|_| {
            let start = Instant::now();
            chain(STEPS);
            start.elapsed()
        });
        STEPS as f64 / fastest.min().map_or(1.0, |time| time.as_nanos().max(1) as f64)
    });
    chain((ns as f64 * steps_per_ns) as u64);
}

fn chain(steps: u64) {
    let mut value = steps;
    for _ in 0..steps {
        value = std::hint::black_box(value.wrapping_mul(0x9E37_79B9_7F4A_7C15));
    }
}

impl Stage {
    /// The same stage: real CPUs always contend.
    pub(crate) fn throughput_only(self) -> Self {
        self
    }

    /// The same stage: its time is many rounds.
    pub(crate) fn of_rounds(&self, _: u64) -> &Self {
        self
    }

    /// See [`Job::measure`](super::job::Job::measure).
    pub(crate) fn measure<S: Sync, T: Send>(
        &self,
        tasks: usize,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
        count: impl Fn(&S) -> Option<Counts> + Send + Sync,
    ) -> Result<Sample> {
        self.placed(tasks, &|| once(self.time, tasks, &set_up, &begin, &operation, &count))
    }

    /// Makes a run of `tasks` tasks while the CPUs are at the wanted distance. Fails with
    /// [`Unavailable`] if they never are.
    pub(crate) fn placed(&self, tasks: usize, run: &dyn Fn() -> Result<Sample>) -> Result<Sample> {
        match &self.placement {
            Some(placement) if tasks > 1 => {
                let (sample, line_ns) = placement.keep(run)?;
                if !placement.counts(line_ns) {
                    return Err(Unavailable("the CPUs were too near each other, or too far".to_owned()).into());
                }
                Ok(Sample { line_ns: Some(line_ns), ..sample })
            }
            _ => run(),
        }
    }
}

/// One run. Only what a task does is compiled for each scheme.
fn once<S: Sync, T>(
    time: Duration,
    tasks: usize,
    set_up: &(impl Fn() -> S + Send + Sync),
    begin: &(impl Fn(&S, usize) -> T + Send + Sync),
    operation: &(impl Fn(&S, &mut T) + Send + Sync),
    count: &(impl Fn(&S) -> Option<Counts> + Send + Sync),
) -> Result<Sample> {
    let subject = set_up();
    let task = |task: usize, gate: &Barrier| {
        // A task that panics also comes to the gate. Otherwise the others would wait there for
        // ever.
        let begun = catch_unwind(AssertUnwindSafe(|| begin(&subject, task)));
        gate.wait(); // All are there: what has been is counted.
        gate.wait(); // It is: all begin.
        let mut state = begun.unwrap_or_else(|panic| resume_unwind(panic));
        repeat(time, || operation(&subject, &mut state))
    };
    on_threads(tasks, &task, &|| count(&subject))
}

/// Runs each task on a thread of its own, and returns what all of them did.
fn on_threads(
    tasks: usize,
    task: &(dyn Fn(usize, &Barrier) -> Share + Sync),
    count: &dyn Fn() -> Option<Counts>,
) -> Result<Sample> {
    let gate = &Barrier::new(tasks + 1);
    let (before, shares) = thread::scope(|scope| -> Result<_> {
        let start = |number| {
            scope.spawn(move || {
                pin_task(number);
                task(number, gate)
            })
        };
        let threads: Vec<_> = (0..tasks).map(start).collect();
        gate.wait();
        let before = (count(), process_cpu());
        gate.wait();
        let shares = threads.into_iter().map(|thread| thread.join().map_err(|_| anyhow!("a task panicked")));
        Ok((before, shares.collect::<Result<Vec<Share>>>()?))
    })?;
    let cpu = process_cpu().saturating_sub(before.1);
    let operations = shares.iter().map(|share| share.operations).sum();
    let counts = before.0.zip(count());
    let traffic = counts.map(|(before, after)| Traffic::between(before, after, operations, cpu.as_secs_f64() * 1e9));
    Ok(Sample { traffic, ..sample(&shares, cpu) })
}

/// What the tasks did together, in so much CPU time of all threads.
pub(crate) fn sample(shares: &[Share], cpu: Duration) -> Sample {
    let operations: u64 = shares.iter().map(|share| share.operations).sum();
    Sample {
        operations_per_s: shares.iter().map(|share| share.operations as f64 / share.wall.as_secs_f64()).sum(),
        cpu_ns_per_operation: cpu.as_secs_f64() * 1e9 / operations as f64,
        line_ns: None,
        traffic: None,
        inside: None,
    }
}

/// Repeats the operation for so long.
pub(crate) fn repeat(time: Duration, mut operation: impl FnMut()) -> Share {
    let start = Instant::now();
    let mut operations = 0;
    loop {
        for _ in 0..CHUNK {
            operation();
        }
        operations += CHUNK;
        let wall = start.elapsed();
        if wall >= time {
            return Share { operations, wall };
        }
    }
}

/// CPUs that this process may use.
pub(crate) fn allowed_cpus() -> Vec<usize> {
    let set = sched_getaffinity(None).unwrap_or_else(|_| CpuSet::new());
    (0..CpuSet::MAX_CPU).filter(|&cpu| set.is_set(cpu)).collect()
}

/// Best effort: where it is refused, the kernel places tasks.
pub(crate) fn pin_task(task: usize) {
    let cpus = allowed_cpus();
    if let Some(&cpu) = cpus.get(task % cpus.len().max(1)) {
        let mut set = CpuSet::new();
        set.set(cpu);
        let _ = sched_setaffinity(None, &set);
    }
}

/// CPU time of all threads of this process so far.
pub(crate) fn process_cpu() -> Duration {
    let time = clock_gettime(ClockId::ProcessCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use std::sync::mpsc::channel;

    use super::*;

    /// Regression: a task that panicked in `begin` never came to the gate. All others waited there
    /// for ever, and the panic's message was never printed. The run must fail instead.
    #[test]
    fn a_task_that_panics_before_all_begin_fails_the_run() {
        let (tell, told) = channel();
        let run = move || {
            let begin = |_: &(), task: usize| assert_ne!(task, 1, "on purpose");
            let result = once(Duration::ZERO, 2, &|| (), &begin, &|_, _| (), &|_| None);
            let _ = tell.send(result.map(|_| ()).map_err(|error| error.to_string()));
        };
        thread::spawn(run);
        let result = told.recv_timeout(Duration::from_mins(2)).expect("the run ends");
        assert_eq!(result, Err("a task panicked".to_owned()));
    }
}
