//! Pagefold beside its peers, measured in one run.
//!
//! The accesses ([`popularity`](crate::popularity)) are drawn beforehand, and are the same for all
//! subjects. A [`subject`] is a loop around one read, which is compiled for this subject. The
//! experiments, one in each file, time all subjects in turn, round by round, and report medians of
//! ratios within a round.

mod atomics;
mod cgroup;
pub(crate) mod cli;
pub(crate) mod confined;
mod contents;
mod data_file;
mod direct;
pub(crate) mod disk;
mod hit;
mod interleave;
mod labels;
mod latency;
mod mapping;
pub(crate) mod measure;
mod metric;
mod miss;
mod miss_rate;
mod perfect_lfu;
mod plot;
mod report;
mod scan;
pub(crate) mod scratch;
mod settings;
mod source;
mod subject;
mod subject_args;
mod subjects;
pub(crate) mod swap_device;
mod table;
pub(crate) mod write;

pub(crate) use contents::PAGE;
pub(crate) use mapping::{Backing, Mapping};
pub(crate) use table::number;

use anyhow::Result;

use crate::output::{self, QUICK, say};
use crate::peers::cli::{Common, CountChild, Peers};
use crate::peers::report::Report;
use crate::peers::settings::All;
use crate::record::Record;

/// The hidden command with which `hit --count` and `miss --count` start this program again to trace
/// it.
pub(crate) const COUNT_CHILD: &str = atomics::CHILD_COMMAND;

/// What the traced process does.
pub(crate) fn count_child(child: &CountChild) -> Result<()> {
    atomics::child(atomics::Counted::of(child.misses), child.subject, child.pages, child.ops, &child.file)
}

/// `bench peers`.
pub(crate) fn run(peers: &Peers) -> Result<()> {
    let common = peers.common();
    // Before anything takes long: a measurement mustn't be lost to a mistyped path.
    if let Some(path) = &common.output.plot {
        output::prepare_plot(path)?;
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
        Peers::Miss(args) if args.count => vec![atomics::run(&settings::miss_atomics(args)?)?],
        Peers::Miss(args) => vec![miss::run(&settings::miss(args)?)?],
        Peers::MissRate(args) => vec![miss_rate::run(&settings::miss_rate(args)?)?],
        Peers::Scan(args) => vec![scan::run(&settings::scan(args)?)?],
        Peers::Write(args) => write::run(&settings::write(args)?)?,
        Peers::Disk(args) => vec![disk::run(&settings::disk(args)?)?],
        Peers::All(args) => all(&args.common)?,
    })
}

fn all(common: &Common) -> Result<Vec<Report>> {
    let all = All::of(common);
    let mut reports = Vec::new();
    if let Some(args) = &all.hit {
        reports.extend([hit::run(&settings::hit(args)?)?, atomics::run(&settings::atomics(args)?)?]);
    }
    if let Some(args) = &all.miss {
        reports.push(miss::run(&settings::miss(args)?)?);
    }
    if let Some(args) = &all.miss_rate {
        reports.push(miss_rate::run(&settings::miss_rate(args)?)?);
    }
    if let Some(args) = &all.scan {
        reports.push(scan::run(&settings::scan(args)?)?);
    }
    if let Some(args) = &all.write {
        reports.extend(write::run(&settings::write(args)?)?);
    }
    if let Some(args) = &all.disk {
        reports.push(disk::run(&settings::disk(args)?)?);
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
