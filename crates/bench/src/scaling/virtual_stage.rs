//! Virtual CPUs to run on.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use manycore::Machine;

use super::job::{Inside, Sample};
use super::plan::Plan;

/// A machine, and how long it runs.
#[derive(Debug)]
pub(crate) struct Stage {
    /// With its costs and seed.
    pub(crate) machine: Machine,
    /// Virtual time in which operations are counted.
    pub(crate) time: Duration,
    /// Whether each run is made without contention as well.
    pub(crate) efficiency: bool,
}

/// Work of a task's own, `ns` nanoseconds of it.
pub(crate) fn own_work(ns: u64) {
    manycore::work::named("own work", ns);
}

/// A copy of so many bytes between memory and a device that is memory too.
pub(crate) fn device_copy(bytes: usize) {
    manycore::work::copy(bytes);
}

/// Zeroing so many bytes of a task's own.
pub(crate) fn zero_work(bytes: usize) {
    manycore::work::zero(bytes);
}

impl Stage {
    /// Runs of `plan` on `machine`; with or without the same run without contention.
    pub(super) fn new(plan: &Plan, machine: Machine, efficiency: bool) -> Self {
        let machine = if plan.experiment.spread { machine.spread() } else { machine };
        Self { machine, time: plan.time, efficiency }
    }

    /// See [`Job::measure`](super::job::Job::measure).
    pub(super) fn measure<S: Sync, T: Send>(
        &self,
        tasks: usize,
        set_up: impl Fn() -> S + Send + Sync,
        begin: impl Fn(&S, usize) -> T + Send + Sync,
        operation: impl Fn(&S, &mut T) + Send + Sync,
    ) -> Result<Sample> {
        let run = |machine: &Machine| {
            // Each state is its task's alone: the lock of the host is never waited for.
            let set_up = || (set_up(), (0..tasks).map(|_| Mutex::new(None)).collect::<Vec<_>>());
            machine.measure_with(tasks, self.time, set_up, |(subject, states), task| {
                let mut state = states[task].lock().unwrap_or_else(PoisonError::into_inner);
                match &mut *state {
                    Some(state) => operation(subject, state),
                    // The machine makes one operation to warm up, which it doesn't count.
                    None => *state = Some(begin(subject, task)),
                }
            })
        };
        let failed = |failure| anyhow!("the virtual machine stopped: {failure}");
        let (report, efficiency) = if self.efficiency {
            let both = self.machine.efficiency(run).map_err(failed)?;
            (both.with.clone(), Some(both.ratio()))
        } else {
            (run(&self.machine).map_err(failed)?, None)
        };
        Ok(Sample {
            operations_per_s: report.operations_per_s,
            cpu_ns_per_operation: report.cpu_ns / report.operations.max(1) as f64,
            line_ns: None,
            inside: Some(Inside { efficiency, report }),
        })
    }
}
