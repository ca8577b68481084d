//! `bench real`: the same experiments on the CPUs that there are.

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::judge;
use super::of_experiments::with_experiments;
use crate::buffered::{self, BufferedArgs};
use crate::calibrate::{self, CalibrateArgs};
use crate::crowds::{self, CrowdsArgs};
use crate::encrypted_swap::{self, EncryptedSwapArgs};
use crate::experiments;
use crate::neighbours::{self, NeighboursArgs};
use crate::output::{self, QUICK, say};
use crate::resize::{self, ResizeArgs};
use crate::scaling::args::Common;
use crate::scaling::experiment::Experiment;
use crate::scaling::real_run::{Place, results};
use crate::scaling::results::Results;
use crate::scaling::{curves, records, table};
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
