//! How a tenant that writes or scans as fast as it can affects a quiet neighbour.

use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use pagefold::{File, Pagefold};

use crate::output::progress;
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::latency::Latencies;
use crate::peers::measure::OPERATIONS_MIN;
use crate::peers::report::Report;
use crate::peers::scratch::Scratch;
use crate::peers::write::Settings;
use crate::peers::write::beside::beside;
use crate::random::Random;
use crate::summary::Summary;

/// The neighbour's pages are `1 / SHARE` of the budget, and its limit is twice as much. The other
/// tenant's limit is three quarters of the budget.
const SHARE: u32 = 8;
/// The other tenant's file, in budgets.
const FILE_BUDGETS: u32 = 2;
/// The time that the neighbour rests after each access: it is no load.
const REST: Duration = Duration::from_micros(50);
/// One in so many of its accesses is a write.
const ONE_WRITES_IN: u32 = 8;
const ROWS: [&str; 3] = [ALONE, "beside one that writes", "beside one that scans"];
const ALONE: &str = "alone";

/// What the neighbour saw.
#[derive(Default)]
struct Seen {
    reads: Latencies,
    writes: Latencies,
}

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write-neighbour", "p99_ratio_alone", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("neighbour", settings.rounds as usize * ROWS.len());
    let pages = settings.budget_pages / SHARE;
    let quiet_file = Scratch::filled(directory, pages)?;
    let other_file = Scratch::filled(directory, FILE_BUDGETS * settings.budget_pages)?;
    let budget = offset_of(settings.budget_pages);
    let builder = Pagefold::builder().memory(budget).memory_max(budget).page_size(PAGE).pretouch(true);
    let fold = builder.build().context("pagefold refuses the budget")?;
    let open = |name: &str, max: u64, file: &Scratch| {
        let group = fold.group(name).max(max).build().context("pagefold refuses the group")?;
        group.open_options().write(true).open(file.path()).context("pagefold cannot open the file")
    };
    let quiet = open("quiet", budget / u64::from(SHARE / 2), &quiet_file)?;
    let other = open("other", budget / 4 * 3, &other_file)?;
    for page in 0..pages {
        quiet.read_exact_at(&mut [0; PAGE], offset_of(page))?;
    }
    let mut rounds = Vec::new();
    for seed in 0..settings.rounds {
        let mut round = Vec::new();
        for row in ROWS {
            let mut random = Random::new(u64::from(seed));
            let others = 0..other_file.pages();
            let mut at = 0;
            let work = || match row {
                ALONE => {
                    thread::sleep(Duration::from_millis(1));
                    Ok(())
                }
                "beside one that writes" => write(&other, &mut random, &others),
                _ => scan(&other, &mut at, &others),
            };
            round.push(beside(work, || use_quietly(&quiet, pages, settings.overwriting / 2))?);
            bar.inc(1);
        }
        rounds.push(round);
    }
    bar.finish_and_clear();
    for (workload, pick) in [
        ("4 KiB reads of its pages", (|seen| &seen.reads) as fn(&Seen) -> &Latencies),
        ("4 KiB overwrites", |seen| &seen.writes),
    ] {
        for (row, subject) in ROWS.into_iter().enumerate() {
            let mut add = |metric: &str, unit: &str, value: &dyn Fn(&[Seen]) -> f64| {
                report.add(subject, workload, metric, unit, Summary::of(rounds.iter().map(|round| value(round))));
            };
            for (metric, percent) in [("p50", 50.0), ("p99", 99.0), ("p99.9", 99.9)] {
                add(metric, "us", &|round| pick(&round[row]).percentile_us(percent));
            }
            add("worst", "us", &|round| pick(&round[row]).worst_us());
            add("p99_ratio_alone", "x", &|round| {
                pick(&round[row]).percentile_us(99.0) / pick(&round[0]).percentile_us(99.0)
            });
        }
    }
    let misses = quiet.stats().misses;
    report.notes.push(format!("the neighbour's {pages} pages were read in once; it had {misses} misses in all"));
    Ok(report)
}

/// Overwrites some random pages.
fn write(file: &File, random: &mut Random, pages: &Range<u32>) -> Result<()> {
    let bytes: Page = [3; PAGE];
    for _ in 0..64 {
        file.write_at(&bytes, offset_of(random.below(pages.end)))?;
    }
    Ok(())
}

/// Reads the next pages.
fn scan(file: &File, at: &mut u32, pages: &Range<u32>) -> Result<()> {
    for _ in 0..64 {
        file.read_exact_at(&mut [0; PAGE], offset_of(*at))?;
        *at = (*at + 1) % pages.end;
    }
    Ok(())
}

/// Reads and writes random pages among the first `pages`, and rests after each access. Ends after
/// `time`, but not before there are enough reads and writes for a figure.
fn use_quietly(file: &File, pages: u32, time: Duration) -> Result<Seen> {
    let (mut seen, mut random, mut bytes): (_, _, Page) = (Seen::default(), Random::new(9), [0; PAGE]);
    let start = Instant::now();
    let enough = |seen: &Seen| seen.reads.count().min(seen.writes.count()) >= OPERATIONS_MIN / 8;
    while start.elapsed() < time || !enough(&seen) {
        let at = offset_of(random.below(pages));
        if random.below(ONE_WRITES_IN) == 0 {
            seen.writes.time(|| file.write_at(&bytes, at))?;
        } else {
            seen.reads.time(|| file.read_exact_at(&mut bytes, at))?;
        }
        thread::sleep(REST);
    }
    Ok(seen)
}

fn about(settings: &Settings) -> String {
    format!(
        "A tenant with {} pages, all in memory, reads and overwrites random ones of them, one every {} µs or so, for \
         {} s: \
         alone, and beside another one with three quarters of the budget of {} pages that overwrites, or reads from \
         end to \
         end, a file of two budgets as fast as it can. {} rounds in turn. Median (min-max).",
        settings.budget_pages / SHARE,
        REST.as_micros(),
        settings.overwriting.as_secs_f64() / 2.0,
        settings.budget_pages,
        settings.rounds
    )
}
