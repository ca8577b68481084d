//! `bench real`: the same experiments on the CPUs that there are.

use std::sync::Arc;
use std::time::Duration;

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::args::{Common, with_experiments};
use super::experiment::Experiment;
use super::plan::Plan;
use super::results::{Host, Results};
use super::stage::{Stage, allowed_cpus};
use super::{curves, judge, records, sweep, table};
use crate::buffered::{self, BufferedArgs};
use crate::calibrate::{self, CalibrateArgs};
use crate::crowds::{self, CrowdsArgs};
use crate::distance::{Distance, Placement};
use crate::encrypted_swap::{self, EncryptedSwapArgs};
use crate::experiments;
use crate::machine::Machine;
use crate::neighbours::{self, NeighboursArgs};
use crate::output::{self, QUICK, say};
use crate::resize::{self, ResizeArgs};
use crate::shared_lines::{self, SharedLinesArgs};
use crate::writer_wait::{self, WriterWaitArgs};

/// `bench real EXPERIMENT`.
#[derive(Clone, Debug, Args)]
struct RealArgs {
    #[command(flatten)]
    common: Common,
    /// Repetitions, all runs in turn [default: 7; 2 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    #[command(flatten)]
    place: Place,
}

/// Where a virtual machine's host has its CPUs.
#[derive(Clone, Copy, Debug, Default, Args)]
pub(super) struct Place {
    /// Count only runs in which the transfer of a line from the first CPU to the second takes so
    /// long, as `calibrate` measured it: runs that differ by more than a tenth are dropped and
    /// repeated, for up to two minutes in all [default: prefer runs in which it takes about as long
    /// as at the beginning]
    #[arg(long, value_name = "NS", value_parser = parse_ns)]
    pub(super) transfer: Option<f64>,
}

fn parse_ns(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(ns) if (1.0..=10_000.0).contains(&ns) => Ok(ns),
        _ => Err("a line takes between 1 and 10000 ns".to_owned()),
    }
}

/// `bench real all`.
#[derive(Clone, Debug, Args)]
struct RealAllArgs {
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
    /// Short: shows that everything works; the figures mean nothing
    #[arg(long)]
    quick: bool,
    #[command(flatten)]
    place: Place,
}

/// The command.
pub(crate) fn command() -> Command {
    let about = "Run the same experiments on the CPUs of this machine";
    let all = RealAllArgs::augment_args(Command::new("all")).about("Run all experiments on the CPUs that there are");
    let calibrate = CalibrateArgs::augment_args(Command::new(calibrate::NAME)).about(calibrate::ABOUT);
    with_experiments::<RealArgs>(Command::new("real").about(about))
        .subcommand(all)
        .subcommand(calibrate)
        .subcommand(buffered::command())
        .subcommand(crowds::command())
        .subcommand(encrypted_swap::command())
        .subcommand(neighbours::command())
        .subcommand(resize::command())
        .subcommand(shared_lines::command())
        .subcommand(writer_wait::command())
}

/// Does what the command line says.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("all", matches)) => all(&RealAllArgs::from_arg_matches(matches)?),
        Some((buffered::NAME, matches)) => buffered::run(&BufferedArgs::from_arg_matches(matches)?),
        Some((crowds::NAME, matches)) => crowds::run(&CrowdsArgs::from_arg_matches(matches)?),
        Some((encrypted_swap::NAME, matches)) => encrypted_swap::run(&EncryptedSwapArgs::from_arg_matches(matches)?),
        Some((neighbours::NAME, matches)) => neighbours::run(&NeighboursArgs::from_arg_matches(matches)?),
        Some((resize::NAME, matches)) => resize::run(&ResizeArgs::from_arg_matches(matches)?),
        Some((shared_lines::NAME, matches)) => shared_lines::run(&SharedLinesArgs::from_arg_matches(matches)?),
        Some((writer_wait::NAME, matches)) => writer_wait::run(&WriterWaitArgs::from_arg_matches(matches)?),
        Some((calibrate::NAME, matches)) => {
            let args = CalibrateArgs::from_arg_matches(matches)?;
            let cores = args.judge.then(judge::cores).transpose()?;
            let machine = calibrate::run(&args)?;
            cores.map_or(Ok(()), |cores| judge::run(&machine, cores, args.quick))
        }
        Some((name, matches)) => one(experiments::find(name)?, &RealArgs::from_arg_matches(matches)?),
        None => Ok(()),
    }
}

/// Length of a run if the user doesn't choose.
const TIME: Duration = Duration::from_millis(300);
const TIME_QUICK: Duration = Duration::from_millis(5);

/// What waiting for CPUs in the right places may take.
const PATIENCE: Duration = Duration::from_secs(120);

/// Makes all runs of an experiment.
pub(super) fn results(
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

fn one(experiment: &'static Experiment, args: &RealArgs) -> Result<()> {
    let common = &args.common;
    if let Some(path) = &common.plot {
        output::prepare_plot(path)?;
    }
    let results = results(experiment, common, args.rounds, args.place)?;
    if let Some(path) = &common.plot {
        curves::write(&results, path)?;
    }
    print(&[results], common.json, common.quick)
}

fn all(args: &RealAllArgs) -> Result<()> {
    let common = Common { quick: args.quick, ..Common::default() };
    let all: Result<Vec<Results>> =
        experiments::ALL.iter().map(|experiment| results(experiment, &common, None, args.place)).collect();
    print(&all?, args.json, args.quick)
}

fn print(all: &[Results], json: bool, quick: bool) -> Result<()> {
    if quick {
        eprintln!("bench: {QUICK}");
    }
    if json {
        let records: Vec<_> = all.iter().flat_map(records::of).collect();
        return say(&(serde_json::to_string_pretty(&records)? + "\n"));
    }
    say(&all.iter().map(table::render).collect::<Vec<_>>().join("\n"))
}
