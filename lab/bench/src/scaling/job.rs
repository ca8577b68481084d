//! One run: a scheme on a workload with a number of tasks.

use std::fmt;

use anyhow::Result;
use pagefold::Size;

use super::device::Device;
#[cfg(not(pagefold_manycore))]
use super::real_processes;
use super::sample::{Counts, Sample, Unavailable};
use super::stage::Stage;
use super::workload::Workload;

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
