//! `write`: random and sequential writes while earlier writes go to the disk, and how this affects
//! others.
//!
//! All files are on a real disk, and have no name ([`scratch`]), so that none is left when the
//! process ends. The experiments: [`overwrite`], [`sequential`], [`stall`], [`hits`],
//! [`neighbour`], [`resident`].

mod beside;
mod hits;
mod neighbour;
mod overwrite;
mod resident;
mod round;
mod sequential;
mod stall;
mod stores;

pub(crate) use round::{COMMAND as ROUND_COMMAND, RoundArgs, child as round};

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::ValueEnum;

use crate::peers::report::Report;
use crate::peers::scratch;
use crate::peers::subjects::Kind;

/// How the experiments are done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    pub(crate) parts: Vec<Part>,
    /// The directory for the files, if not the usual one.
    pub(crate) directory: Option<PathBuf>,
    /// Pages of the budget.
    pub(crate) budget_pages: u32,
    /// Dirty pages that are synced while a thread writes.
    pub(crate) synced_pages: u32,
    pub(crate) rounds: u32,
    /// How long a round of overwriting is.
    pub(crate) overwriting: Duration,
    /// How long hits are read, with and without write-back, in a round.
    pub(crate) reading: Duration,
    /// Time between two syncs.
    pub(crate) sync_period: Duration,
}

/// Subjects that make sense here.
pub(crate) fn possible() -> Vec<Kind> {
    vec![Kind::Mmap, Kind::Pwrite, Kind::MutexLru, Kind::Pagefold]
}

/// An experiment.
#[derive(Clone, Copy, Debug, PartialEq, Eq, ValueEnum)]
pub(crate) enum Part {
    /// Random overwrites, beside other ways to write
    Overwrite,
    /// Writing a file from end to end, beside the disk
    Sequential,
    /// The longest wait of a writer while much is synced
    Stall,
    /// Hits while pages are written back
    Hits,
    /// A quiet tenant beside one that writes or scans
    Neighbour,
    /// What a write to a page in memory costs, in a file and at an address
    Resident,
}

/// Runs those parts that are wanted and have a subject.
pub(crate) fn run(settings: &Settings) -> Result<Vec<Report>> {
    let directory = scratch::directory(settings.directory.as_deref())?;
    let has_subject = |part: &&Part| **part == Part::Overwrite || settings.kinds.contains(&Kind::Pagefold);
    let run = |part: &Part| match part {
        Part::Overwrite => overwrite::run(settings, &directory),
        Part::Sequential => sequential::run(settings, &directory),
        Part::Stall => stall::run(settings, &directory),
        Part::Hits => hits::run(settings, &directory),
        Part::Neighbour => neighbour::run(settings, &directory),
        Part::Resident => resident::run(settings, &directory),
    };
    settings.parts.iter().filter(has_subject).map(run).collect()
}
