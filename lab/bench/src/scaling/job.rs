//! One run: a scheme on a workload with a number of tasks, and its results.

use std::fmt;

use anyhow::Result;
use pagefold::Size;
use serde::{Deserialize, Serialize};

use super::args::Device;
use super::experiment::Workload;
#[cfg(not(pagefold_manycore))]
use super::real_processes;
use super::stage::Stage;

/// What is the same for all runs of a plan.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Choices {
    /// Bytes that an operation copies, for experiments in which that can be chosen.
    pub(crate) bytes: usize,
    /// Where pages go, for experiments in which that can be chosen.
    pub(crate) device: Device,
    /// The memory for each CPU, if the user chose it and the experiment allows that.
    pub(crate) memory_per_cpu: Option<Size>,
    /// Only to show that everything works.
    pub(crate) quick: bool,
    /// The warm-up is short, only long enough to judge a claim: the figures are off by some per
    /// cent.
    pub(crate) brief: bool,
}

/// What a scheme is asked to do.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    /// What the tasks do.
    pub(crate) workload: &'static Workload,
    /// Number of tasks, one for each CPU.
    pub(crate) tasks: usize,
    /// How.
    pub(crate) choices: Choices,
    stage: &'a Stage,
}

/// What a run gave.
#[derive(Clone, Debug, Deserialize, Serialize)]
pub(crate) struct Sample {
    /// Operations of all tasks in a second.
    pub(crate) operations_per_s: f64,
    /// CPU time of an operation, waiting without sleep included.
    pub(crate) cpu_ns_per_operation: f64,
    /// What a line took between two real CPUs before and after, in nanoseconds.
    pub(crate) line_ns: Option<[f64; 2]>,
    /// What went to a device and came from it, if that was counted.
    pub(crate) traffic: Option<Traffic>,
    /// What only a virtual machine knows.
    #[serde(skip)]
    pub(crate) inside: Option<Inside>,
}

/// What a run has counted so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    /// Pages that weren't in memory when they were wanted.
    pub(crate) faults: u64,
    /// Bytes read from the device.
    pub(crate) bytes_in: u64,
    /// Bytes written to it.
    pub(crate) bytes_out: u64,
}

/// What went to a device and came from it.
#[derive(Clone, Copy, Debug, Deserialize, Serialize)]
pub(crate) struct Traffic {
    /// Faults for each operation.
    pub(crate) faults: f64,
    /// Bytes read for each operation.
    pub(crate) bytes_in: f64,
    /// Bytes written for each operation.
    pub(crate) bytes_out: f64,
    /// CPU time of all threads for each fault; nothing without faults.
    pub(crate) cpu_ns_per_fault: Option<f64>,
}

impl Traffic {
    /// Of a run of so many operations.
    pub(super) fn between(before: Counts, after: Counts, operations: u64, cpu_ns: f64) -> Self {
        let each = |before: u64, after: u64| (after - before) as f64 / operations.max(1) as f64;
        let faults = after.faults - before.faults;
        Self {
            faults: each(before.faults, after.faults),
            bytes_in: each(before.bytes_in, after.bytes_in),
            bytes_out: each(before.bytes_out, after.bytes_out),
            cpu_ns_per_fault: (faults > 0).then(|| cpu_ns / faults as f64),
        }
    }
}

/// Why something can't be measured here. The tables show the reason, and the other measurements go
/// on.
#[derive(Debug)]
pub(crate) struct Unavailable(pub(crate) String);

impl fmt::Display for Unavailable {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(&self.0)
    }
}

impl std::error::Error for Unavailable {}

/// What a virtual machine knows about a run.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// Throughput, divided by that of the same run without contention, if that run was made.
    pub(crate) efficiency: Option<f64>,
    /// Everything else.
    pub(crate) report: manycore::Report,
}

impl<'a> Job<'a> {
    /// A run on `stage`.
    pub(crate) fn new(workload: &'static Workload, tasks: usize, choices: Choices, stage: &'a Stage) -> Self {
        Self { workload, tasks, choices, stage }
    }

    /// Measures `operation`, which each task repeats on the value that `set_up` returns. Before
    /// that, each task calls `begin` with its number; `begin` warms up, and returns the task's own
    /// state. The code is compiled for each scheme.
    ///
    /// # Errors
    /// The run fails: a deadlock, a panic, or the system can't start a thread.
    pub(crate) fn measure<S: Sync, T: Send>(
        &self,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
    ) -> Result<Sample> {
        self.stage.measure(self.tasks, set_up, begin, operation, |_| None)
    }

    /// Measures like [`measure`](Self::measure), for tasks that do something else after each
    /// `operations` operations. On virtual CPUs, each task makes exactly `operations` operations,
    /// whatever time that takes. Real CPUs use the usual time, which is long enough for many such
    /// rounds.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub(crate) fn measure_rounds<S: Sync, T: Send>(
        &self,
        operations: u64,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
    ) -> Result<Sample> {
        self.stage.of_rounds(operations).measure(self.tasks, set_up, begin, operation, |_| None)
    }

    /// Measures like [`measure_rounds`](Self::measure_rounds), for operations that each task can
    /// make only `operations` times. Further calls of `operation` do nothing of interest.
    ///
    /// # Errors
    /// Those of [`measure`](Self::measure). On real CPUs, [`Unavailable`], because so few
    /// operations take too short a time.
    pub(crate) fn measure_once<S: Sync, T: Send>(
        &self,
        operations: u64,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
    ) -> Result<Sample> {
        if cfg!(pagefold_manycore) {
            self.measure_rounds(operations, set_up, begin, operation)
        } else {
            Err(Unavailable("too short to be measured on real CPUs: see bench-virtual".to_owned()).into())
        }
    }

    /// Measures like [`measure`](Self::measure) or, with `round`, like
    /// [`measure_rounds`](Self::measure_rounds). `count` must return the counts so far.
    ///
    /// # Errors
    /// As [`measure`](Self::measure).
    pub(crate) fn measure_traffic<S: Sync, T: Send>(
        &self,
        round: Option<u64>,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
        count: impl Fn(&S) -> Counts + Send + Sync,
    ) -> Result<Sample> {
        let count = |subject: &S| Some(count(subject));
        match round {
            Some(round) => self.stage.of_rounds(round).measure(self.tasks, set_up, begin, operation, count),
            None => self.stage.measure(self.tasks, set_up, begin, operation, count),
        }
    }

    /// Measures in another process, which `run` starts. `run` gets the time that the measurement
    /// must take.
    #[cfg(not(pagefold_manycore))]
    pub(crate) fn measure_elsewhere(&self, run: impl Fn(std::time::Duration) -> Result<Sample>) -> Result<Sample> {
        self.stage.placed(self.tasks, &|| run(self.stage.time))
    }

    /// Measures like [`measure`](Self::measure), with a process for each task, which sets up a
    /// subject of its own. Only for subjects that consist of system calls.
    ///
    /// # Errors
    /// A failed run, or a system without processes.
    #[cfg(not(pagefold_manycore))]
    pub(crate) fn measure_processes<S: Sync, T: Send>(
        &self,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
    ) -> Result<Sample> {
        let run = || real_processes::measure(self.stage.time, self.tasks, &set_up, &begin, &operation);
        self.stage.placed(self.tasks, &run)
    }
}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {} tasks", self.workload.name, self.tasks)
    }
}
