//! One round of one subject, in a process of its own.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::output::say;
use crate::peers::confined::Confinement;
use crate::peers::contents::PAGE;
use crate::peers::disk::pages::check_version;
use crate::peers::disk::stores::{self, Store};
use crate::peers::disk::workload::{Operations, Workload, warm_pages};
use crate::peers::measure::process_cpu;
use crate::peers::scratch::Scratch;
use crate::peers::subject_args::SubjectArgs;

/// The hidden command of a subject's process.
pub(crate) const COMMAND: &str = "disk-round";

/// All pages count as read if none has come for this long.
const SETTLING: Duration = Duration::from_millis(20);
const IDLE_FILES: u32 = 10;
const IDLE_FILE_PAGES: u32 = 256;

/// What a subject's process is told.
#[derive(Debug, Args)]
pub(crate) struct RoundArgs {
    #[command(flatten)]
    pub(crate) common: SubjectArgs,
    #[arg(long)]
    pub(crate) workload: Workload,
    /// Where other files can be made.
    #[arg(long)]
    pub(crate) dir: PathBuf,
}

/// What one round was like.
#[derive(Debug, Default, Deserialize, Serialize)]
pub(super) struct Round {
    /// Operations.
    pub(super) reads: u64,
    pub(super) writes: u64,
    /// Of both.
    pub(super) bytes: u64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    /// Of reads.
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    /// The share of the pages from the disk that no reader had requested, if the subject knows it.
    pub(super) unused: Option<f64>,
    /// The most memory that was in use, if the process was confined.
    pub(super) peak_bytes: Option<u64>,
}

impl Round {
    /// Pages read and written.
    pub(super) fn pages(&self) -> f64 {
        self.bytes as f64 / PAGE as f64
    }

    /// Bytes a second.
    pub(super) fn rate(&self) -> f64 {
        self.bytes as f64 / self.seconds
    }

    /// Of the processor, for each page.
    pub(super) fn cpu_us(&self) -> f64 {
        self.cpu_seconds * 1e6 / self.pages()
    }
}

/// Has a process do it.
pub(super) fn in_its_own_process(args: &RoundArgs, confinement: &Confinement) -> Result<Round> {
    let own = [format!("--workload={}", args.workload.name()), format!("--dir={}", args.dir.display())];
    let (round, peak_bytes) = confinement.run::<Round>(COMMAND, &args.common, &own)?;
    Ok(Round { peak_bytes, ..round })
}

/// What that process does.
pub(crate) fn child(args: &RoundArgs) -> Result<()> {
    let file = args.common.enter()?;
    let round = if args.workload == Workload::Idle { idle(args)? } else { run(args, &file)? };
    say(&serde_json::to_string(&round)?)
}

fn run(args: &RoundArgs, file: &Scratch) -> Result<Round> {
    let SubjectArgs { subject, pages, budget_pages, seed, .. } = args.common;
    let store = stores::build(subject, file, args.workload, budget_pages)?;
    if store.keeps() {
        let warm = store.run(&Operations::warming(args.workload, pages), 1, 0)?;
        ensure!(warm.pages_read == u64::from(warm_pages(pages)), "{} pages were read", warm.pages_read);
    }
    let version = seed + 1;
    let known = settled(&*store);
    let operations = Operations::new(args.workload, pages, seed, Instant::now() + args.common.time());
    let (start, cpu) = (Instant::now(), process_cpu());
    let log = store.run(&operations, args.workload.depth(), version)?;
    if log.writes > 0 {
        store.sync()?;
    }
    let (seconds, cpu) = (start.elapsed().as_secs_f64(), process_cpu().saturating_sub(cpu));
    let unused = known.zip(store.pages_in()).map(|(before, after)| {
        let came = after.saturating_sub(before);
        came.saturating_sub(log.pages_read) as f64 / came.max(1) as f64
    });
    drop(store);
    for &page in &log.written {
        check_version(page, version, &file.page(page)?.0)?;
    }
    ensure!(log.reads.count() > 0, "nothing was read");
    Ok(Round {
        reads: log.reads.count(),
        writes: log.writes,
        bytes: (log.pages_read + log.writes) * PAGE as u64,
        seconds,
        cpu_seconds: cpu.as_secs_f64(),
        p50_us: log.reads.percentile_us(50.0),
        p99_us: log.reads.percentile_us(99.0),
        unused,
        peak_bytes: None,
    })
}

/// Waits until no more pages come from the disk, and returns how many have come. These don't belong
/// to the workload: some were read ahead for the thread that filled the caches.
fn settled(store: &dyn Store) -> Option<u64> {
    let mut known = store.pages_in()?;
    loop {
        thread::sleep(SETTLING);
        match store.pages_in()? {
            now if now == known => return Some(now),
            now => known = now,
        }
    }
}

/// Pagefold has read and written ten files, and then does nothing.
fn idle(args: &RoundArgs) -> Result<Round> {
    let scratch = (0..IDLE_FILES).map(|_| Scratch::filled(&args.dir, IDLE_FILE_PAGES)).collect::<Result<Vec<_>>>()?;
    let paths: Vec<_> = scratch.iter().map(Scratch::path).collect();
    let (_group, files) =
        stores::pagefold::open(paths.iter().map(AsRef::as_ref), stores::pagefold::builder(args.common.budget_pages))?;
    let mut bytes = vec![1; IDLE_FILE_PAGES as usize * PAGE];
    for file in &files {
        file.read_at(&mut bytes, 0).context("cannot read")?;
        file.write_at(&bytes[..PAGE], 0).context("cannot write")?;
        file.sync().context("cannot sync")?;
    }
    let (start, cpu) = (Instant::now(), process_cpu());
    thread::sleep(args.common.time());
    let cpu = process_cpu().saturating_sub(cpu);
    Ok(Round { seconds: start.elapsed().as_secs_f64(), cpu_seconds: cpu.as_secs_f64(), ..Round::default() })
}
