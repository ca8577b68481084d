//! Random overwrites of a file four times the budget, while another thread syncs it every second.

use std::path::Path;
use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, anyhow, ensure};

use crate::output::progress;
use crate::peers::contents::{PAGE, Page};
use crate::peers::measure::process_cpu;
use crate::peers::random::Random;
use crate::peers::report::Report;
use crate::peers::subjects::Kind;
use crate::peers::write::latency::Latencies;
use crate::peers::write::scratch::Scratch;
use crate::peers::write::stores::{self, Store};
use crate::peers::write::{Settings, disk, memory};
use crate::summary::Summary;

/// How many budgets the file has.
const FILE_BUDGETS: u32 = 4;
/// Writes at once that show what the disk has to give.
const DISK_DEPTH: usize = 32;
const WORKLOAD: &str = "4 KiB, uniform, a sync every second";
const RATIOS: &str = "pagefold over the others in the same round";
/// The disk's own row.
const DISK: &str = "disk (O_DIRECT, 32 at once)";

/// So many pages at the beginning are looked at after a round: whether the disk has what was written last.
const CHECKED: usize = 256;

/// What one round of one subject was like.
struct Round {
    latencies: Latencies,
    seconds: f64,
    cpu: Duration,
    device_bytes: Option<u64>,
    requests_per_page: Option<f64>,
}

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write", "writes_per_second", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("write", settings.rounds as usize * (settings.kinds.len() + 1));
    bar.set_message("writing the file");
    let file = Scratch::filled(directory, FILE_BUDGETS * settings.budget_pages)?;
    let mut rounds: Vec<Vec<Round>> = settings.kinds.iter().map(|_| Vec::new()).collect();
    let mut disk_alone = Vec::new();
    for number in 0..settings.rounds {
        for (kind, rounds) in settings.kinds.iter().zip(&mut rounds) {
            bar.set_message(kind.name());
            file.forget()?;
            let round = round(*kind, settings, &file, u64::from(number));
            rounds.push(round.with_context(|| format!("{} failed", kind.name()))?);
            bar.inc(1);
        }
        bar.set_message(DISK);
        disk_alone.push(disk_round(settings, &file)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    for (kind, rounds) in settings.kinds.iter().zip(&rounds) {
        add(&mut report, &kind.subject(), rounds);
    }
    add(&mut report, DISK, &disk_alone);
    compare(&mut report, settings, &rounds, &disk_alone);
    report.legend =
        "write_*: how long one write of a page took its thread. device_bytes_per_byte: what the device was given \
                     to write, by anybody, over what was written here. CPU: of this process; the kernel's own threads, \
                     which write back for mmap and pwrite, aren't in it."
            .to_owned();
    report.notes.push(memory::note(settings.budget_pages));
    Ok(report)
}

fn round(kind: Kind, settings: &Settings, file: &Scratch, seed: u64) -> Result<Round> {
    let store = stores::build(kind, file, settings.budget_pages)?;
    let mut random = Random::new(seed);
    let mut last = Last(vec![None; CHECKED]);
    // Fills the budget, and finds the pace of the disk.
    overwrite(&*store, file, &mut random, &mut last, settings.overwriting / 4, settings.sync_period)?;
    store.sync()?;
    let (device, known, cpu) = (file.device_bytes(), store.written_back(), process_cpu());
    let start = Instant::now();
    let latencies = overwrite(&*store, file, &mut random, &mut last, settings.overwriting, settings.sync_period)?;
    store.sync()?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_cpu().saturating_sub(cpu));
    let requests_per_page = known.zip(store.written_back()).map(|(before, after)| {
        (after.requests - before.requests) as f64 / ((after.pages - before.pages) as f64).max(1.0)
    });
    let device_bytes = since(file, device);
    drop(store);
    last.check(file)?;
    Ok(Round { latencies, seconds, cpu, device_bytes, requests_per_page })
}

fn disk_round(settings: &Settings, file: &Scratch) -> Result<Round> {
    file.forget()?;
    let direct = file.open_direct()?;
    let (device, cpu, start) = (file.device_bytes(), process_cpu(), Instant::now());
    let latencies = disk::overwrite_randomly(&direct, file.pages(), start + settings.overwriting / 2, DISK_DEPTH)?;
    file.file().sync_data().context("cannot sync")?;
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_cpu().saturating_sub(cpu));
    Ok(Round { latencies, seconds, cpu, device_bytes: since(file, device), requests_per_page: None })
}

fn since(file: &Scratch, before: Option<u64>) -> Option<u64> {
    Some(file.device_bytes()?.saturating_sub(before?))
}

