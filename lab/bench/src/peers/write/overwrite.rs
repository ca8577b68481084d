//! Random overwrites of a file four times as large as the budget, while another thread syncs the
//! file every second.

use std::path::Path;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::output::progress;
use crate::peers::confined::Confinement;
use crate::peers::contents::PAGE;
use crate::peers::direct;
use crate::peers::report::Report;
use crate::peers::scratch::Scratch;
use crate::peers::subject_args::SubjectArgs;
use crate::peers::subjects::Kind;
use crate::peers::write::Settings;
use crate::peers::write::round::{self, Gauge, Round, RoundArgs};
use crate::summary::Summary;

/// How many budgets the file has.
const FILE_BUDGETS: u32 = 4;
/// Writes at once that show what the disk has to give.
const DISK_DEPTH: usize = 32;
const RATIOS: &str = "pagefold over the others in the same round";
/// The disk's own row.
const DISK: &str = "disk (O_DIRECT, 32 at once)";

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write", "writes_per_second", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("write", settings.rounds as usize * (settings.kinds.len() + 1));
    bar.set_message("writing the file");
    let file = Scratch::filled(directory, FILE_BUDGETS * settings.budget_pages)?;
    let confinement = Confinement::possible(settings.budget_pages)?;
    let mut rounds: Vec<Vec<Round>> = settings.kinds.iter().map(|_| Vec::new()).collect();
    let mut disk_alone = Vec::new();
    for number in 0..settings.rounds {
        for (&kind, rounds) in settings.kinds.iter().zip(&mut rounds) {
            bar.set_message(kind.name());
            // Drops the file from the kernel's page cache. So the subject finds there only what it
            // has put there itself, which is charged to its own cgroup.
            file.forget()?;
            let common = SubjectArgs::new(kind, &file, settings.budget_pages, number, settings.overwriting);
            let args = RoundArgs { common, sync_seconds: settings.sync_period.as_secs_f64() };
            let round = round::in_its_own_process(&args, &confinement);
            rounds.push(round.with_context(|| format!("{} failed", kind.name()))?);
            bar.inc(1);
        }
        bar.set_message(DISK);
        disk_alone.push(disk_round(settings, &file)?);
        bar.inc(1);
    }
    bar.finish_and_clear();
    let workload = format!("4 KiB, uniform, a sync every second, {}", confinement.label());
    for (kind, rounds) in settings.kinds.iter().zip(&rounds) {
        add(&mut report, &workload, &kind.subject(), rounds);
    }
    add(&mut report, &workload, DISK, &disk_alone);
    compare(&mut report, settings, &rounds, &disk_alone);
    report.legend =
        "write_*: how long one write of a page took its thread. device_bytes_per_byte: what the device was given \
                     to write, by anybody, over what was written here. CPU: of the subject's process; the kernel's own \
                     threads, which write back for mmap and pwrite, aren't in it. memory_peak: of its cgroup."
            .to_owned();
    report.notes.push(confinement.note());
    Ok(report)
}

fn disk_round(settings: &Settings, file: &Scratch) -> Result<Round> {
    file.forget()?;
    let (direct, gauge) = (file.open_direct()?, Gauge::new(file));
    let deadline = Instant::now() + settings.overwriting / 2;
    let latencies = direct::overwrite_randomly(&direct, file.pages(), deadline, DISK_DEPTH)?;
    file.file().sync_data().context("cannot sync")?;
    Ok(gauge.end(&latencies))
}

fn add(report: &mut Report, workload: &str, subject: &str, rounds: &[Round]) {
    let mut add = |metric: &str, unit: &str, value: &dyn Fn(&Round) -> Option<f64>| {
        let values: Vec<f64> = rounds.iter().filter_map(value).collect();
        if !values.is_empty() {
            report.add(subject, workload, metric, unit, Summary::of(values));
        }
    };
    add("writes_per_second", "1/s", &|round| Some(round.rate()));
    add("write_p50", "us", &|round| Some(round.p50_us));
    add("write_p99", "us", &|round| Some(round.p99_us));
    add("write_p99.9", "us", &|round| Some(round.p999_us));
    add("write_worst", "us", &|round| Some(round.worst_us));
    add("device_bytes_per_byte", "x", &|round| Some(round.device_bytes? as f64 / (round.writes as f64 * PAGE as f64)));
    add("requests_per_page", "x", &|round| round.requests_per_page);
    add("cpu_per_write", "us", &|round| Some(round.cpu_seconds * 1e6 / round.writes as f64));
    add("memory_peak", "MiB", &|round| Some(round.peak_bytes? as f64 / f64::from(1 << 20)));
}

/// Compares Pagefold with the other subjects, with the better of the kernel's two, and with the
/// disk.
fn compare(report: &mut Report, settings: &Settings, rounds: &[Vec<Round>], disk: &[Round]) {
    let of = |wanted: Kind| settings.kinds.iter().position(|&kind| kind == wanted).map(|at| &rounds[at]);
    let Some(own) = of(Kind::Pagefold) else { return };
    let mut add = |metric: &str, ratio: &dyn Fn(usize, &Round) -> f64| {
        let ratios = own.iter().enumerate().map(|(number, own)| ratio(number, own));
        report.add("pagefold", RATIOS, metric, "x", Summary::of(ratios));
    };
    for (kind, name) in [(Kind::Mmap, "mmap"), (Kind::Pwrite, "pwrite"), (Kind::MutexLru, "mutex-lru")] {
        if let Some(others) = of(kind) {
            add(&format!("rate_ratio_{name}"), &|number, own| own.rate() / others[number].rate());
            add(&format!("p99_ratio_{name}"), &|number, own| own.p99_us / others[number].p99_us);
        }
    }
    if let (Some(mmap), Some(pwrite)) = (of(Kind::Mmap), of(Kind::Pwrite)) {
        add("rate_ratio_kernel", &|number, own| own.rate() / mmap[number].rate().max(pwrite[number].rate()));
        add("p99_ratio_kernel", &|number, own| own.p99_us / mmap[number].p99_us.min(pwrite[number].p99_us));
    }
    add("rate_ratio_disk", &|number, own| own.rate() / disk[number].rate());
}

fn about(settings: &Settings) -> String {
    format!(
        "A file of {} pages on a disk, a budget of {}, whole pages overwritten at random by one thread for {} s, \
         another one \
         syncs every {} s; the last sync counts. {} rounds in turn. Median (min-max).",
        FILE_BUDGETS * settings.budget_pages,
        settings.budget_pages,
        settings.overwriting.as_secs_f64(),
        settings.sync_period.as_secs_f64(),
        settings.rounds
    )
}
