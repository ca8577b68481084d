//! `neighbours`: how each kind of hog affects a quiet tenant beside it, on real CPUs or on virtual
//! ones.
//!
//! The quiet tenant has a device of its own. Its hot set is a sixteenth of the budget, its limit a
//! quarter. One of twenty of its accesses misses. The hog is one thread on another device. The
//! hog's limit is the rest of the budget, or it has no limit.

mod devices;
mod hog;
mod scene;

use std::time::Duration;

use anyhow::{Result, ensure};
use clap::{Args, Command, ValueEnum};
use serde_json::to_string_pretty;

use self::hog::Hog;
use self::scene::{Scene, Seen};
use crate::output::{QUICK, progress, say};
use crate::record::{Record, Source};
use crate::summary::Summary;

/// On the command line, and in records.
pub(crate) const NAME: &str = "neighbours";
const ALONE: &str = "alone";

/// `neighbours`.
#[derive(Clone, Debug, Args)]
pub(crate) struct NeighboursArgs {
    /// Only these hogs: a list
    #[arg(long, value_delimiter = ',', value_enum, value_name = "NAMES")]
    hogs: Vec<Hog>,
    /// Repetitions, which measure each row once [default: 5; 1 on virtual CPUs and with --quick]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: Option<u32>,
    /// How long the quiet tenant is watched [default: 2s; 60ms of virtual time]
    #[arg(long, value_parser = humantime::parse_duration)]
    time: Option<Duration>,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
    /// End with 1 if a hog does more harm than it may
    #[arg(long)]
    check: bool,
    /// Short: shows that everything works; the figures mean nothing
    #[arg(long)]
    quick: bool,
}

/// The command.
pub(crate) fn command() -> Command {
    NeighboursArgs::augment_args(Command::new(NAME)).about("What a quiet tenant sees of each kind of hog beside it")
}

/// A row: a hog, and whether it has a limit.
type Row = (Option<Hog>, bool);

