//! `writer-wait`: how long a writer waits while other threads pin the page in a loop, compared with
//! how long it waits while they take a fair mutex in a loop.
//!
//! Each of these threads computes the sum of the page's bytes while it has the pin or the mutex.
//! The writer writes 8 bytes, then sleeps for a moment.

use std::hint::black_box;
use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Command};
use pagefold::{File, Pagefold};
use parking_lot::{Mutex, MutexGuard};
use test_disks::SimulatedDisk;

use crate::output::progress;
use crate::rows::Rows;
use crate::summary::Summary;

/// On the command line, and in records.
pub(crate) const NAME: &str = "writer-wait";
const PAGE: usize = 4096;
/// Between two writes.
const REST: Duration = Duration::from_micros(200);

/// `writer-wait`.
#[derive(Clone, Debug, Args)]
pub(crate) struct WriterWaitArgs {
    /// Threads that pin the page: a list
    #[arg(long, value_delimiter = ',', default_value = "1,3,16")]
    #[arg(value_parser = clap::value_parser!(u32).range(1..=1024))]
    threads: Vec<u32>,
    /// Milliseconds of each round
    #[arg(long, default_value_t = 2000, value_parser = clap::value_parser!(u64).range(1..=600_000))]
    milliseconds: u64,
    /// Repetitions, pins and mutex in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
}

/// What the writer saw of one round.
#[derive(Clone, Copy, Debug)]
struct Waits {
    longest: Duration,
    mean: Duration,
}

/// The command.
pub(crate) fn command() -> Command {
    WriterWaitArgs::augment_args(Command::new(NAME))
        .about("How long a writer waits beside threads that pin its page, or take a fair mutex instead")
}

/// `writer-wait`.
pub(crate) fn run(args: &WriterWaitArgs) -> Result<()> {
    let time = Duration::from_millis(args.milliseconds);
    let bar = progress(NAME, args.threads.len() * args.rounds as usize);
    let how = format!(
        "a write of 8 bytes beside threads that have the page in a loop. {} rounds of {} ms.",
        args.rounds, args.milliseconds
    );
    let mut rows = Rows::new(NAME, &how);
    for &threads in &args.threads {
        let mut rounds = Vec::new();
        for _ in 0..args.rounds {
            rounds.push([beside_pins(threads, time, 0)?, beside_mutex(threads, time)?, beside_pins(threads, time, 1)?]);
            bar.inc(1);
        }
        let ms = |time: Duration| time.as_secs_f64() * 1e3;
        // In the last row, the threads pin a page to which the writer doesn't write. So this row
        // shows how long the writer waits for a CPU.
        for (row, subject) in ["pagefold", "fair-mutex", "another-page"].into_iter().enumerate() {
            let metrics = [
                ("longest_wait", "ms", Summary::of(rounds.iter().map(|round| ms(round[row].longest)))),
                ("mean_wait", "ms", Summary::of(rounds.iter().map(|round| ms(round[row].mean)))),
                (
                    "longest_wait_ratio_mutex",
                    "x",
                    Summary::of(rounds.iter().map(|round| ms(round[row].longest) / ms(round[1].longest))),
                ),
            ];
            rows.add(&format!("{threads} threads"), subject, &metrics);
        }
    }
    bar.finish_and_clear();
    rows.print(args.json)
}

fn beside_pins(threads: u32, time: Duration, written: u64) -> Result<Waits> {
    let disk = SimulatedDisk::default();
    disk.add_generated("/file", 1, 16 * PAGE as u64);
    let fold = Pagefold::builder().memory("8MiB").backend(disk).build()?;
    let file: File = fold.group("all").build()?.open_options().write(true).open("/file")?;
    let read = || -> Result<()> {
        sum(&file.page_at(0)?);
        Ok(())
    };
    waits(threads, time, read, || Ok(file.write_at(&[1; 8], written * PAGE as u64)?))
}

fn beside_mutex(threads: u32, time: Duration) -> Result<Waits> {
    let page = Mutex::new([0_u8; PAGE]);
    let read = || {
        let page = page.lock();
        sum(&page[..]);
        MutexGuard::unlock_fair(page);
        Ok(())
    };
    waits(threads, time, read, || {
        page.lock()[..8].fill(1);
        Ok(())
    })
}

fn sum(bytes: &[u8]) {
    black_box(bytes.iter().map(|&byte| u64::from(byte)).sum::<u64>());
}

/// Starts `threads` threads that call `read` in a loop. Measures how long each `write` takes
/// meanwhile.
fn waits(
    threads: u32,
    time: Duration,
    read: impl Fn() -> Result<()> + Sync,
    write: impl Fn() -> Result<()>,
) -> Result<Waits> {
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let readers: Vec<_> = (0..threads)
            .map(|_| {
                scope.spawn(|| {
                    while !stop.load(Ordering::Relaxed) {
                        read()?;
                    }
                    Ok::<_, anyhow::Error>(())
                })
            })
            .collect();
        let (start, mut longest, mut sum, mut writes) = (Instant::now(), Duration::ZERO, Duration::ZERO, 0);
        let mut written = Ok(());
        while written.is_ok() && start.elapsed() < time {
            let before = Instant::now();
            written = write();
            let took = before.elapsed();
            (longest, sum, writes) = (longest.max(took), sum + took, writes + 1);
            thread::sleep(REST);
        }
        stop.store(true, Ordering::Relaxed); // `join` orders all else.
        for reader in readers {
            reader.join().map_err(|_| anyhow::anyhow!("a reader panicked"))??;
        }
        written?;
        Ok(Waits { longest, mean: sum / writes.max(1) })
    })
}
