//! `bench`: Pagefold beside its peers, measured in one run.
//!
//! ```text
//! cargo run --release -p bench -- peers hit        what finding a resident page costs
//! cargo run --release -p bench -- peers hit --count   instructions and atomic read-modify-writes of a hit
//! cargo run --release -p bench -- peers miss       what a miss and an eviction cost
//! cargo run --release -p bench -- peers miss-rate  how well policies choose, beside the best possible
//! cargo run --release -p bench -- peers scan       what a scan does to a hot set
//! cargo run --release -p bench -- peers all        all of it
//! cargo run --release -p bench -- calibrate        this machine's costs, for `manycore`
//! ```
//!
//! Text by default; `--json` prints an array of flat records ([`record::Record`]), `--plot FILE.svg` draws the headline figures.
//! Everything is small and short with `--quick`.
//!
//! How it is done: [`accesses`] are decided beforehand and the same for all; a [`subject`] is a loop around one read,
//! compiled for it; [`experiments`] time them in turn, round by round, and report medians of ratios within a round.

mod accesses;
mod calibrate;
mod cli;
mod contents;
mod data_file;
mod experiments;
mod instruction;
mod machine;
mod mapping;
mod measure;
mod metric;
mod perfect_lfu;
mod plot;
mod random;
mod record;
mod settings;
mod source;
mod stepper;
mod subject;
mod subjects;
mod summary;
mod table;
mod zipf;

use std::io::{self, Write};
use std::process::ExitCode;

use anyhow::{Context, Result};

use crate::cli::{Cli, Command, Common, Peers};
use crate::experiments::{atomics, hit, miss, miss_rate, scan};
use crate::record::{Record, Report};
use crate::settings::{All, Usage};

fn main() -> ExitCode {
    match run(cli::parse()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("bench: {error:#}");
            ExitCode::from(if error.is::<Usage>() { 2 } else { 1 })
        }
    }
}

fn run(cli: Cli) -> Result<()> {
    match cli.command {
        Command::CountChild(child) => atomics::child(child.subject, child.pages, child.ops, &child.file),
        Command::Peers(peers) => compare(&peers),
        Command::Calibrate(args) => calibrate::run(&args),
    }
}

const QUICK: &str = "--quick: shows that everything works; the figures mean nothing.";

fn compare(peers: &Peers) -> Result<()> {
    let common = peers.common();
    // Before anything takes long: a measurement mustn't be lost to a mistyped path.
    if let Some(path) = &common.output.plot {
        plot::prepare(path)?;
    }
    if common.quick && common.output.json {
        eprintln!("bench: {QUICK}");
    } else if common.quick {
        say(&format!("{QUICK}\n"))?;
    }
    let reports = measure(peers)?;
    print(&reports, common.output.json)?;
    match &common.output.plot {
        Some(path) => plot::write(&reports, path, common.quick),
        None => Ok(()),
    }
}

fn measure(peers: &Peers) -> Result<Vec<Report>> {
    Ok(match peers {
        Peers::Hit(args) if args.count => vec![atomics::run(&settings::atomics(args)?)?],
        Peers::Hit(args) => vec![hit::run(&settings::hit(args)?)?],
        Peers::Miss(args) => vec![miss::run(&settings::miss(args)?)?],
        Peers::MissRate(args) => vec![miss_rate::run(&settings::miss_rate(args)?)?],
        Peers::Scan(args) => vec![scan::run(&settings::scan(args)?)?],
        Peers::All(args) => all(&args.common)?,
    })
}

fn all(common: &Common) -> Result<Vec<Report>> {
    let all = All::of(common);
    let mut reports = vec![hit::run(&settings::hit(&all.hit)?)?, atomics::run(&settings::atomics(&all.hit)?)?];
    if let Some(args) = &all.miss {
        reports.push(miss::run(&settings::miss(args)?)?);
    }
    if let Some(args) = &all.miss_rate {
        reports.push(miss_rate::run(&settings::miss_rate(args)?)?);
    }
    if let Some(args) = &all.scan {
        reports.push(scan::run(&settings::scan(args)?)?);
    }
    Ok(reports)
}

fn print(reports: &[Report], json: bool) -> Result<()> {
    let text = if json {
        for note in reports.iter().flat_map(|report| &report.notes) {
            eprintln!("bench: {note}");
        }
        let records: Vec<&Record> = reports.iter().flat_map(|report| &report.records).collect();
        serde_json::to_string_pretty(&records)? + "\n"
    } else {
        reports.iter().map(table::render).collect::<Vec<_>>().join("\n")
    };
    say(&text)
}

fn say(text: &str) -> Result<()> {
    match io::stdout().write_all(text.as_bytes()) {
        // Whoever reads has seen enough.
        Err(error) if error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
        written => written.context("cannot write to standard output"),
    }
}
