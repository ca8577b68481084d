//! `bench virtual` and `bench real`: experiments, and what is made of all of them together.

#[cfg(pagefold_manycore)]
mod gate;
#[cfg(not(pagefold_manycore))]
mod judge;
mod of_experiments;
#[cfg(not(pagefold_manycore))]
mod real;
#[cfg(pagefold_manycore)]
mod results_page;
#[cfg(pagefold_manycore)]
mod side_by_side;
#[cfg(pagefold_manycore)]
mod virtual_cpus;

use std::ffi::OsString;

use anyhow::Result;
use clap::{ArgMatches, Command};

use crate::usage::Usage;

/// The command for virtual CPUs. In a build for real CPUs, it says that another build is needed.
pub(crate) fn virtual_command() -> Command {
    #[cfg(pagefold_manycore)]
    return virtual_cpus::command();
    #[cfg(not(pagefold_manycore))]
    other_build("virtual", "Run experiments on virtual CPUs: cargo bench-virtual")
}

/// The command for real CPUs. In a build for virtual CPUs, it says that another build is needed.
pub(crate) fn real_command() -> Command {
    #[cfg(not(pagefold_manycore))]
    return real::command();
    #[cfg(pagefold_manycore)]
    other_build("real", "Run the same experiments on real CPUs: cargo bench-real")
}

/// `bench virtual`.
pub(crate) fn run_virtual(matches: &ArgMatches) -> Result<()> {
    #[cfg(pagefold_manycore)]
    return virtual_cpus::run(matches);
    #[cfg(not(pagefold_manycore))]
    refuse(matches, "this program was built for real CPUs: `cargo bench-virtual …` builds and runs the other one")
}

/// `bench real`.
pub(crate) fn run_real(matches: &ArgMatches) -> Result<()> {
    #[cfg(not(pagefold_manycore))]
    return real::run(matches);
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
