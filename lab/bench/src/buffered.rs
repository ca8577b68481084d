//! `buffered`: the cost of reading a file through the kernel's page cache, as Pagefold does where
//! direct I/O isn't possible, divided by the cost of reading the same file directly.
//!
//! Pagefold does both kinds of reads, with a budget that is small beside the file. Before each run,
//! the kernel drops the file's pages from its cache.

use std::path::PathBuf;
use std::time::Instant;

use anyhow::Result;
use clap::{Args, Command};
use pagefold::io::{DirectIo, Uring};
use pagefold::{Pagefold, ReadRequest};

use crate::output::progress;
use crate::peers::scratch::{self, Scratch};
use crate::random::Random;
use crate::rows::Rows;
use crate::summary::Summary;

/// On the command line, and in records.
pub(crate) const NAME: &str = "buffered";
const MIB: u64 = 1 << 20;
const PAGE: usize = 4096;
const MEMORY: u64 = 32 * MIB;
/// Pages of a batch.
const BATCH: usize = 64;

/// `buffered`.
#[derive(Clone, Debug, Args)]
pub(crate) struct BufferedArgs {
    /// Mebibytes of the file
    #[arg(long, default_value_t = 512, value_parser = clap::value_parser!(u64).range(64..=1 << 20))]
    mebibytes: u64,
    /// Where the file is made: on a disk
    #[arg(long, value_name = "DIRECTORY")]
    dir: Option<PathBuf>,
    /// Repetitions, direct and buffered in turn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    rounds: u32,
    /// Print an array of flat records instead of text
    #[arg(long)]
    json: bool,
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Workload {
    Sequential,
    Batches,
}

/// The command.
pub(crate) fn command() -> Command {
    BufferedArgs::augment_args(Command::new(NAME))
        .about("Reading a file through the kernel's cache, over reading it directly")
}

/// `buffered`.
pub(crate) fn run(args: &BufferedArgs) -> Result<()> {
    let file = Scratch::filled(&scratch::directory(args.dir.as_deref())?, (args.mebibytes * MIB / PAGE as u64) as u32)?;
    let workloads = [(Workload::Sequential, "sequential, 1 MiB"), (Workload::Batches, "batches of 64 pages")];
    let bar = progress(NAME, workloads.len() * args.rounds as usize);
    let how = format!("a file of {} MiB, a budget of {} MiB. {} rounds.", args.mebibytes, MEMORY / MIB, args.rounds);
    let mut rows = Rows::new(NAME, &how);
    for (workload, name) in workloads {
        let mut rounds = Vec::new();
        for round in 0..args.rounds {
            let direct = read(&file, DirectIo::Always, workload, round)?;
            rounds.push([direct, read(&file, DirectIo::Never, workload, round)?]);
            bar.inc(1);
        }
        for (row, subject) in ["direct", "buffered"].into_iter().enumerate() {
            let metrics = [
                ("throughput", "MB/s", Summary::of(rounds.iter().map(|round| round[row]))),
                ("throughput_ratio_direct", "x", Summary::of(rounds.iter().map(|round| round[row] / round[0]))),
            ];
            rows.add(name, subject, &metrics);
        }
    }
    bar.finish_and_clear();
    rows.print(args.json)
}

/// Reads the file in the way of `workload`. Returns megabytes a second.
fn read(scratch: &Scratch, direct: DirectIo, workload: Workload, round: u32) -> Result<f64> {
    scratch.forget()?;
    let fold = Pagefold::builder().memory(MEMORY).backend(Uring::new(direct)?).build()?;
    let file = fold.group("all").build()?.open(scratch.path())?;
    let len = file.len();
    let start = Instant::now();
    let bytes = match workload {
        Workload::Sequential => {
            let mut piece = vec![0; MIB as usize];
            for at in (0..len).step_by(piece.len()) {
                file.read_at(&mut piece, at)?;
            }
            len
        }
        Workload::Batches => {
            let mut pages = vec![[0; PAGE]; BATCH];
            let mut random = Random::new(u64::from(round));
            let batches = len / 4 / (PAGE * BATCH) as u64;
            for _ in 0..batches {
                let mut at = || u64::from(random.below(scratch.pages())) * PAGE as u64;
                let mut requests: Vec<_> = pages.iter_mut().map(|page| ReadRequest::new(at(), page)).collect();
                file.read_batch(&mut requests);
                requests.into_iter().try_for_each(|request| request.result.map(|_| ()))?;
            }
            batches * (PAGE * BATCH) as u64
        }
    };
    Ok(bytes as f64 / start.elapsed().as_secs_f64() / 1e6)
}
