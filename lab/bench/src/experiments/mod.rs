//! The scaling experiments. Each has a folder, or a file if it is small. A folder has files for the
//! schemes, that is, the designs that the experiment compares.
//!
//! To add an experiment, define a constant of type [`Experiment`] in a folder or file of its own,
//! and add the constant to [`ALL`]. The commands, the tables, the plots, `docs/results.md` and the
//! gate are made from the constants.

mod exit;
pub(crate) mod locks;
mod lookup;
mod map_churn;
mod older;
mod page_fault;
mod preemption;
mod range;
mod readtwice;
pub(crate) mod swap;
pub(crate) mod zeros;

use anyhow::Result;
#[cfg(pagefold_manycore)]
use anyhow::ensure;

use crate::scaling::experiment::Experiment;
pub(crate) use crate::scaling::experiment::OURS;
use crate::usage::Usage;

/// All of them.
pub(crate) const ALL: &[&Experiment] = &[
    &lookup::LOOKUP,
    &readtwice::READTWICE,
    &exit::EXIT,
    &range::RANGE,
    &page_fault::PAGE_FAULT,
    &map_churn::MAP_CHURN,
    &swap::SWAP,
    &locks::LOCKS,
    &preemption::PREEMPTION,
];

/// The experiment of that name.
///
/// # Errors
/// There is none.
pub(crate) fn find(name: &str) -> Result<&'static Experiment> {
    ALL.iter().copied().find(|experiment| experiment.name == name).ok_or_else(|| {
        let known: Vec<&str> = ALL.iter().map(|experiment| experiment.name).collect();
        Usage::error(format!("no experiment is called {name:?}: there are {}", known.join(", ")))
    })
}

/// Checks that the names in experiments exist. This is not a unit test, because for a unit test the
/// whole program would have to be compiled once more.
///
/// # Errors
/// A name of nothing.
#[cfg(pagefold_manycore)]
pub(crate) fn check() -> Result<()> {
    for experiment in ALL {
        let exists = |what: &str, name: &str, exists: bool| {
            ensure!(exists, "{}: there is no {what} {name}", experiment.name);
            Ok(())
        };
        let machine = |name| exists("machine", name, manycore::Preset::find(name).is_ok());
        let workload = |name| exists("workload", name, experiment.workloads.iter().any(|it| it.name == name));
        let scheme = |name| exists("scheme", name, experiment.schemes.iter().any(|it| it.name == name));
        // `cargo bench-real calibrate`, and the commands of the frame, aren't experiments.
        let is_taken = ["all", "gate", "results", "calibrate", "help"].contains(&experiment.name);
        ensure!(!is_taken, "{}: another command has the name", experiment.name);
        machine(experiment.machine)?;
        for published in experiment.published {
            machine(published.machine)?;
            workload(published.workload)?;
            published.figures.iter().try_for_each(|figure| scheme(figure.scheme))?;
        }
        for claim in experiment.claims {
            machine(claim.machine)?;
            workload(claim.workload)?;
            scheme(claim.scheme)?;
        }
    }
    Ok(())
}
