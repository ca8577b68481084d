//! `crowds`: how a crowd of open files, spaces, groups and mappings affects operations on ten hot
//! objects, and how much memory the crowd takes.
//!
//! Two processes have the same ten hot objects, and one of them also has the crowd. They are
//! measured in turn. A third process has the crowd in a budget of 1 GiB, and reports the memory
//! that the crowd takes but the budget doesn't count.

mod memory;
mod operations;
mod part;
mod report;
mod scene;

use anyhow::{Result, ensure};
use clap::{Args, Command};
use serde_json::to_string_pretty;

use self::part::{Part, Process};
use self::report::Report;
use self::scene::Sizes;
use crate::machine::Machine;
use crate::output::{progress, say};

/// On the command line, and in records.
pub(crate) const NAME: &str = "crowds";
/// The budget in which memory is measured. `ROOMY_BUDGET` is the one in which operations are
/// measured: all pages that are used fit into it.
const BUDGET: u64 = 1 << 30;
const ROOMY_BUDGET: u64 = 6 << 30;
/// CPUs that memory is measured for.
const CPUS: [usize; 1] = [2];

/// `crowds`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CrowdsArgs {
    /// A tenth of the crowd
    #[arg(long)]
    small: bool,
    /// Repetitions, with the crowd and without it in turn
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// CPUs that memory is measured for: a list
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    cpus: Vec<usize>,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
    /// End with 1 if a target is missed
    #[arg(long)]
    check: bool,
    /// End with 1 if the target of memory is missed, which doesn't depend on how busy the machine
    /// is
    #[arg(long)]
    check_memory: bool,
    /// Be one of the processes
    #[arg(long, hide = true)]
    part: Option<Part>,
}

impl CrowdsArgs {
    fn sizes(&self) -> Sizes {
        Sizes::crowd(if self.small { 10 } else { 1 })
    }

    fn budget(&self, whole: u64) -> u64 {
        if self.small { whole / 10 } else { whole }
    }
}

/// The command.
pub(crate) fn command() -> Command {
    CrowdsArgs::augment_args(Command::new(NAME)).about("What a crowd of objects does to ten of them, and what it takes")
}

/// `crowds`.
pub(crate) fn run(args: &CrowdsArgs) -> Result<()> {
    if let Some(part) = args.part {
        return part.run(args);
    }
    let cpus = if args.cpus.is_empty() { &CPUS[..] } else { &args.cpus };
    let bar = progress(NAME, 2 + cpus.len() + args.rounds as usize);
    let step = |what: String| {
        bar.set_message(what);
        bar.inc(1);
    };
    let mut report = Report::new(args.sizes());
    {
        let mut alone = Process::start(args, Part::Alone, 0)?;
        step("the crowd gathers".to_owned());
        let mut crowd = Process::start(args, Part::Crowd, 0)?;
        for round in 0..args.rounds {
            step(format!("round {}", round + 1));
            report.rounds.push((alone.round()?, crowd.round()?));
        }
    }
    for &cpus in cpus {
        step(format!("memory for {cpus} CPUs"));
        report.memory.push((cpus, Process::start(args, Part::Memory, cpus)?.shares()?));
    }
    bar.finish_and_clear();
    let machine = Machine::here();
    let budget = args.budget(BUDGET);
    let records = report.records(&machine, budget);
    if args.json {
        say(&(to_string_pretty(&records)? + "\n"))?;
    } else {
        say(&report.text(&machine, budget))?;
    }
    let missed = report::missed(&records, |metric| args.check || args.check_memory && metric == report::UNCOUNTED);
    ensure!(missed.is_empty(), "targets missed: {}", missed.join("; "));
    Ok(())
}
