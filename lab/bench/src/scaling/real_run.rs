//! The runs of an experiment on the CPUs that there are.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::Args;

use super::args::Common;
use super::experiment::Experiment;
use super::plan::Plan;
use super::results::{Host, Results};
use super::stage::{Stage, allowed_cpus};
use super::sweep;
use crate::calibrate::distance::{Distance, Placement};
use crate::machine::Machine;

/// Where a virtual machine's host has its CPUs.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(crate) struct Place {
    /// Count only runs in which the transfer of a line from the first CPU to the second takes so
    /// long, as `calibrate` measured it: runs that differ by more than a tenth are dropped and
    /// repeated, for up to two minutes in all [default: prefer runs in which it takes about as long
    /// as at the beginning]
    #[arg(long, value_name = "NS", value_parser = parse_ns)]
    pub(crate) transfer: Option<f64>,
}

fn parse_ns(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ns) if (1.0..=10_000.0).contains(&ns) => Ok(ns),
        _ => Err("a line takes between 1 and 10000 ns".to_owned()),
    }
}

/// Length of a run if the user doesn't choose.
const TIME: Duration = Duration::from_millis(300);
const TIME_QUICK: Duration = Duration::from_millis(5);

/// What waiting for CPUs in the right places may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes all runs of an experiment.
pub(crate) fn results(
    experiment: &'static Experiment,
    common: &Common,
    rounds: Option<u32>,
    place: Place,
) -> Result<Results> {
    let machine = Machine::here();
    let have = allowed_cpus().len();
    let mut usual: Vec<usize> = (0..9).map(|power| 1 << power).filter(|&cpus| cpus < have).collect();
    usual.push(have.clamp(1, manycore::CPUS_MAX));
    let rounds = rounds.unwrap_or(if common.quick { 2 } else { 7 });
    let plan = Plan::new(experiment, common, usual, if common.quick { TIME_QUICK } else { TIME }, rounds)?;
    let mut how = format!("{rounds} rounds, {} each", humantime::format_duration(plan.time));
    if plan.cpus.iter().any(|&cpus| cpus > have) {
        how += &format!("; more tasks than the {have} CPUs here take turns");
        eprintln!("bench: there are {have} CPUs here: more tasks take turns, which says little about more CPUs");
    }
    let placement = match allowed_cpus()[..] {
        [first, second, ..] => {
            let (transfer, patience) = if common.quick { (None, Duration::ZERO) } else { (place.transfer, PATIENCE) };
            Some(Arc::new(Placement::new(Distance::new(first, second)?, transfer, patience)?))
        }
        _ => None,
    };
    let host = Host { name: machine.description, cpus: have };
    let stage = |_| Stage { time: plan.time, placement: placement.clone() };
    let mut results = sweep::run(&plan, host, how, stage)?;
    if let Some(placement) = placement {
        results.how += &format!(", {}", placement.report());
        results.dropped = place.transfer.map(|_| placement.dropped());
    }
    Ok(results)
}
