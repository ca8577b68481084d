//! `write`: random and sequential writing while what was written goes to the disk, and what that does to others.
//!
//! Everything is on a real disk, in files without a name ([`scratch`]), so that nothing is left whatever happens. Four
//! experiments: [`overwrite`], [`sequential`], [`stall`], [`beside`].

mod beside;
mod disk;
mod latency;
mod memory;
mod overwrite;
mod scratch;
mod sequential;
mod stall;
mod stores;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;

use crate::peers::report::Report;
use crate::peers::subjects::Kind;

/// How the experiments are done.
#[derive(Clone, Debug)]
pub(crate) struct Settings {
    pub(crate) kinds: Vec<Kind>,
    /// The directory for the files, if not the usual one.
    pub(crate) directory: Option<PathBuf>,
    /// Pages of the budget.
    pub(crate) budget_pages: u32,
    /// Dirty pages that are synced while somebody writes.
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

/// Runs all four.
pub(crate) fn run(settings: &Settings) -> Result<Vec<Report>> {
    let directory = scratch::directory(settings.directory.as_deref())?;
    let mut reports = vec![overwrite::run(settings, &directory)?];
    if settings.kinds.contains(&Kind::Pagefold) {
        reports.push(sequential::run(settings, &directory)?);
        reports.push(stall::run(settings, &directory)?);
        reports.push(beside::run(settings, &directory)?);
    }
    Ok(reports)
}
