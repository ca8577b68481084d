//! How write-back of some pages affects hits of other pages of the same group.

use std::fs::File;
use std::hint::black_box;
use std::ops::Range;
use std::path::Path;
use std::thread;
use std::time::{Duration, Instant};

use anyhow::{Context, Result, ensure};

use crate::output::progress;
use crate::peers::contents::{PAGE, offset_of};
use crate::peers::direct::{self, Aligned};
use crate::peers::measure::thread_cpu;
use crate::peers::report::Report;
use crate::peers::scratch::Scratch;
use crate::peers::write::Settings;
use crate::peers::write::beside::beside;
use crate::peers::write::stores::Store;
use crate::peers::write::stores::pagefold::PagefoldStore;
use crate::random::Random;
use crate::summary::Summary;

/// The hot pages and those being written, as shares of the budget.
const SHARE: u32 = 8;
/// Reads between two looks at the clock.
const CHUNK: u32 = 256;

/// Reads per second: of elapsed time, and of the CPU time of the reading thread.
#[derive(Clone, Copy)]
struct Rate {
    wall: f64,
    cpu: f64,
}

/// What goes on beside the reads.
const ROWS: [&str; 3] = [QUIET, "beside write-back", CONTROL];
const QUIET: &str = "quiet";
const CONTROL: &str = "beside O_DIRECT writes";

/// Runs it.
pub(super) fn run(settings: &Settings, directory: &Path) -> Result<Report> {
    let mut report = Report::new("write-hits", "rate_ratio_quiet", about(settings));
    report.rounds = Some(settings.rounds);
    let bar = progress("hits", 2 * settings.rounds as usize);
    let pages = settings.budget_pages / SHARE;
    let file = Scratch::filled(directory, 2 * pages)?;
    let other = Scratch::filled(directory, pages)?;
    let store = PagefoldStore::new(&file, settings.budget_pages)?;
    // All pages are in memory. From now on, the first half is read, and the second half is written.
    (0..2 * pages).try_for_each(|page| store.write(page, &[page as u8; PAGE]))?;
    store.sync()?;
    let mut written = Vec::new();
    for (label, read) in [("8 B, uniform", read::<8> as fn(&_, _, _) -> _), ("4 KiB, uniform", read::<PAGE>)] {
        let mut rounds = Vec::new();
        for _ in 0..settings.rounds {
            let reads = || read(&store, pages, settings.reading);
            let quiet = reads()?;
            let (before, start) = (store.file.stats().bytes_out, Instant::now());
            let written_back = beside(|| write_back(&store, pages..2 * pages), reads)?;
            let rate = (store.file.stats().bytes_out - before) as f64 / start.elapsed().as_secs_f64();
            let mut plain = Plain::new(&other, rate)?;
            let control = beside(|| plain.write(), reads)?;
            rounds.push([quiet, written_back, control]);
            written.push(rate);
            bar.inc(1);
        }
        for (row, subject) in ROWS.into_iter().enumerate() {
            let mut add = |metric: &str, unit: &str, value: &dyn Fn(&[Rate; 3]) -> f64| {
                report.add(subject, label, metric, unit, Summary::of(rounds.iter().map(value)));
            };
            add("ns_per_hit", "ns", &|round| 1e9 / round[row].wall);
            add("cpu_per_hit", "ns", &|round| 1e9 / round[row].cpu);
            add("rate_ratio_quiet", "x", &|round| round[row].wall / round[0].wall);
            add("cpu_rate_ratio_quiet", "x", &|round| round[row].cpu / round[0].cpu);
            if subject != QUIET {
                add("rate_ratio_control", "x", &|round| round[row].wall / round[2].wall);
                add("cpu_rate_ratio_control", "x", &|round| round[row].cpu / round[2].cpu);
            }
        }
    }
    bar.finish_and_clear();
    report.legend = format!(
        "cpu_*: by the CPU time of the thread that reads, so without waiting for a CPU. *_control: to the row \
         {CONTROL}, in \
         which an unrelated thread writes as many bytes a second past the kernel's cache, 1 MiB at a time, of memory \
         that it \
         doesn't change: what the disk itself takes from the reader."
    );
    let rate = Summary::of(written).median / 1e6;
    report.notes.push(format!("{rate:.0} MB/s were written back meanwhile, and by the other thread"));
    Ok(report)
}

/// Makes pages dirty and syncs them.
fn write_back(store: &PagefoldStore, mut pages: Range<u32>) -> Result<()> {
    pages.try_for_each(|page| store.write(page, &[page as u8; PAGE]))?;
    store.sync()
}

/// Writes past the kernel's cache, so many bytes a second.
struct Plain {
    file: File,
    len: u64,
    bytes: Box<Aligned<{ direct::LARGE }>>,
    bytes_per_second: f64,
    start: Instant,
    written: u64,
}

impl Plain {
    fn new(file: &Scratch, bytes_per_second: f64) -> Result<Self> {
        let (bytes, len) = (Aligned::zeroed(), offset_of(file.pages()));
        let start = Instant::now();
        Ok(Self { file: file.open_direct()?, len, bytes, bytes_per_second, start, written: 0 })
    }

    fn write(&mut self) -> Result<()> {
        let due = self.written as f64 / self.bytes_per_second - self.start.elapsed().as_secs_f64();
        thread::sleep(Duration::from_secs_f64(due.clamp(0.0, 1.0)));
        let at = self.written % self.len;
        let len = (direct::LARGE as u64).min(self.len - at);
        let written = rustix::io::pwrite(&self.file, &self.bytes.0[..len as usize], at).context("cannot write")?;
        self.written += written as u64;
        Ok(())
    }
}

/// Reads `N` bytes of random pages among the first `pages`, for `time`.
fn read<const N: usize>(store: &PagefoldStore, pages: u32, time: Duration) -> Result<Rate> {
    let (mut random, mut bytes) = (Random::new(5), [0; N]);
    let (start, cpu) = (Instant::now(), thread_cpu());
    let mut reads = 0_u64;
    while reads == 0 || start.elapsed() < time {
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

fn about(settings: &Settings) -> String {
    format!(
        "One thread reads from random ones of {} resident pages, for {} s, while another one overwrites and syncs as \
         many \
         others of the same group, again and again, as long without that, and as long beside plain writes to another \
         file. {} \
         rounds in turn. Median (min-max).",
        settings.budget_pages / SHARE,
        settings.reading.as_secs_f64(),
        settings.rounds
    )
}
