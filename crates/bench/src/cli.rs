//! The command line.

use std::path::PathBuf;

use clap::{Args, Parser, Subcommand};

use crate::subject::Operation;
use crate::subjects::Kind;

/// Pagefold beside its peers, measured in one run
#[derive(Debug, Parser)]
#[command(name = "bench", version)]
pub(crate) struct Cli {
    #[command(subcommand)]
    pub(crate) command: Command,
}

#[derive(Debug, Subcommand)]
pub(crate) enum Command {
    /// Compare with raw arrays, mmap, other caches and textbook baselines
    #[command(subcommand)]
    Peers(Peers),
    /// What `peers hit --count` traces
    #[command(hide = true)]
    CountChild(CountChild),
}

#[derive(Debug, Subcommand)]
pub(crate) enum Peers {
    /// What finding a resident page costs
    Hit(HitArgs),
    /// What a miss and an eviction cost
    Miss(MissArgs),
    /// How well policies choose what to keep, beside the best possible
    MissRate(MissRateArgs),
    /// What a scan does to a hot set
    Scan(ScanArgs),
    /// All of these, and the atomics of a hit
    All(AllArgs),
}

/// What every experiment takes.
#[derive(Clone, Debug, Args)]
pub(crate) struct Common {
    /// Only these subjects; those that ratios refer to are always there
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) subjects: Vec<Kind>,
    /// Repetitions, interleaved where times are measured [default: 7 for hit, 5 for miss, 3 for the others]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(crate) rounds: Option<u32>,
    /// Small and short: only shows that everything works
    #[arg(long)]
    pub(crate) quick: bool,
    #[command(flatten)]
    pub(crate) output: Output,
}

/// Where figures go.
#[derive(Clone, Debug, Args)]
pub(crate) struct Output {
    /// Print an array of flat records instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw the headline figures as bars
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
}

/// How much memory and where.
#[derive(Clone, Debug, Args)]
pub(crate) struct Size {
    /// Pages of 4 KiB: resident ones for hit, of the file for miss and miss-rate, of the budget for scan
    /// [default: 131072 for hit (16384 with --count), 1048576 for miss and miss-rate, 65536 for scan]
    #[arg(long, value_parser = clap::value_parser!(u32).range(1024..=1 << 24))]
    pub(crate) pages: Option<u32>,
    /// The data file, kept; made if it doesn't exist [default: a temporary file in /dev/shm]
    #[arg(long, value_name = "PATH")]
    pub(crate) file: Option<PathBuf>,
}

/// How long rounds are.
#[derive(Clone, Debug, Args)]
pub(crate) struct Timed {
    /// Numbers of threads
    #[arg(long, value_delimiter = ',', default_values_t = [1, 2], value_parser = parse_threads)]
    pub(crate) threads: Vec<usize>,
    /// Length of a round of one subject [default: 0.3 for hit, 1 for miss]
    #[arg(long, value_parser = parse_seconds)]
    pub(crate) seconds: Option<f64>,
    /// Operations of each thread in a round, instead of a time
    #[arg(long, conflicts_with = "seconds", value_parser = clap::value_parser!(u64).range(1..))]
    pub(crate) ops: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct HitArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) timed: Timed,
    /// Only these reads [default: all]
    #[arg(long, value_delimiter = ',', value_name = "READS", conflicts_with = "count")]
    pub(crate) reads: Vec<Operation>,
    /// Count instructions and atomic read-modify-writes instead (--ops hits, 1000 by default)
    #[arg(long, conflicts_with_all = ["threads", "seconds", "rounds"])]
    pub(crate) count: bool,
}

#[derive(Debug, Args)]
pub(crate) struct MissArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
    #[command(flatten)]
    pub(crate) timed: Timed,
}

#[derive(Debug, Args)]
pub(crate) struct MissRateArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
    /// Accesses to warm up with, and again as many to count [default: 4194304]
    #[arg(long, value_parser = clap::value_parser!(u64).range(1..=1 << 30))]
    pub(crate) ops: Option<u64>,
}

#[derive(Debug, Args)]
pub(crate) struct ScanArgs {
    #[command(flatten)]
    pub(crate) common: Common,
    #[command(flatten)]
    pub(crate) size: Size,
}

#[derive(Debug, Args)]
pub(crate) struct AllArgs {
    #[command(flatten)]
    pub(crate) common: Common,
}

#[derive(Debug, Args)]
pub(crate) struct CountChild {
    #[arg(long)]
    pub(crate) subject: Kind,
    #[arg(long)]
    pub(crate) pages: u32,
    #[arg(long)]
    pub(crate) ops: usize,
    #[arg(long)]
    pub(crate) file: PathBuf,
}

fn parse_threads(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(threads @ 1..=256) => Ok(threads),
        _ => Err("a number of threads is between 1 and 256".to_owned()),
    }
}

fn parse_seconds(text: &str) -> Result<f64, String> {
    match text.parse() {
        Ok(seconds) if (0.001..=3600.0).contains(&seconds) => Ok(seconds),
        _ => Err("a round is between 0.001 and 3600 seconds long".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use clap::CommandFactory;

    use super::*;

    #[test]
    fn the_command_line_is_consistent() {
        Cli::command().debug_assert();
    }
}
