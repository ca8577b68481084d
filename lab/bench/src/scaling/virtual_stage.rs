//! Virtual CPUs to run on.

use std::sync::{Mutex, PoisonError};
use std::time::Duration;

use anyhow::{Result, anyhow};
use manycore::{Efficiency, Machine, Window};

use super::plan::Plan;
use super::sample::{Counts, Inside, Sample, Traffic, USER_WORK};

/// A machine, and how long it runs.
#[derive(Clone, Debug)]
pub(crate) struct Stage {
    /// With its costs and seed.
    pub(crate) machine: Machine,
    /// What is counted of each task.
    pub(crate) window: Window,
    /// Whether each run is made without contention as well.
    pub(crate) efficiency: bool,
}

/// Turns of a task that shares its CPU with others.
const TURNS: usize = 4;
/// Shorter runs only show that everything works.
const TURNS_TIME_MIN: Duration = Duration::from_micros(100);

/// Work of a task's own, `ns` nanoseconds of it.
pub(crate) fn own_work(ns: u64) {
    manycore::work::named("own work", ns);
}

/// Work of a task's own, in user mode.
pub(crate) fn user_work(ns: u64) {
    manycore::work::named(USER_WORK, ns);
}

/// What is measured; `end` looks at it when the run is over.
struct AtEnd<S, F: Fn(&S)> {
    subject: S,
    end: F,
}

impl<S, F: Fn(&S)> Drop for AtEnd<S, F> {
    fn drop(&mut self) {
        (self.end)(&self.subject);
    }
}

impl Stage {
    /// Runs of `plan` on `machine`; with or without the same run without contention.
    pub(crate) fn new(plan: &Plan, machine: Machine, efficiency: bool) -> Self {
        let machine = plan.choices.device.in_machine(machine);
        let machine = if plan.experiment.spread { machine.spread() } else { machine };
        Self { machine, window: plan.time.into(), efficiency }
    }

    /// The time or the operations that are counted for `tasks` tasks. If tasks take turns on their
    /// CPUs, the time is long enough for several turns of each.
    fn window_of(&self, tasks: usize) -> Window {
        let share = tasks.div_ceil(self.machine.cpus());
        match self.window {
            Window::Time(time) if share > 1 && time >= TURNS_TIME_MIN => {
                let slice = Duration::from_nanos(self.machine.cost_table().time_slice as u64);
                Window::Time(time.max(slice * (TURNS * share) as u32))
            }
            window => window,
        }
    }

    /// The same stage, without runs without contention.
    pub(crate) fn throughput_only(self) -> Self {
        Self { efficiency: false, ..self }
    }

    /// The same stage, on which each task makes so many operations.
    pub(crate) fn of_rounds(&self, operations: u64) -> Self {
        Self { window: Window::Operations(operations), ..self.clone() }
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
        let window = self.window_of(tasks);
        let run = |machine: &Machine| {
            let counted = [const { Mutex::new(None) }; 2];
            let note = |which: usize, counts| *counted[which].lock().unwrap_or_else(PoisonError::into_inner) = counts;
            let set_up = || {
                // Only one task uses each state. The mutex is `std`'s, and is never contended.
                let states = (0..tasks).map(|_| Mutex::new(None)).collect::<Vec<_>>();
                (AtEnd { subject: set_up(), end: |subject: &S| note(1, count(subject)) }, states)
            };
            let report = machine.measure_with(tasks, window, set_up, |(all, states), task| {
                let mut state = states[task].lock().unwrap_or_else(PoisonError::into_inner);
                match &mut *state {
                    Some(state) => operation(&all.subject, state),
                    // The machine makes one operation to warm up, which it doesn't count.
                    None => {
                        *state = Some(begin(&all.subject, task));
                        note(0, count(&all.subject)); // The last task's is the beginning.
                    }
                }
            });
            let report = report.map_err(|failure| anyhow!("the virtual machine stopped: {failure}"))?;
            let counts = counted.map(|counts| counts.into_inner().unwrap_or_else(PoisonError::into_inner));
            Ok::<_, anyhow::Error>((report, counts))
        };
        let (report, [before, after]) = run(&self.machine)?;
        let efficiency = if self.efficiency {
            let (without, _) = run(&self.machine.clone().without_contention())?;
            Some(Efficiency { with: report.clone(), without }.ratio())
        } else {
            None
        };
        Ok(Sample {
            operations_per_s: report.operations_per_s,
            cpu_ns_per_operation: report.cpu_ns / report.operations.max(1) as f64,
            line_ns: None,
            traffic: before
                .zip(after)
                .map(|(before, after)| Traffic::between(before, after, report.operations, report.cpu_ns)),
            inside: Some(Inside { efficiency, report }),
        })
    }
}
