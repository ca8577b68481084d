//! `bench real calibrate --judge`: how accurate the model of virtual CPUs is on this machine.
//!
//! Runs the experiment `locks` on two CPUs of this machine, and then on two virtual CPUs with the
//! costs of this machine. Virtual CPUs need another build of this program, so cargo builds and runs
//! it. That build prints both results side by side.

use std::env;
use std::fs;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result, ensure};
use manycore::Description;

use crate::calibrate;
use crate::experiments::locks::LOCKS;
use crate::scaling::args::Common;
use crate::scaling::real_run::{self, Place};
use crate::scaling::records;
use crate::usage::Usage;

/// The CPUs to measure on.
///
/// # Errors
/// A machine that doesn't have them.
pub(super) fn cores() -> Result<[usize; 2]> {
    calibrate::two_cores().ok_or_else(|| Usage::error("--judge needs two cores in one socket"))
}

/// Measures on two cores of this machine, whose costs are in `machine`. Then runs the build for
/// virtual CPUs, which measures and compares.
///
/// # Errors
/// A failed run or build.
pub(super) fn run(machine: &Description, cores: [usize; 2], quick: bool) -> Result<()> {
    let transfer = machine.table()?.transfer_socket;
    let common = Common { cpus: vec![1, 2], quick, ..Common::default() };
    calibrate::stay_on(&cores)?;
    let results = real_run::results(&LOCKS, &common, None, Place { transfer: Some(transfer) })?;
    calibrate::unpin()?;
    let directory = tempfile::tempdir().context("no temporary directory")?;
    let [described, measured] = ["machine.json", "real.json"].map(|name| directory.path().join(name));
    fs::write(&described, serde_json::to_string(machine)?).context("cannot write the machine")?;
    fs::write(&measured, serde_json::to_string(&records::of(&results))?).context("cannot write the results")?;
    let mut command = Command::new(env::var_os("CARGO").unwrap_or_else(|| "cargo".into()));
    let manifest = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../Cargo.toml");
    command.args(["run", "--quiet", "--package", "xtask", "--manifest-path"]).arg(manifest);
    command.args(["--", "bench-virtual", LOCKS.name, "--cpus", "1,2", "--machine"]).arg(&described);
    command.arg("--beside").arg(&measured).args(quick.then_some("--quick"));
    let status = command.status().context("cannot run cargo, which builds the program for virtual CPUs")?;
    ensure!(status.success(), "the program for virtual CPUs failed");
    Ok(())
}
