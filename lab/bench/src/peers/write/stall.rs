//! How long a writer may have to wait while another thread syncs much.

use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;

use anyhow::{Result, anyhow};

use crate::output::progress;
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::direct;
use crate::peers::latency::Latencies;
use crate::peers::report::Report;
use crate::peers::scratch::Scratch;
use crate::peers::write::Settings;
use crate::peers::write::stores::Store;
use crate::peers::write::stores::pagefold::PagefoldStore;
use crate::random::Random;
use crate::summary::Summary;

/// The budget is this many times as large as the synced file, so that write-back doesn't begin
/// before the sync.
const BUDGET_FACTOR: u32 = 5;
/// This experiment has this many times as many rounds as the others, because long waits are rare.
const ROUNDS_FACTOR: u32 = 4;
const WORKLOAD: &str = "overwriting random pages of those being synced";

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write-stall", "worst_ratio_disk", about(settings));
    report.rounds = Some(settings.rounds * ROUNDS_FACTOR);
    let bar = progress("stall", (settings.rounds * ROUNDS_FACTOR) as usize);
    bar.set_message("writing the file");
    let file = Scratch::filled(directory, settings.synced_pages)?;
    let direct = file.open_direct()?;
    let store = PagefoldStore::new(&file, BUDGET_FACTOR * settings.synced_pages)?;
    // Brings all memory into use before the measurement, because a machine may take long to provide
    // memory that was never used.
    dirty(&store, file.pages())?;
    store.sync()?;
    let (mut own, mut disks) = (Vec::new(), Vec::new());
    let rounds = settings.rounds * ROUNDS_FACTOR;
    for round in 0..rounds {
        dirty(&store, file.pages())?;
        own.push(while_syncing(&store, &file, u64::from(round))?);
        disks.push(direct::write_sequentially(&direct, 0..offset_of(file.pages()), 1)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    for (subject, all) in [("pagefold", &own), ("disk (1 MiB, O_DIRECT)", &disks)] {
        for (metric, percent) in [("write_p50", 50.0), ("write_p99", 99.0), ("write_p99.9", 99.9)] {
            report.add(subject, WORKLOAD, metric, "us", Summary::of(all.iter().map(|one| one.percentile_us(percent))));
        }
        report.add(subject, WORKLOAD, "write_worst", "us", Summary::of(all.iter().map(Latencies::worst_us)));
    }
    let worst = |all: &[Latencies]| all.iter().map(Latencies::worst_us).fold(0.0, f64::max);
    let ratio = Summary::exact(worst(&own) / worst(&disks));
    report.add("pagefold", WORKLOAD, "worst_ratio_disk", "x", ratio);
    let typical = |all: &[Latencies]| Summary::of(all.iter().map(Latencies::worst_us)).median;
    report.add("pagefold", WORKLOAD, "median_worst_ratio_disk", "x", Summary::exact(typical(&own) / typical(&disks)));
    report.legend =
        "worst_ratio_disk: the longest of all rounds over the longest of all rounds. median_worst_ratio_disk: a \
                     round's longest, the median over rounds, of both."
            .to_owned();
    Ok(report)
}

/// Makes every page differ from its file.
fn dirty(store: &PagefoldStore, pages: u32) -> Result<()> {
    (0..pages).try_for_each(|page| store.write(page, &[page as u8; PAGE]))
}

/// Overwrites random pages, at least one, until a sync in another thread has ended.
fn while_syncing(store: &PagefoldStore, file: &Scratch, seed: u64) -> Result<Latencies> {
    let synced = AtomicBool::new(false);
    thread::scope(|scope| {
        let syncing = scope.spawn(|| {
            let result = store.sync();
            // Relaxed: it only ends the loop below.
            synced.store(true, Ordering::Relaxed);
            result
        });
        let (mut latencies, mut random) = (Latencies::default(), Random::new(seed));
        let bytes: Page = [1; PAGE];
        let written = loop {
            let page = random.below(file.pages());
            let written = latencies.time(|| store.write(page, &bytes));
            if written.is_err() || synced.load(Ordering::Relaxed) {
                break written;
            }
        };
        syncing.join().map_err(|_| anyhow!("the thread that syncs panicked"))??;
        written.map(|()| latencies)
    })
}

fn about(settings: &Settings) -> String {
    format!(
        "{} dirty pages are synced by one thread while another one overwrites random ones of them; beside as many \
         bytes \
         written past the kernel's cache, 1 MiB at a time. {} rounds in turn. Median (min-max).",
        settings.synced_pages,
        settings.rounds * ROUNDS_FACTOR
    )
}
