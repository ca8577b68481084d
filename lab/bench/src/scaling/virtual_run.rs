//! A run of an experiment on a virtual machine.

use std::time::Duration;

use anyhow::Result;

use super::args::Common;
use super::experiment::Experiment;
use super::machine_choice::MachineChoice;
use super::plan::Plan;
use super::results::Results;
use super::stage::Stage;
use super::sweep;

/// Virtual time of a run if the user doesn't choose.
const TIME: Duration = Duration::from_micros(200);
/// So much shorter where figures mean nothing.
const QUICK_SHARE: u32 = 50;
/// But no shorter than this.
const TIME_QUICK: Duration = Duration::from_micros(20);

/// What is to be run on which machine.
pub(crate) struct Run {
    /// The machine.
    pub(crate) machine: MachineChoice,
    /// What.
    pub(crate) plan: Plan,
    /// Only to show that everything works.
    pub(crate) quick: bool,
}

impl Run {
    /// Creates a run from the options that all experiments have. `machine` is a preset or a file.
    pub(crate) fn new(
        experiment: &'static Experiment,
        common: &Common,
        machine: &str,
        seeds: Option<u32>,
    ) -> Result<Self> {
        let machine = MachineChoice::find(machine)?;
        let cpus = machine.usual_cpus(common.quick);
        let seeds = seeds.unwrap_or(if common.quick { 1 } else { 3 });
        let usual = experiment.time.unwrap_or(TIME);
        let time = if common.quick { (usual / QUICK_SHARE).max(TIME_QUICK) } else { usual };
        Ok(Self { plan: Plan::new(experiment, common, cpus, time, seeds)?, machine, quick: common.quick })
    }

    /// Only what we ship is run without contention, too.
    pub(crate) fn efficiency_of_ours_only(mut self) -> Self {
        self.plan.efficiency_of_ours_only = true;
        self
    }

    /// No more is run before what is measured than a claim needs.
    pub(crate) fn briefly(mut self) -> Self {
        self.plan.choices.brief = true;
        self
    }

    /// What a line takes from one CPU to the next.
    pub(crate) fn line_ns(&self) -> f64 {
        self.machine.machine.cost_table().transfer_socket
    }

    /// Makes all runs.
    pub(crate) fn results(&self) -> Result<Results> {
        let plan = &self.plan;
        let seeds = if plan.repeats == 1 { "1 seed".to_owned() } else { format!("{} seeds", plan.repeats) };
        let how = format!("{seeds}, {} of virtual time each", humantime::format_duration(plan.time));
        sweep::run(plan, self.machine.host(), how, |repeat| self.stage(repeat))
    }

    fn stage(&self, repeat: u32) -> Stage {
        let machine = self.machine.machine.clone().seed(u64::from(repeat) + 1);
        Stage::new(&self.plan, machine, true)
    }
}
