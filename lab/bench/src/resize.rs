//! `resize`: how long lowering a budget takes, depending on how much it is lowered, and how this
//! affects calls meanwhile.
//!
//! The budget is full of free frames, as after a large file was closed, or of clean pages.

use std::sync::atomic::{AtomicBool, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use clap::{Args, Command, ValueEnum};
use pagefold::{Group, Pagefold};
use test_disks::SimulatedDisk;

use crate::output::progress;
use crate::rows::Rows;
use crate::summary::Summary;

/// On the command line, and in records.
pub(crate) const NAME: &str = "resize";
const MIB: u64 = 1 << 20;
/// What is left of the budget.
const LEFT: u64 = 64 * MIB;
const PAGE: u64 = 4096;

/// `resize`.
#[derive(Clone, Debug, Args)]
pub(crate) struct ResizeArgs {
    /// Mebibytes by which the budget is lowered: a list. The first is what ratios refer to
    #[arg(long, value_delimiter = ',', default_value = "256,1024,4096")]
    #[arg(value_parser = clap::value_parser!(u64).range(1..=1 << 20))]
    mebibytes: Vec<u64>,
    /// Repetitions, all in turn
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
}

/// What is in the frames that are given back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
enum Contents {
    Free,
    Clean,
}

/// What one lowering took.
#[derive(Clone, Copy, Debug)]
struct Lowering {
    took: Duration,
    /// The longest `open` of another file meanwhile, with its close.
    longest_open: Duration,
}

/// The command.
pub(crate) fn command() -> Command {
    ResizeArgs::augment_args(Command::new(NAME))
        .about("What lowering a budget takes, and what it does to opens meanwhile")
}

/// `resize`.
pub(crate) fn run(args: &ResizeArgs) -> Result<()> {
    let contents = [Contents::Free, Contents::Clean];
    let rows: Vec<(Contents, u64)> =
        contents.into_iter().flat_map(|contents| args.mebibytes.iter().map(move |&by| (contents, by))).collect();
    let bar = progress(NAME, rows.len() * args.rounds as usize);
    let mut lowerings: Vec<Vec<Lowering>> = vec![Vec::new(); rows.len()];
    for _ in 0..args.rounds {
        for (&(contents, by), lowerings) in rows.iter().zip(&mut lowerings) {
            lowerings.push(lower(contents, by * MIB)?);
            bar.inc(1);
        }
    }
    bar.finish_and_clear();
    let mut table = Rows::new(NAME, &format!("a budget is lowered to {} MiB. {} rounds.", LEFT / MIB, args.rounds));
    for (row, &(contents, by)) in rows.iter().enumerate() {
        let first = rows.iter().position(|&(other, _)| other == contents).unwrap_or(row);
        let ratio =
            |round: usize| lowerings[row][round].took.as_secs_f64() / lowerings[first][round].took.as_secs_f64();
        let rounds = 0..args.rounds as usize;
        let metrics = [
            ("time", "ms", Summary::of(lowerings[row].iter().map(|lowering| lowering.took.as_secs_f64() * 1e3))),
            ("time_ratio_first", "x", Summary::of(rounds.map(ratio))),
            (
                "longest_open",
                "ms",
                Summary::of(lowerings[row].iter().map(|lowering| lowering.longest_open.as_secs_f64() * 1e3)),
            ),
        ];
        let workload =
            format!("{}, by {by} MiB", if contents == Contents::Free { "free frames" } else { "clean pages" });
        table.add(&workload, "pagefold", &metrics);
    }
    table.print(args.json)
}

fn lower(contents: Contents, by: u64) -> Result<Lowering> {
    let disk = SimulatedDisk::default();
    disk.add_generated("/large", 1, by);
    disk.add_generated("/small", 2, 16 * PAGE);
    let fold = Pagefold::builder().memory(LEFT + by).backend(disk).build()?;
    let group = fold.group("all").build()?;
    let large = group.open("/large")?;
    let mut piece = vec![0; MIB as usize];
    for at in (0..by).step_by(piece.len()) {
        large.read_at(&mut piece, at)?;
    }
    if contents == Contents::Free {
        large.close()?;
    }
    let stop = AtomicBool::new(false);
    thread::scope(|scope| {
        let opener = scope.spawn(|| open_in_turn(&group, &stop));
        let start = Instant::now();
        let lowered = fold.resize(LEFT);
        let took = start.elapsed();
        stop.store(true, Ordering::Relaxed); // `join` orders all else.
        let longest_open = opener.join().map_err(|_| anyhow::anyhow!("the opener panicked"))??;
        lowered?;
        Ok(Lowering { took, longest_open })
    })
}

fn open_in_turn(group: &Group, stop: &AtomicBool) -> Result<Duration> {
    let mut longest = Duration::ZERO;
    while !stop.load(Ordering::Relaxed) {
        let start = Instant::now();
        drop(group.open("/small")?);
        longest = longest.max(start.elapsed());
        thread::sleep(Duration::from_micros(200));
    }
    Ok(longest)
}
