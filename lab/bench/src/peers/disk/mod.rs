//! `disk`: reading a file ten times as large as the budget from a disk, in random order, in
//! sequence and in between, compared with `fio` on the same file.
//!
//! Each round of a subject runs in a process and, where that is permitted, a memory cgroup of its
//! own. A disk's speed changes from second to second. So the subjects of a workload take turns,
//! round by round, and ratios are taken within a round.

mod fio;
mod log;
mod pages;
mod round;
mod stores;
mod workload;

pub(crate) use round::{COMMAND as ROUND_COMMAND, RoundArgs, child as round};
pub(crate) use workload::Workload;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::{Context, Result};

use crate::output::progress;
use crate::peers::confined::Confinement;
use crate::peers::disk::round::Round;
use crate::peers::report::Report;
use crate::peers::scratch::{self, Scratch};
use crate::peers::subject_args::SubjectArgs;
use crate::peers::subjects::Kind;
use crate::summary::Summary;

/// How many budgets the file has.
const FILE_BUDGETS: u32 = 10;

/// How the experiment is done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) workloads: Vec<Workload>,
    /// The directory for the file, if not the usual one.
    pub(crate) directory: Option<PathBuf>,
    /// Pages of the budget.
    pub(crate) budget_pages: u32,
    pub(crate) rounds: u32,
    /// The length of a round.
    pub(crate) time: Duration,
    /// How long nothing is done.
    pub(crate) idle: Duration,
    /// Only to show that everything works.
    pub(crate) quick: bool,
}

/// Subjects that make sense here, on this machine.
pub(crate) fn possible() -> Vec<Kind> {
    let others = [Kind::Fio, Kind::Mmap, Kind::Pread, Kind::PreadDirect, Kind::UringLru];
    let others = others.into_iter().filter(|kind| *kind != Kind::UringLru || stores::uring_lru::has_io_uring());
    let ours = [Kind::Pagefold, Kind::PagefoldQueue, Kind::PagefoldAsync, Kind::PagefoldThreads, Kind::PagefoldNoUring];
    others.chain(ours).collect()
}

/// Returns whether a subject is measured on a workload. Pagefold's interfaces for many operations
/// at once are measured only on workloads with many operations at once.
fn has(kind: Kind, workload: Workload) -> bool {
    match (kind, workload) {
        (Kind::Fio, workload) => workload != Workload::Interleaved && workload != Workload::Idle,
        (Kind::PagefoldAsync, workload) => workload.depth() > 1 && workload != Workload::Mixed,
        (Kind::PagefoldThreads | Kind::PagefoldQueue, workload) => workload.depth() > 1,
        (Kind::PagefoldNoUring, workload) => workload == Workload::Random64,
        (kind, Workload::Idle) => kind == Kind::Pagefold,
        _ => true,
    }
}

/// The rounds of one subject at one workload.
struct Cell {
    kind: Kind,
    workload: Workload,
    rounds: Vec<Round>,
}

/// The files that all subjects use.
struct Files {
    directory: PathBuf,
    file: Scratch,
    /// One that fio overwrites, if it does.
    overwritten: Option<Scratch>,
}

/// Runs it.
pub(crate) fn run(settings: &Settings) -> Result<Report> {
    let mut report = Report::new("disk", "rate_ratio_fio", about(settings));
    report.rounds = Some(settings.rounds);
    let fio = settings.kinds.contains(&Kind::Fio) && fio::is_installed();
    let mut cells = cells(settings, fio);
    let bar = progress("disk", cells.len() * settings.rounds as usize);
    bar.set_message("writing the file");
    let files = Files::new(settings, fio)?;
    let confinement = Confinement::possible(settings.budget_pages)?;
    for workload in &settings.workloads {
        for number in 0..settings.rounds {
            for cell in cells.iter_mut().filter(|cell| cell.workload == *workload) {
                bar.set_message(format!("{}, {}", workload.label(), cell.kind.name()));
                let round = one(settings, cell, &files, &confinement, number);
                cell.rounds.push(round.with_context(|| format!("{} failed at {}", cell.kind.name(), workload.name()))?);
                bar.inc(1);
            }
        }
    }
    bar.finish_and_clear();
    cells.iter().for_each(|cell| add(&mut report, cell));
    compare(&mut report, &cells);
    report.legend = format!(
        "Each page is asked for once at most, and none of them was in memory. read_*: how long one read took whom it \
         was for. \
         CPU: of all threads of the subject's process; all but fio look at each byte that comes, {:.0} ns for a page \
         in \
         the processor's caches. unused: pages that came from the disk and nobody asked for. mmap and pread told the \
         kernel if the order was random; nobody else was told what comes. Many at once: by threads; by one thread \
         with a ring, \
         or in pagefold's row a batch, all of which are waited for before the next one, in pagefold-queue's a queue \
         that is \
         kept full, and in pagefold-async's as many futures. pagefold-no-uring: with the threads that take io_uring's \
         place where it is refused. ratio_fio: in the same round; for ten readers in turn, \
         to fio's one reader.",
        log::check_ns()
    );
    report.notes.push(confinement.note());
    if settings.kinds.contains(&Kind::Fio) && !fio {
        report.notes.push("fio isn't installed, so there is nothing to take a ratio to".to_owned());
    }
    Ok(report)
}

