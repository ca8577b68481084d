//! `crowds`: how a crowd of open files, spaces, groups and mappings affects operations on ten hot
//! objects, and how much memory the crowd takes.
//!
//! Two processes have the same ten hot objects, and one of them also has the crowd. They are
//! measured in turn. A third process has the crowd in a budget of 1 GiB, and reports the memory
//! that the crowd takes but the budget doesn't count.

mod args;
mod memory;
mod operations;
mod part;
mod report;
mod scene;

use anyhow::{Result, ensure};
use clap::{Args, Command};
use serde_json::to_string_pretty;

use self::args::{BUDGET, Part};
pub(crate) use self::args::{CrowdsArgs, NAME};
use self::part::Process;
use self::report::Report;
use crate::machine::Machine;
use crate::output::{progress, say};

/// CPUs that memory is measured for.
const CPUS: [usize; 1] = [2];

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
