//! One round of one subject, in a process of its own: random overwrites while another thread syncs.

use std::sync::mpsc;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use clap::Args;
use serde::{Deserialize, Serialize};

use crate::output::say;
use crate::peers::confined::Confinement;
use crate::peers::contents::{PAGE, Page};
use crate::peers::latency::Latencies;
use crate::peers::measure::{OPERATIONS_MIN, process_cpu};
use crate::peers::scratch::Scratch;
use crate::peers::subject_args::SubjectArgs;
use crate::peers::write::stores::{self, Store};
use crate::random::Random;

/// The hidden command of a subject's process.
pub(crate) const COMMAND: &str = "write-round";

/// After a round, this many pages from the file's start are read from the disk, and compared with
/// the last writes to them.
const CHECKED: usize = 256;

/// What a subject's process is told.
#[derive(Debug, Args)]
pub(crate) struct RoundArgs {
    #[command(flatten)]
    pub(crate) common: SubjectArgs,
    #[arg(long)]
    pub(crate) sync_seconds: f64,
}

/// What one round was like.
#[derive(Debug, Deserialize, Serialize)]
pub(super) struct Round {
    pub(super) writes: u64,
    pub(super) p50_us: f64,
    pub(super) p99_us: f64,
    pub(super) p999_us: f64,
    pub(super) worst_us: f64,
    pub(super) seconds: f64,
    pub(super) cpu_seconds: f64,
    pub(super) device_bytes: Option<u64>,
    pub(super) requests_per_page: Option<f64>,
    /// The most memory that was in use, if the process was confined.
    pub(super) peak_bytes: Option<u64>,
}

impl Round {
    pub(super) fn rate(&self) -> f64 {
        self.writes as f64 / self.seconds
    }
}

/// Measures from its making to [`end`](Self::end).
pub(super) struct Gauge<'a> {
    file: &'a Scratch,
    device: Option<u64>,
    cpu: Duration,
    start: Instant,
}

impl<'a> Gauge<'a> {
    pub(super) fn new(file: &'a Scratch) -> Self {
        Self { file, device: file.device_bytes(), cpu: process_cpu(), start: Instant::now() }
    }

    pub(super) fn end(self, latencies: &Latencies) -> Round {
        let (seconds, cpu) = (self.start.elapsed().as_secs_f64(), process_cpu().saturating_sub(self.cpu));
        let device_bytes = self.file.device_bytes().zip(self.device).map(|(now, before)| now.saturating_sub(before));
        Round {
            writes: latencies.count(),
            p50_us: latencies.percentile_us(50.0),
            p99_us: latencies.percentile_us(99.0),
            p999_us: latencies.percentile_us(99.9),
            worst_us: latencies.worst_us(),
            seconds,
            cpu_seconds: cpu.as_secs_f64(),
            device_bytes,
            requests_per_page: None,
            peak_bytes: None,
        }
    }
}

/// Has a process do it.
pub(super) fn in_its_own_process(args: &RoundArgs, confinement: &Confinement) -> Result<Round> {
    let own = [format!("--sync-seconds={}", args.sync_seconds)];
    let (round, peak_bytes) = confinement.run::<Round>(COMMAND, &args.common, &own)?;
    Ok(Round { peak_bytes, ..round })
}

/// What that process does.
pub(crate) fn child(args: &RoundArgs) -> Result<()> {
    let file = args.common.enter()?;
    say(&serde_json::to_string(&run(args, &file)?)?)
}

fn run(args: &RoundArgs, file: &Scratch) -> Result<Round> {
    let SubjectArgs { subject, budget_pages, seed, .. } = args.common;
    let store = stores::build(subject, file, budget_pages)?;
    let (time, sync_period) = (args.common.time(), Duration::from_secs_f64(args.sync_seconds));
    let mut random = Random::new(seed);
    let mut last = Last(vec![None; CHECKED]);
    // Fills the budget, and finds the pace of the disk.
    overwrite(&*store, file, &mut random, &mut last, time / 4, sync_period)?;
    store.sync()?;
    let (known, gauge) = (store.written_back(), Gauge::new(file));
    let latencies = overwrite(&*store, file, &mut random, &mut last, time, sync_period)?;
    store.sync()?;
    let round = gauge.end(&latencies);
    let requests_per_page = known.zip(store.written_back()).map(|(before, after)| {
        (after.requests - before.requests) as f64 / ((after.pages - before.pages) as f64).max(1.0)
    });
    drop(store);
    last.check(file)?;
    Ok(Round { requests_per_page, ..round })
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
    while latencies.count() < OPERATIONS_MIN || start.elapsed() < time {
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
