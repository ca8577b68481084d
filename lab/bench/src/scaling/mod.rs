//! The frame of all scaling experiments: it runs the same code of a scheme on virtual CPUs and on
//! real ones.
//!
//! An [`experiment`] names workloads and schemes. A scheme measures a [`job`]: it passes three
//! closures (set up, begin a task, one operation) to the [`stage`] of the build, which runs them. A
//! [`sweep`] makes all runs of a [`plan`]. Its [`results`] become a [`table`], [`records`],
//! [`curves`] and [`verdict`]s that compare them with the published figures.

pub(crate) mod args;
#[cfg(pagefold_manycore)]
mod beside;
#[cfg(pagefold_manycore)]
mod cost_scaling;
mod curves;
pub(crate) mod experiment;
#[cfg(pagefold_manycore)]
mod gate;
pub(crate) mod job;
mod lists;
#[cfg(pagefold_manycore)]
mod machine_choice;
#[cfg(pagefold_manycore)]
mod page;
mod plan;
#[cfg(pagefold_manycore)]
mod profile;
mod records;
mod results;
#[cfg(pagefold_manycore)]
mod results_page;
#[cfg(pagefold_manycore)]
mod side_by_side;
mod sweep;
mod table;
mod verdict;

#[cfg(not(pagefold_manycore))]
#[path = "real_stage.rs"]
pub(crate) mod stage;
#[cfg(pagefold_manycore)]
#[path = "virtual_stage.rs"]
pub(crate) mod stage;

#[cfg(not(pagefold_manycore))]
mod judge;
#[cfg(not(pagefold_manycore))]
mod real_processes;
#[cfg(not(pagefold_manycore))]
mod real_run;
#[cfg(pagefold_manycore)]
mod virtual_run;

use std::ffi::OsString;

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::usage::Usage;

/// The command for virtual CPUs. In a build for real CPUs, it says that another build is needed.
pub(crate) fn virtual_command() -> Command {
    #[cfg(pagefold_manycore)]
    return virtual_run::command();
    #[cfg(not(pagefold_manycore))]
    other_build("virtual", "Run experiments on virtual CPUs: cargo bench-virtual")
}

/// The command for real CPUs. In a build for virtual CPUs, it says that another build is needed.
pub(crate) fn real_command() -> Command {
    #[cfg(not(pagefold_manycore))]
    return real_run::command();
    #[cfg(pagefold_manycore)]
    other_build("real", "Run the same experiments on real CPUs: cargo bench-real")
}

/// `bench virtual`.
pub(crate) fn run_virtual(matches: &ArgMatches) -> Result<()> {
    #[cfg(pagefold_manycore)]
    return virtual_run::run(matches);
    #[cfg(not(pagefold_manycore))]
    refuse(matches, "this program was built for real CPUs: `cargo bench-virtual …` builds and runs the other one")
}

/// `bench real`.
pub(crate) fn run_real(matches: &ArgMatches) -> Result<()> {
    #[cfg(not(pagefold_manycore))]
    return real_run::run(matches);
    #[cfg(pagefold_manycore)]
    refuse(matches, "this program was built for virtual CPUs: `cargo bench-real …` builds and runs the other one")
}

fn refuse(_: &ArgMatches, why: &str) -> Result<()> {
    Err(Usage::error(why))
}

/// Takes anything, because it is refused anyway.
fn other_build(name: &'static str, about: &'static str) -> Command {
    let command = Command::new(name).about(about).disable_help_flag(true).disable_help_subcommand(true);
    command.allow_external_subcommands(true).external_subcommand_value_parser(clap::value_parser!(OsString))
}