/// Overwrites random pages for a time, while another thread syncs.
fn overwrite(
    store: &dyn Store,
    file: &Scratch,
    random: &mut Random,
    last: &mut Last,
    time: Duration,
    sync_period: Duration,
) -> Result<Latencies> {
    let (stop, stopped) = mpsc::channel::<()>();
    thread::scope(|scope| {
        let syncing = scope.spawn(move || {
            // Until the other end is gone.
            while stopped.recv_timeout(sync_period) == Err(mpsc::RecvTimeoutError::Timeout) {
                store.sync()?;
            }
            Ok(())
        });
        let written = write_for(store, file, random, last, time);
        drop(stop);
        let synced: Result<()> = syncing.join().map_err(|_| anyhow!("the thread that syncs panicked"))?;
        synced.and(written)
    })
}

fn write_for(
    store: &dyn Store,
    file: &Scratch,
    random: &mut Random,
    last: &mut Last,
    time: Duration,
) -> Result<Latencies> {
    let (mut latencies, mut bytes): (_, Page) = (Latencies::default(), [0; PAGE]);
    let start = Instant::now();
    while start.elapsed() < time {
        let page = random.below(file.pages());
        let mark = random.next();
        bytes[..8].copy_from_slice(&mark.to_le_bytes());
        latencies.time(|| store.write(page, &bytes))?;
        if let Some(last) = last.0.get_mut(page as usize) {
            *last = Some(mark);
        }
    }
    Ok(latencies)
}

/// What was written last to each of the first pages.
struct Last(Vec<Option<u64>>);

impl Last {
    fn check(&self, file: &Scratch) -> Result<()> {
        for (page, mark) in (0..).zip(&self.0) {
            let Some(mark) = mark else { continue };
            ensure!(file.page(page)?.0[..8] == mark.to_le_bytes(), "page {page} has something else after a sync");
        }
        Ok(())
    }
}

fn add(report: &mut Report, subject: &str, rounds: &[Round]) {
    let mut add = |metric: &str, unit: &str, value: &dyn Fn(&Round) -> Option<f64>| {
        let values: Vec<f64> = rounds.iter().filter_map(value).collect();
        if !values.is_empty() {
            report.add(subject, WORKLOAD, metric, unit, Summary::of(values));
        }
    };
    let bytes = |round: &Round| round.latencies.count() as f64 * PAGE as f64;
    add("writes_per_second", "1/s", &|round| Some(round.rate()));
    for (metric, percent) in [("write_p50", 50.0), ("write_p99", 99.0), ("write_p99.9", 99.9)] {
        add(metric, "us", &|round| Some(round.latencies.percentile_us(percent)));
    }
    add("write_worst", "us", &|round| Some(round.latencies.worst_us()));
    add("device_bytes_per_byte", "x", &|round| Some(round.device_bytes? as f64 / bytes(round)));
    add("requests_per_page", "x", &|round| round.requests_per_page);
    add("cpu_per_write", "us", &|round| Some(round.cpu.as_secs_f64() * 1e6 / round.latencies.count() as f64));
}

/// Pagefold in relation to the better one of what the kernel offers, and to the disk.
fn compare(report: &mut Report, settings: &Settings, rounds: &[Vec<Round>], disk: &[Round]) {
    let of = |wanted: Kind| settings.kinds.iter().position(|&kind| kind == wanted).map(|at| &rounds[at]);
    let Some(own) = of(Kind::Pagefold) else { return };
    let ratios = |value: &dyn Fn(&Round) -> f64, others: &[Round]| {
        Summary::of(own.iter().zip(others).map(|(own, other)| value(own) / value(other)))
    };
    let p99 = |round: &Round| round.latencies.percentile_us(99.0);
    for (kind, name) in [(Kind::Mmap, "mmap"), (Kind::Pwrite, "pwrite"), (Kind::MutexLru, "mutex-lru")] {
        if let Some(others) = of(kind) {
            report.add("pagefold", RATIOS, &format!("rate_ratio_{name}"), "x", ratios(&Round::rate, others));
            report.add("pagefold", RATIOS, &format!("p99_ratio_{name}"), "x", ratios(&p99, others));
        }
    }
    report.add("pagefold", RATIOS, "rate_ratio_disk", "x", ratios(&Round::rate, disk));
}

impl Round {
    fn rate(&self) -> f64 {
        self.latencies.count() as f64 / self.seconds
    }
}

fn about(settings: &Settings) -> String {
    format!(
        "A file of {} pages on a disk, a budget of {}, whole pages overwritten at random by one thread for {} s, another one \
         syncs every {} s; the last sync counts. {} rounds in turn. Median (min-max).",
        FILE_BUDGETS * settings.budget_pages,
        settings.budget_pages,
        settings.overwriting.as_secs_f64(),
        settings.sync_period.as_secs_f64(),
        settings.rounds
    )
}
