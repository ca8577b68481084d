//! `cargo bench-virtual …` and `cargo bench-real …`: the two builds of the benchmarks.

use std::env;
use std::ffi::OsString;
use std::io::{self, IsTerminal};
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

use crate::workspace::{cargo, manifest, target_directory};

/// The condition that puts virtual CPUs behind `sync`.
const VIRTUAL: &str = "--cfg pagefold_manycore";

/// Builds and runs the benchmarks on virtual CPUs. The user's own compiler flags stay.
pub(crate) fn on_virtual_cpus(arguments: Vec<OsString>) -> ExitCode {
    if let Err(code) = refuse_other_backends() {
        return code;
    }
    let flags = env::var("RUSTFLAGS").unwrap_or_default();
    let mut command = bench("virtual", arguments);
    command.env("RUSTFLAGS", format!("{flags} {VIRTUAL}").trim_start());
    command.env("CARGO_TARGET_DIR", target_directory("virtual"));
    run(command)
}

/// Builds and runs the benchmarks on the CPUs that there are.
pub(crate) fn on_real_cpus(arguments: Vec<OsString>) -> ExitCode {
    match refuse_other_backends() {
        Ok(()) => run(bench("real", arguments)),
        Err(code) => code,
    }
}

/// Refuses environment variables that would override the compiler flags of these commands:
/// `CARGO_ENCODED_RUSTFLAGS`, which cargo silently prefers to `RUSTFLAGS`, and `RUSTFLAGS` if it
/// already chooses a backend.
fn refuse_other_backends() -> Result<(), ExitCode> {
    let chooses = |name: &str| env::var(name).is_ok_and(|flags| flags.contains("pagefold_"));
    if env::var_os("CARGO_ENCODED_RUSTFLAGS").is_some() {
        eprintln!("CARGO_ENCODED_RUSTFLAGS is set, and would win over the flags of this command: use RUSTFLAGS");
        return Err(ExitCode::from(2));
    }
    if chooses("RUSTFLAGS") {
        eprintln!("RUSTFLAGS already says what the program runs on: this command chooses that itself, so unset it");
        return Err(ExitCode::from(2));
    }
    Ok(())
}

/// The command runs in the caller's directory, so that relative paths in its arguments work.
fn bench(kind: &str, arguments: Vec<OsString>) -> Command {
    let mut command = cargo();
    command.args(["run", "--release", "--package", "bench", "--manifest-path"]).arg(manifest());
    // The first build takes a while: a user at a terminal sees it happen.
    if !io::stderr().is_terminal() {
        command.arg("--quiet");
    }
    command.args(["--", kind]).args(arguments);
    command
}

/// Replaces this process by the command: its exit code is ours, and Ctrl-C has one program to end.
fn run(mut command: Command) -> ExitCode {
    let error = command.exec();
    eprintln!("can't run {:?}: {error}", command.get_program());
    ExitCode::FAILURE
}