/// Returns a cell for each workload and each subject that is measured on it.
fn cells(settings: &Settings, fio: bool) -> Vec<Cell> {
    let cell = |workload, kind| Cell { kind, workload, rounds: vec![] };
    let of = |&workload: &Workload| {
        let kinds = settings.kinds.iter().filter(move |kind| has(**kind, workload) && (fio || **kind != Kind::Fio));
        kinds.map(move |&kind| cell(workload, kind))
    };
    settings.workloads.iter().flat_map(of).collect()
}

impl Files {
    fn new(settings: &Settings, fio: bool) -> Result<Self> {
        let directory = scratch::directory(settings.directory.as_deref())?;
        let pages = FILE_BUDGETS * settings.budget_pages;
        let file = written(&directory, pages)?;
        let overwritten = fio && settings.workloads.contains(&Workload::Mixed);
        let overwritten = overwritten.then(|| written(&directory, pages)).transpose()?;
        Ok(Self { directory, file, overwritten })
    }
}

fn written(directory: &Path, pages: u32) -> Result<Scratch> {
    let file = Scratch::empty(directory, pages)?;
    pages::write_all(&file.open_direct()?, pages)?;
    Ok(file)
}

fn one(settings: &Settings, cell: &Cell, files: &Files, confinement: &Confinement, seed: u32) -> Result<Round> {
    let (kind, workload) = (cell.kind, cell.workload);
    let file = match &files.overwritten {
        Some(overwritten) if kind == Kind::Fio && workload == Workload::Mixed => overwritten,
        _ => &files.file,
    };
    file.forget()?;
    if kind == Kind::Fio {
        return fio::round(workload, file, settings.time, settings.quick, u64::from(seed))?
            .context("fio has nothing to do with it");
    }
    let time = if workload == Workload::Idle { settings.idle } else { settings.time };
    let common = SubjectArgs::new(kind, file, settings.budget_pages, seed, time);
    let args = RoundArgs { common, workload, dir: files.directory.clone() };
    round::in_its_own_process(&args, confinement)
}

fn add(report: &mut Report, cell: &Cell) {
    let mut add = |metric: &str, unit: &str, value: &dyn Fn(&Round) -> Option<f64>| {
        let values: Vec<f64> = cell.rounds.iter().filter_map(value).collect();
        if !values.is_empty() {
            report.add(&cell.kind.subject(), cell.workload.label(), metric, unit, Summary::of(values));
        }
    };
    if cell.workload == Workload::Idle {
        return add("cpu", "ms", &|round| Some(round.cpu_seconds * 1e3));
    }
    add("reads_per_second", "1/s", &|round| Some(round.reads as f64 / round.seconds));
    add("rate", "MiB/s", &|round| Some(round.rate() / f64::from(1 << 20)));
    add("cpu_per_page", "us", &|round| Some(round.cpu_us()));
    add("read_p50", "us", &|round| Some(round.p50_us));
    add("read_p99", "us", &|round| Some(round.p99_us));
    add("unused", "%", &|round| Some(round.unused? * 100.0));
    add("memory_peak", "MiB", &|round| Some(round.peak_bytes? as f64 / f64::from(1 << 20)));
}

/// Compares all subjects with fio, and Pagefold without io_uring with Pagefold.
fn compare(report: &mut Report, cells: &[Cell]) {
    let find = |kind, workload| cells.iter().find(|cell| cell.kind == kind && cell.workload == workload);
    for cell in cells {
        let (subject, label) = (cell.kind.subject(), cell.workload.label());
        let mut add = |metric: &str, other: Option<&Cell>, value: fn(&Round) -> f64| {
            let Some(other) = other else { return };
            let ratios = cell.rounds.iter().zip(&other.rounds).map(|(own, other)| value(own) / value(other));
            report.add(&subject, label, metric, "x", Summary::of(ratios));
        };
        let reference = if cell.workload == Workload::Interleaved { Workload::Sequential } else { cell.workload };
        add("rate_ratio_fio", find(Kind::Fio, reference), Round::rate);
        add("cpu_ratio_fio", find(Kind::Fio, reference), Round::cpu_us);
        if cell.kind == Kind::PagefoldNoUring {
            add("rate_ratio_uring", find(Kind::Pagefold, cell.workload), Round::rate);
        }
    }
}

fn about(settings: &Settings) -> String {
    format!(
        "A file of {} pages on a disk, a budget of {}, {} s for each round. {} rounds in turn. Median (min-max).",
        FILE_BUDGETS * settings.budget_pages,
        settings.budget_pages,
        settings.time.as_secs_f64(),
        settings.rounds
    )
}
