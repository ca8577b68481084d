//! Writing a file ten times as large as the budget from its beginning to its end, and syncing it.

use std::path::Path;
use std::process::Command;
use std::time::Instant;

use anyhow::{Context, Result};

use crate::output::progress;
use crate::peers::contents::{PAGE, offset_of};
use crate::peers::direct;
use crate::peers::report::Report;
use crate::peers::scratch::Scratch;
use crate::peers::write::Settings;
use crate::peers::write::stores::Store;
use crate::peers::write::stores::pagefold::PagefoldStore;
use crate::summary::Summary;

const FILE_BUDGETS: u32 = 10;
/// Bytes that a writer hands over at once.
const PIECE: usize = direct::LARGE;
/// The disk's own rows, and requests at once.
const SHALLOW: &str = "disk (O_DIRECT, 1 at once)";
const DEEP: &str = "disk (O_DIRECT, 16 at once)";
const FIO: &str = "disk (fio, 16 at once)";
const DEPTHS: [(&str, usize); 2] = [(SHALLOW, 1), (DEEP, 16)];

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write-sequential", "ratio_disk", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("sequential", settings.rounds as usize * (DEPTHS.len() + 2));
    bar.set_message("writing the file");
    let file = Scratch::filled(directory, FILE_BUDGETS * settings.budget_pages)?;
    let direct = file.open_direct()?;
    let mut rows: Vec<(String, Vec<f64>)> = Vec::new();
    let mut note = |subject: String, rate: f64| {
        bar.inc(1);
        match rows.iter_mut().find(|(name, _)| *name == subject) {
            Some((_, rates)) => rates.push(rate),
            None => rows.push((subject, vec![rate])),
        }
    };
    for _ in 0..settings.rounds {
        for (name, depth) in DEPTHS {
            note(
                name.to_owned(),
                rate(&file, || {
                    direct::write_sequentially(&direct, 0..offset_of(file.pages()), depth)?;
                    file.file().sync_data().context("cannot sync")
                })?,
            );
        }
        if let Some(rate) = fio(&file) {
            note(FIO.to_owned(), rate);
        }
        let store = PagefoldStore::new(&file, settings.budget_pages)?;
        note("pagefold".to_owned(), rate(&file, || write_all(&store, &file))?);
    }
    bar.finish_and_clear();
    let workload = "1 MiB at a time, then a sync";
    for (subject, rates) in &rows {
        report.add(subject, workload, "rate", "MB/s", Summary::of(rates.iter().copied()));
    }
    let of = |wanted: &str| rows.iter().find(|(name, _)| name == wanted).map(|(_, rates)| rates);
    let disk = |round: usize| rows.iter().filter(|(name, _)| name != "pagefold").filter_map(move |(_, r)| r.get(round));
    let best = |round| disk(round).copied().fold(f64::MIN, f64::max);
    let reference = of(FIO).filter(|rates| rates.len() == settings.rounds as usize).or_else(|| of(DEEP));
    for (subject, rates) in &rows {
        let pairs = || rates.iter().enumerate();
        if let Some(reference) = reference {
            let ratios = pairs().filter_map(|(round, rate)| Some(rate / reference.get(round)?));
            report.add(subject, workload, "ratio_disk", "x", Summary::of(ratios));
        }
        report.add(subject, workload, "ratio_best", "x", Summary::of(pairs().map(|(round, rate)| rate / best(round))));
    }
    report.legend =
        "ratio_disk: to fio's rate in the same round; without fio, to that of 16 threads. ratio_best: to the best \
                     of all ways to write past the kernel in that round."
            .to_owned();
    Ok(report)
}

/// Megabytes a second.
fn rate(file: &Scratch, write: impl FnOnce() -> Result<()>) -> Result<f64> {
    let start = Instant::now();
    write()?;
    Ok(offset_of(file.pages()) as f64 / 1e6 / start.elapsed().as_secs_f64())
}

fn write_all(store: &PagefoldStore, file: &Scratch) -> Result<()> {
    let bytes = vec![7; PIECE];
    for at in (0..offset_of(file.pages())).step_by(PIECE) {
        let len = PIECE.min((offset_of(file.pages()) - at) as usize);
        store.file.write_at(&bytes[..len], at)?;
    }
    store.sync()
}

/// What `fio` says the disk does; none if it isn't installed or won't.
fn fio(file: &Scratch) -> Option<f64> {
    let (path, size) = (file.path(), offset_of(file.pages()));
    let mut fio = Command::new("fio");
    fio.args(["--name=disk", "--rw=write", "--bs=1M", "--direct=1", "--ioengine=libaio", "--iodepth=16"]);
    fio.args(["--end_fsync=1", "--overwrite=1", "--output-format=json", &format!("--size={size}")]);
    let output = fio.arg(format!("--filename={}", path.display())).output().ok()?;
    let json: serde_json::Value = serde_json::from_slice(&output.stdout).ok()?;
    let written = &json["jobs"][0]["write"];
    let (bytes, ms) = (written["io_bytes"].as_f64()?, written["runtime"].as_f64()?);
    (output.status.success() && bytes >= PAGE as f64 && ms > 0.0).then(|| bytes / 1e3 / ms)
}

fn about(settings: &Settings) -> String {
    format!(
        "A file of {} pages on a disk, written once before, is overwritten from end to end and synced, with a budget \
         of {} \
         pages; beside what the disk does for 1 MiB writes past the kernel's cache, by threads of our own and, if it \
         is \
         installed, by fio. {} rounds in turn. Median (min-max).",
        FILE_BUDGETS * settings.budget_pages,
        settings.budget_pages,
        settings.rounds
    )
}