/// `neighbours`.
pub(crate) fn run(args: &NeighboursArgs) -> Result<()> {
    if args.quick {
        eprintln!("bench: {QUICK}");
    }
    let usual = if args.quick { place::TIME / 20 } else { place::TIME };
    let time = args.time.unwrap_or(usual);
    let rounds = args.rounds.unwrap_or(if args.quick { 1 } else { place::ROUNDS });
    let hogs = if args.hogs.is_empty() { Hog::value_variants() } else { &args.hogs };
    let beside = hogs.iter().flat_map(|&hog| [(Some(hog), true), (Some(hog), false)]);
    let rows: Vec<Row> = [(None, true)].into_iter().chain(beside).collect();
    let bar = progress(NAME, rows.len() * rounds as usize);
    let mut seen: Vec<Vec<Seen>> = vec![Vec::new(); rows.len()];
    for _ in 0..rounds {
        for (&(hog, limited), seen) in rows.iter().zip(&mut seen) {
            seen.push(place::run(Scene { pages: place::PAGES, time, hog, limited })?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let records: Vec<Record> = rows.iter().zip(&seen).flat_map(|(&row, of)| records(row, of, &seen[0])).collect();
    if args.json {
        say(&(to_string_pretty(&records)? + "\n"))?;
    } else {
        say(&text(&rows, &records, time, rounds))?;
    }
    let harm = harm(&records);
    ensure!(!args.check || harm.is_empty(), "too much harm: {}", harm.join("; "));
    Ok(())
}

/// At least this share of the quiet tenant's hot pages must stay in memory, in percent.
const STAYED_MIN: f64 = 90.0;

/// Returns what hogs did that they may not.
fn harm(records: &[Record]) -> Vec<String> {
    let limits = [
        ("p99_ratio_alone", 0.0, place::RATIO_MAX),
        ("write_p99_ratio_alone", 0.0, place::RATIO_MAX),
        ("stayed", STAYED_MIN, 100.0),
    ];
    let within = |record: &Record| {
        limits
            .iter()
            .find(|limit| limit.0 == record.metric)
            .is_none_or(|&(_, min, max)| (min..=max).contains(&record.value))
    };
    let told =
        |record: &Record| format!("{}: {} is {:.2} {}", record.workload, record.metric, record.value, record.unit);
    records.iter().filter(|record| !within(record)).map(told).collect()
}

/// What is measured of each row.
const METRICS: [(&str, &str); 9] = [
    ("p99_ratio_alone", "x"),
    ("p50", "us"),
    ("p99", "us"),
    ("worst", "us"),
    ("write_p99_ratio_alone", "x"),
    ("write_p99", "us"),
    ("stayed", "%"),
    ("refused", "count"),
    ("hog_steps", "1/s"),
];

fn label((hog, limited): Row) -> String {
    match hog {
        None => ALONE.to_owned(),
        Some(hog) => format!("{}, {}", hog.name(), if limited { "with a limit" } else { "without a limit" }),
    }
}

fn records(row: Row, seen: &[Seen], alone: &[Seen]) -> Vec<Record> {
    let value = |metric: &str, (seen, alone): (&Seen, &Seen)| match metric {
        "p99_ratio_alone" => seen.reads_us(99.0) / alone.reads_us(99.0),
        // A write to a page that isn't in memory may take as long as a read that misses.
        "write_p99_ratio_alone" => seen.writes_us(99.0) / alone.writes_us(99.0).max(alone.reads_us(99.0)),
        "p50" => seen.reads_us(50.0),
        "p99" => seen.reads_us(99.0),
        "worst" => seen.reads_us(100.0),
        "write_p99" => seen.writes_us(99.0),
        "stayed" => seen.stayed,
        "refused" => seen.refused as f64,
        _ => seen.hog_steps,
    };
    let (workload, machine) = (label(row), place::machine());
    let source =
        Source { experiment: NAME, subject: "pagefold", workload: &workload, machine: &machine, cpus: place::CPUS };
    METRICS
        .map(|(metric, unit)| {
            let summary = Summary::of(seen.iter().zip(alone).map(|both| value(metric, both)));
            source.record((metric, unit, summary))
        })
        .into()
}

fn text(rows: &[Row], records: &[Record], time: Duration, rounds: u32) -> String {
    let mut text = format!(
        "{NAME}: a quiet tenant with {} hot pages reads them, and misses once in 20 accesses; it is watched for {} in \
         each of \
         {rounds} rounds. A request takes {} µs. Medians.\n{}\n\n  {:32}",
        place::PAGES / 16,
        humantime::format_duration(time),
        devices::LATENCY.as_micros(),
        place::machine(),
        ""
    );
    for (metric, unit) in METRICS {
        text += &format!("  {:>width$}", format!("{metric} [{unit}]"), width = width(metric));
    }
    text.push('\n');
    for &row in rows {
        text += &format!("  {:32}", label(row));
        for (metric, _) in METRICS {
            let record = records.iter().find(|record| record.workload == label(row) && record.metric == metric);
            let value = record.map_or(0.0, |record| record.value);
            text += &format!("  {:>width$}", format!("{value:.2}"), width = width(metric));
        }
        text.push('\n');
    }
    text
}

fn width(metric: &str) -> usize {
    metric.len() + 8
}

#[cfg(pagefold_manycore)]
mod place {
    use std::time::Duration;

    use anyhow::{Result, anyhow};
    use manycore::{Machine, PRESETS, Shape};

    use super::scene::{Scene, Seen};

    /// Pages of the budget.
    pub(super) const PAGES: u64 = 4096;
    pub(super) const TIME: Duration = Duration::from_millis(60);
    pub(super) const ROUNDS: u32 = 1;
    pub(super) const CPUS: u32 = 4;
    /// The largest ratio of a tail to that of the tenant alone.
    pub(super) const RATIO_MAX: f64 = 1.5;

    pub(super) fn machine() -> String {
        format!("{CPUS} CPUs of a virtual {}", PRESETS[0].name)
    }

    pub(super) fn run(scene: Scene) -> Result<Seen> {
        let machine = Machine::new(Shape::new(1, CPUS as usize, 1)?, PRESETS[0].table())?;
        let run =
            machine.run(move || scene.run()).map_err(|failure| anyhow!("the virtual machine stopped: {failure}"))?;
        Ok(run.value?)
    }
}

#[cfg(not(pagefold_manycore))]
mod place {
    use std::time::Duration;

    use anyhow::Result;

    use super::scene::{Scene, Seen};
    use crate::machine::Machine;

    /// Pages of the budget.
    pub(super) const PAGES: u64 = 16_384;
    pub(super) const TIME: Duration = Duration::from_secs(2);
    pub(super) const ROUNDS: u32 = 5;
    pub(super) const CPUS: u32 = 2;
    /// The largest ratio of a tail to that of the tenant alone. The medians of five rounds were at
    /// most 1.22 on a quiet machine, and 1.67 on one with ten busy threads for each CPU
    /// (docs/log/neighbours.md). A tail is the time of a request to the quiet tenant's own device,
    /// 100 µs, and what the system takes to wake threads. Only the latter depends on the machine.
    pub(super) const RATIO_MAX: f64 = 3.0;

    pub(super) fn machine() -> String {
        Machine::here().description
    }

    pub(super) fn run(scene: Scene) -> Result<Seen> {
        Ok(scene.run()?)
    }
}
