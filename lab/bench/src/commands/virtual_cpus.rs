//! `bench virtual`: experiments on virtual CPUs.

use std::path::PathBuf;
use std::thread;

use anyhow::Result;
use clap::{ArgMatches, Args, Command, FromArgMatches};

use super::of_experiments::with_experiments;
use super::{gate, results_page, side_by_side};
use crate::experiments;
use crate::neighbours::{self, NeighboursArgs};
use crate::output::{self, QUICK, say};
use crate::scaling::args::Common;
use crate::scaling::beside::Beside;
use crate::scaling::cost_scaling::CostScaling;
use crate::scaling::experiment::Experiment;
use crate::scaling::virtual_run::Run;
use crate::scaling::{beside, curves, profile, records, table};
use crate::usage::Usage;

/// `bench virtual EXPERIMENT`.
#[derive(Clone, Debug, Args)]
struct VirtualArgs {
    #[command(flatten)]
    common: Common,
    /// A preset, or a file with the shape and the costs of a machine (what `cargo bench-real
    /// calibrate` writes)
    #[arg(long, value_name = "PRESET|FILE")]
    machine: Option<String>,
    /// Repetitions, each with another seed [default: 3; 1 with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: Option<u32>,
    /// Print where the time of each scheme goes on the most CPUs
    #[arg(long)]
    profile: bool,
    /// Repeat the run on the most CPUs with each cost halved and doubled, to see whether the order
    /// of the schemes changes
    #[arg(long)]
    scale_costs: bool,
    /// Compare with the records of `bench-real … --json`: throughput of several CPUs over that of
    /// one
    #[arg(long, value_name = "FILE.json")]
    beside: Option<PathBuf>,
}

/// `bench virtual gate`.
#[derive(Clone, Debug, Args)]
struct GateArgs {
    /// The scheme that has to pass in place of pagefold: `planted` must not
    #[arg(long, default_value = crate::experiments::OURS)]
    scheme: String,
    /// Only the claims of these experiments: a list [default: all]
    #[arg(long, value_delimiter = ',', value_name = "EXPERIMENTS")]
    only: Vec<String>,
}

/// `bench virtual results`.
#[derive(Clone, Debug, Args)]
struct ResultsArgs {
    /// Directory for results.md, and results/ with plots and records beside it
    #[arg(long, value_name = "DIR", default_value = "docs")]
    output: PathBuf,
    /// Repetitions, each with another seed
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    seeds: u32,
    /// Only these tables, a list; the others stay as they are
    #[arg(long, value_delimiter = ',', value_name = "TABLES")]
    only: Vec<String>,
    /// How many tables are made at a time, each in a process of its own, which may take 3 GiB
    /// [default: the number of CPUs, at most 4]
    #[arg(long, value_name = "N", value_parser = clap::value_parser!(u32).range(1..=64))]
    at_once: Option<u32>,
    /// Write nothing: check that the page in the directory has today's tables, and that those of
    /// --only still have nearly the same figures with one seed
    #[arg(long, conflicts_with = "quick")]
    check: bool,
    /// Make no runs: write results.md again from the tables in the directory
    #[arg(long, conflicts_with_all = ["check", "only", "quick"])]
    no_runs: bool,
    /// One and two CPUs: shows that everything works; the figures mean nothing
    #[arg(long)]
    quick: bool,
}

/// The command.
pub(crate) fn command() -> Command {
    let about = "Run experiments on up to 256 virtual CPUs";
    let results = ResultsArgs::augment_args(Command::new("results"))
        .about("Make all published tables again, beside Pagefold, and write docs/results.md: takes most of an hour");
    let gate =
        GateArgs::augment_args(Command::new("gate")).about("Check what must not get worse; ends with 1 if it did");
    with_experiments::<VirtualArgs>(Command::new("virtual").about(about))
        .subcommand(results)
        .subcommand(gate)
        .subcommand(neighbours::command())
}

/// Does what the command line says.
pub(crate) fn run(matches: &ArgMatches) -> Result<()> {
    match matches.subcommand() {
        Some(("results", matches)) => results(&ResultsArgs::from_arg_matches(matches)?),
        Some((neighbours::NAME, matches)) => neighbours::run(&NeighboursArgs::from_arg_matches(matches)?),
        Some(("gate", matches)) => {
            let GateArgs { scheme, only } = GateArgs::from_arg_matches(matches)?;
            gate::run(&scheme, &only)
        }
        Some((name, matches)) => one(experiments::find(name)?, &VirtualArgs::from_arg_matches(matches)?),
        None => Ok(()),
    }
}

/// The maximum number of tables of results that are made at a time, if the user doesn't choose it.
const AT_ONCE: usize = 4;

fn one(experiment: &'static Experiment, args: &VirtualArgs) -> Result<()> {
    let common = &args.common;
    if let Some(path) = &common.plot {
        output::prepare_plot(path)?;
    }
    if common.json && (args.profile || args.scale_costs || args.beside.is_some()) {
        return Err(Usage::error("--json prints records alone: leave --profile, --scale-costs and --beside out"));
    }
    let real = args.beside.as_deref().map(beside::read).transpose()?;
    let run = Run::new(experiment, common, args.machine.as_deref().unwrap_or(experiment.machine), args.seeds)?;
    if common.quick {
        eprintln!("bench: {QUICK}");
    }
    let results = run.results()?;
    if let Some(path) = &common.plot {
        curves::write(&results, path)?;
    }
    if common.json {
        return say(&(serde_json::to_string_pretty(&records::of(&results))? + "\n"));
    }
    let mut text = table::render(&results);
    if let Some(real) = &real {
        text += &format!("\n{}", Beside::new(&results, real, run.line_ns()));
    }
    if args.profile {
        text += &profile::text(&results);
    }
    say(&text)?;
    if args.scale_costs {
        say(&format!("\n{}", CostScaling::run(&run, &results)?))?;
    }
    Ok(())
}

/// The page of results.
fn results(args: &ResultsArgs) -> Result<()> {
    let known = results_page::all();
    let names: Vec<String> = known.iter().map(|page| page.name()).collect();
    if let Some(unknown) = args.only.iter().find(|only| !names.contains(only)) {
        return Err(Usage::error(format!("no table is called {unknown:?}: there are {}", names.join(", "))));
    }
    if args.check {
        let only: Vec<&str> = args.only.iter().map(String::as_str).collect();
        return say(&results_page::check(&args.output, &only)?);
    }
    if args.no_runs {
        return say(&format!("{}\n", results_page::write_summary(&args.output)?.display()));
    }
    if args.quick {
        eprintln!("bench: {QUICK}");
    }
    results_page::prepare(&args.output, args.quick)?;
    let is_wanted = |page: &results_page::Page| args.only.is_empty() || args.only.contains(&page.name());
    let all: Vec<_> = known.into_iter().filter(is_wanted).collect();
    // Each is kept as soon as it is made.
    if let [page] = all[..] {
        let made = page.run(args.seeds, args.quick)?;
        results_page::write(&args.output, page, &made, args.seeds, args.quick)?;
    } else {
        let at_once = args.at_once.map_or_else(
            || thread::available_parallelism().map_or(1, usize::from).min(AT_ONCE),
            |tables| tables as usize,
        );
        let mut arguments = vec!["--seeds".to_owned(), args.seeds.to_string()];
        arguments.extend(args.quick.then(|| "--quick".to_owned()));
        side_by_side::make(all, at_once, &args.output, &arguments)?;
    }
    say(&format!("{}\n", results_page::write_summary(&args.output)?.display()))
}
