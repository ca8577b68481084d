//! One run: a scheme on a workload with so many tasks, and what it gave.

use std::fmt;

use anyhow::Result;

use super::experiment::Workload;
use super::stage::Stage;

/// What a scheme is asked to do.
#[derive(Clone, Copy)]
pub(crate) struct Job<'a> {
    /// What the tasks do.
    pub(crate) workload: &'static Workload,
    /// Number of tasks, one for each CPU.
    pub(crate) tasks: usize,
    /// Bytes that an operation copies, for experiments in which that can be chosen.
    pub(crate) bytes: usize,
    stage: &'a Stage,
}

/// What a run gave.
#[derive(Clone, Debug)]
pub(crate) struct Sample {
    /// Operations of all tasks in a second.
    pub(crate) operations_per_s: f64,
    /// CPU time of an operation, waiting without sleep included.
    pub(crate) cpu_ns_per_operation: f64,
    /// What a line took between two real CPUs before and after, in nanoseconds.
    pub(crate) line_ns: Option<[f64; 2]>,
    /// What only a virtual machine knows.
    pub(crate) inside: Option<Inside>,
}

/// What a virtual machine knows about a run.
#[derive(Clone, Debug)]
pub(crate) struct Inside {
    /// Throughput over that of the same run without contention, if that was made too.
    pub(crate) efficiency: Option<f64>,
    /// Everything else.
    pub(crate) report: manycore::Report,
}

impl<'a> Job<'a> {
    /// A run on `stage`.
    pub(crate) fn new(workload: &'static Workload, tasks: usize, bytes: usize, stage: &'a Stage) -> Self {
        Self { workload, tasks, bytes, stage }
    }

    /// Measures `operation`, repeated by each task on what `set_up` made. `begin` is called by each task before, with its
    /// number: it warms up, and returns what the task needs for itself. The code is compiled for each scheme.
    ///
    /// # Errors
    /// A failed run: a deadlock, a panic, or a system without threads.
    pub(crate) fn measure<S: Sync, T: Send>(
        &self,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
    ) -> Result<Sample> {
        self.stage.measure(self.tasks, set_up, begin, operation)
    }
}

impl fmt::Debug for Job<'_> {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{}, {} tasks", self.workload.name, self.tasks)
    }
}
