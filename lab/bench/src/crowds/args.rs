//! What `crowds` takes on the command line.

use clap::{Args, ValueEnum};

use super::scene::Sizes;

/// On the command line, and in records.
pub(crate) const NAME: &str = "crowds";
/// The budget in which memory is measured. `ROOMY_BUDGET` is the one in which operations are
/// measured: all pages that are used fit into it.
pub(super) const BUDGET: u64 = 1 << 30;
pub(super) const ROOMY_BUDGET: u64 = 6 << 30;

/// `crowds`.
#[derive(Clone, Debug, Args)]
pub(crate) struct CrowdsArgs {
    /// A tenth of the crowd
    #[arg(long)]
    pub(super) small: bool,
    /// Repetitions, with the crowd and without it in turn
    #[arg(long, default_value_t = 9, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub(super) rounds: u32,
    /// CPUs that memory is measured for: a list
    #[arg(long, value_delimiter = ',', value_name = "NUMBERS")]
    pub(super) cpus: Vec<usize>,
    /// Print an array of flat records instead of text
    #[arg(long)]
    pub(super) json: bool,
    /// End with 1 if a target is missed
    #[arg(long)]
    pub(super) check: bool,
    /// End with 1 if the target of memory is missed, which doesn't depend on how busy the machine
    /// is
    #[arg(long)]
    pub(super) check_memory: bool,
    /// Be one of the processes
    #[arg(long, hide = true)]
    pub(super) part: Option<Part>,
}

impl CrowdsArgs {
    pub(super) fn sizes(&self) -> Sizes {
        Sizes::crowd(if self.small { 10 } else { 1 })
    }

    pub(super) fn budget(&self, whole: u64) -> u64 {
        if self.small { whole / 10 } else { whole }
    }
}

/// What a process does.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(super) enum Part {
    /// Has the hot objects alone, and measures operations.
    Alone,
    /// Has the crowd, and measures operations.
    Crowd,
    /// Has the crowd, and says what it takes.
    Memory,
}
