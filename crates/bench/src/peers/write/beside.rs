//! What write-back of some pages does to the hits of others in the same group.

use std::hint::black_box;
use std::path::Path;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Result, anyhow, ensure};
use rustix::time::{ClockId, clock_gettime};

use crate::output::progress;
use crate::peers::contents::{PAGE, offset_of};
use crate::peers::random::Random;
use crate::peers::report::Report;
use crate::peers::write::Settings;
use crate::peers::write::scratch::Scratch;
use crate::peers::write::stores::{PagefoldStore, Store};
use crate::summary::Summary;

/// The hot pages and those being written, as shares of the budget.
const SHARE: u32 = 8;
/// Reads between two looks at the clock.
const CHUNK: u32 = 256;

/// Reads a second: by the clock, and by the CPU time of the thread that reads.
#[derive(Clone, Copy)]
struct Rate {
    wall: f64,
    cpu: f64,
}

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write-hits", "rate_ratio_quiet", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("hits", 2 * settings.rounds as usize);
    let pages = settings.budget_pages / SHARE;
    let file = Scratch::filled(directory, 2 * pages)?;
    let store = PagefoldStore::new(&file, settings.budget_pages)?;
    // All in memory; the first half is read from now on, the second one written.
    (0..2 * pages).try_for_each(|page| store.write(page, &[page as u8; PAGE]))?;
    store.sync()?;
    let mut written = 0;
    for (label, read) in [("8 B, uniform", read::<8> as fn(&_, _, _) -> _), ("4 KiB, uniform", read::<PAGE>)] {
        let mut rounds = Vec::new();
        for _ in 0..settings.rounds {
            let quiet = read(&store, pages, settings.reading)?;
            let before = store.file.stats().bytes_out;
            let beside = while_writing_back(&store, pages..2 * pages, || read(&store, pages, settings.reading))?;
            written += store.file.stats().bytes_out - before;
            rounds.push((quiet, beside));
            bar.inc(1);
        }
        for (subject, pick) in [("quiet", 0), ("beside write-back", 1)] {
            let of = |pair: &(Rate, Rate)| if pick == 0 { pair.0 } else { pair.1 };
            report.add(subject, label, "ns_per_hit", "ns", Summary::of(rounds.iter().map(|pair| 1e9 / of(pair).wall)));
            report.add(subject, label, "cpu_per_hit", "ns", Summary::of(rounds.iter().map(|pair| 1e9 / of(pair).cpu)));
            let wall = rounds.iter().map(|pair| of(pair).wall / pair.0.wall);
            report.add(subject, label, "rate_ratio_quiet", "x", Summary::of(wall));
            let cpu = rounds.iter().map(|pair| of(pair).cpu / pair.0.cpu);
            report.add(subject, label, "cpu_rate_ratio_quiet", "x", Summary::of(cpu));
        }
    }
    bar.finish_and_clear();
    report.legend = "cpu_*: by the CPU time of the thread that reads, so without waiting for a CPU.".to_owned();
    let seconds = settings.reading.as_secs_f64() * f64::from(2 * settings.rounds);
    report.notes.push(format!("{:.0} MB/s were written back meanwhile", written as f64 / 1e6 / seconds));
    Ok(report)
}

/// Calls `measure` while a thread makes pages dirty and syncs them, again and again.
fn while_writing_back(
    store: &PagefoldStore,
    pages: std::ops::Range<u32>,
    measure: impl FnOnce() -> Result<Rate>,
) -> Result<Rate> {
    let done = AtomicBool::new(false);
    thread::scope(|scope| {
        let writing = scope.spawn(|| {
            // Relaxed: it only ends the loop.
            while !done.load(Ordering::Relaxed) {
                pages.clone().try_for_each(|page| store.write(page, &[page as u8; PAGE]))?;
                store.sync()?;
            }
            anyhow::Ok(())
        });
        let rate = measure();
        done.store(true, Ordering::Relaxed);
        writing.join().map_err(|_| anyhow!("the thread that writes panicked"))??;
        rate
    })
}

/// Reads `N` bytes of random ones of the first `pages` pages for a time.
fn read<const N: usize>(store: &PagefoldStore, pages: u32, time: Duration) -> Result<Rate> {
    let (mut random, mut bytes) = (Random::new(5), [0; N]);
    let (start, cpu) = (Instant::now(), thread_cpu());
    let mut reads = 0_u64;
    while start.elapsed() < time {
        for _ in 0..CHUNK {
            let len = store.file.read_at(&mut bytes, offset_of(random.below(pages)))?;
            ensure!(len == N, "the file has become shorter");
            black_box(&mut bytes);
        }
        reads += u64::from(CHUNK);
    }
    let rate = |time: Duration| reads as f64 / time.as_secs_f64().max(1e-9);
    Ok(Rate { wall: rate(start.elapsed()), cpu: rate(thread_cpu().saturating_sub(cpu)) })
}

fn thread_cpu() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), time.tv_nsec as u32)
}

fn about(settings: &Settings) -> String {
    format!(
        "One thread reads from random ones of {} resident pages, for {} s, while another one overwrites and syncs as many \
         others of the same group, again and again, and as long without that. {} rounds in turn. Median (min-max).",
        settings.budget_pages / SHARE,
        settings.reading.as_secs_f64(),
        settings.rounds
    )
}
