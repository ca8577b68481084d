//! One round of one subject, in a process of its own.

use std::path::PathBuf;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::output::say;
use crate::peers::contents::PAGE;
use crate::peers::disk::workload::{Operations, Workload, warm_pages};
use crate::peers::disk::{pages, stores};
use crate::peers::measure::process_cpu;
use crate::peers::subjects::Kind;
use crate::peers::write::{Confinement, Scratch, join_cgroup};

/// The hidden command of a subject's process.
pub(crate) const COMMAND: &str = "disk-round";

const IDLE_FILES: u32 = 10;
const IDLE_FILE_PAGES: u32 = 256;

/// What a subject's process is told.
#[derive(Debug, Args)]
pub(crate) struct RoundArgs {
    #[arg(long)]
    pub(crate) subject: Kind,
    #[arg(long)]
    pub(crate) workload: Workload,
    #[arg(long)]
    pub(crate) file: PathBuf,
    /// Of the file.
    #[arg(long)]
    pub(crate) pages: u32,
    #[arg(long)]
    pub(crate) budget_pages: u32,
    /// Where other files can be made.
    #[arg(long)]
    pub(crate) dir: PathBuf,
    #[arg(long)]
    pub(crate) seed: u64,
    #[arg(long)]
    pub(crate) seconds: f64,
    #[arg(long)]
    pub(crate) cgroup: Option<PathBuf>,
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
    /// Share of the pages from the disk that nobody had asked for, if the subject knows.
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
    let mut command = vec![COMMAND.to_owned()];
    let mut say = |name: &str, value: String| command.push(format!("--{name}={value}"));
    say("subject", args.subject.name());
    say("workload", args.workload.name());
    say("file", args.file.display().to_string());
    say("pages", args.pages.to_string());
    say("budget-pages", args.budget_pages.to_string());
    say("dir", args.dir.display().to_string());
    say("seed", args.seed.to_string());
    say("seconds", args.seconds.to_string());
    let (round, peak_bytes) = confinement.run::<Round>(&command)?;
    Ok(Round { peak_bytes, ..round })
}

/// What that process does.
pub(crate) fn child(args: &RoundArgs) -> Result<()> {
    join_cgroup(args.cgroup.as_deref())?;
    let round = if args.workload == Workload::Idle { idle(args)? } else { run(args)? };
    say(&serde_json::to_string(&round)?)
}

fn run(args: &RoundArgs) -> Result<Round> {
    let file = Scratch::open(&args.file, args.pages)?;
    let store = stores::build(args.subject, &file, args.workload, args.budget_pages)?;
    if store.keeps() {
        let warm = store.run(&Operations::warming(args.workload, args.pages), 1, 0)?;
        ensure!(warm.pages_read == u64::from(warm_pages(args.pages)), "{} pages were read", warm.pages_read);
    }
    let version = args.seed + 1;
    let time = Duration::from_secs_f64(args.seconds);
    let operations = Operations::new(args.workload, args.pages, args.seed, Instant::now() + time);
    let known = store.pages_in();
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
        pages::check_version(page, version, &file.page(page)?.0)?;
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

/// Pagefold has read and written ten files, and then does nothing.
fn idle(args: &RoundArgs) -> Result<Round> {
    let scratch = (0..IDLE_FILES).map(|_| Scratch::filled(&args.dir, IDLE_FILE_PAGES)).collect::<Result<Vec<_>>>()?;
    let paths: Vec<_> = scratch.iter().map(Scratch::path).collect();
    let (_group, files) =
        stores::open_pagefold(paths.iter().map(AsRef::as_ref), stores::pagefold_builder(args.budget_pages))?;
    let mut bytes = vec![1; IDLE_FILE_PAGES as usize * PAGE];
    for file in &files {
        file.read_at(&mut bytes, 0).context("cannot read")?;
        file.write_at(&bytes[..PAGE], 0).context("cannot write")?;
        file.sync().context("cannot sync")?;
    }
    let (start, cpu) = (Instant::now(), process_cpu());
    thread::sleep(Duration::from_secs_f64(args.seconds));
    let cpu = process_cpu().saturating_sub(cpu);
    Ok(Round { seconds: start.elapsed().as_secs_f64(), cpu_seconds: cpu.as_secs_f64(), ..Round::default() })
}
