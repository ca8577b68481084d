//! What is the same in the command lines of `bench virtual` and `bench real`.

use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, ValueEnum};
use pagefold::{Size, SizeError};

use super::device::Device;
use super::workload::Workload;

/// What experiments take on both kinds of CPUs.
#[derive(Clone, Debug, Default, Args)]
pub(crate) struct Common {
    /// Numbers of CPUs, with one task on each: a list, as in 1,2,44,88. If there are more tasks
    /// than CPUs, tasks take turns [default: powers of two, and the number of the machine's CPUs]
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS", value_parser = parse_cpus)]
    pub(crate) cpus: Vec<usize>,
    /// Only these schemes: a list. The first is what speed-ups refer to
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) schemes: Vec<String>,
    /// Only these workloads: a list [default: all but those that take long on virtual CPUs]
    #[arg(long, value_delimiter = ',', value_name = "NAMES")]
    pub(crate) workloads: Vec<String>,
    /// Tasks in one group (1), or in a group each (N), in experiments with groups: the same as
    /// --workloads one-group or --workloads groups
    #[arg(long, value_name = "1|N", conflicts_with = "workloads")]
    pub(crate) groups: Option<Groups>,
    /// Time in which each run counts operations [default: 200us of virtual time, or longer if an
    /// experiment needs it; 300ms of real time]
    #[arg(long, value_parser = parse_time)]
    pub(crate) time: Option<Duration>,
    /// Bytes that an operation copies, in experiments in which that can be chosen
    #[arg(long, value_parser = clap::value_parser!(u32).range(1..=1 << 20))]
    pub(crate) bytes: Option<u32>,
    /// Where pages go that don't fit in memory, in experiments that swap or evict to a device:
    /// memory, the disk of the current directory, or a simulated disk [default: memory]
    #[arg(long, value_enum)]
    pub(crate) device: Option<Device>,
    /// Memory for each CPU, in experiments in which not all pages fit [default: 1 MiB, or 4 MiB if
    /// each task has a space of its own; on real CPUs 64 MiB for all]
    #[arg(long, value_name = "SIZE", value_parser = parse_memory)]
    pub(crate) memory_per_cpu: Option<Size>,
    /// Print an array of flat records instead of text
    #[arg(long)]
    pub(crate) json: bool,
    /// Draw throughput over CPUs, a panel for each workload
    #[arg(long, value_name = "FILE.svg")]
    pub(crate) plot: Option<PathBuf>,
    /// Few CPUs, short: shows that everything works; the figures mean nothing
    #[arg(long)]
    pub(crate) quick: bool,
}

/// How many groups tasks are in.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Groups {
    /// All in one
    #[value(name = "1")]
    One,
    /// A group each
    #[value(name = "N", alias = "n")]
    Each,
}

impl Groups {
    /// What the workload is called.
    pub(crate) fn workload(self) -> &'static str {
        match self {
            Self::One => Workload::ONE_GROUP,
            Self::Each => Workload::GROUPS,
        }
    }
}

fn parse_cpus(text: &str) -> Result<usize, String> {
    match text.parse() {
        Ok(cpus) if (1..=manycore::CPUS_MAX).contains(&cpus) => Ok(cpus),
        _ => Err(format!("a number of CPUs is between 1 and {}", manycore::CPUS_MAX)),
    }
}

fn parse_memory(text: &str) -> Result<Size, String> {
    let size: Size = text.parse().map_err(|error: SizeError| error.to_string())?;
    let possible = Size(256 << 10)..=Size(64 << 20);
    if possible.contains(&size) { Ok(size) } else { Err("a CPU has between 256 KiB and 64 MiB".to_owned()) }
}

fn parse_time(text: &str) -> Result<Duration, String> {
    let time = humantime::parse_duration(text).map_err(|error| format!("{error}; a time is like 200us or 300ms"))?;
    let possible = Duration::from_micros(1)..=Duration::from_secs(60);
    if possible.contains(&time) { Ok(time) } else { Err("a run is between 1us and 60s long".to_owned()) }
}
