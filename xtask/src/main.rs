//! `cargo xtask`: every check of the workspace, in a few commands. `cargo bench-virtual` and `cargo
//! bench-real`, which run the benchmarks, are commands of this program, too.
//!
//! Builds with other compiler flags get target directories of their own. So they don't replace each
//! other's files, and can run side by side.

mod bench;
mod check;
mod limited;
mod prove;
mod release;
mod tidy;
mod workspace;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use clap::{Parser, Subcommand};

use crate::check::{Check, cargo, this_program};
use crate::prove::{ProveArgs, kernels::KernelsArgs, planted::PlantedArgs, reach::ReachArgs};
use crate::release::ReleaseArgs;

/// Runs the checks of the workspace, and its benchmarks.
#[derive(Parser)]
#[command(name = "cargo xtask", arg_required_else_help = true)]
struct Cli {
    #[command(subcommand)]
    command: Task,
}

#[derive(Subcommand)]
enum Task {
    /// Formatting, lints, unit and integration tests, examples in the documentation; without those
    /// of `lab/`
    Test {
        /// The gate, as `.ci/run` runs it: these checks as a release build, the documentation, and
        /// `prove --gate`, side by side
        #[arg(long)]
        long: bool,
        /// Only the checks whose names contain this; may be repeated
        #[arg(long, value_name = "TEXT")]
        only: Vec<String>,
    },
    /// Rules of the house that a machine can check; counts the tests that are in quarantine
    Tidy,
    /// Look for broken promises in lanes: loom models, sanitizers, random operations with faults,
    /// power cuts, planted bugs, …
    Prove(ProveArgs),
    /// Apply patches that each break one rule, and see that a check fails with each
    Planted(PlantedArgs),
    /// List which functions, errors, transitions and rare states each lane reaches, and which none
    /// does
    Reach(ReachArgs),
    /// Test the product in guests with other kernels, with one CPU, without /proc, io_uring or AVX;
    /// one guest is killed while it writes. Needs qemu, and fetches the kernels from Debian
    Kernels(KernelsArgs),
    /// What is run before a release: packages, public items, dependencies, the lowest Rust version.
    /// Publishes nothing
    Release(ReleaseArgs),
    /// Experiments on up to 256 virtual CPUs: also `cargo bench-virtual`
    #[command(disable_help_flag = true)]
    BenchVirtual {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
    /// The same experiments on the CPUs of this machine: also `cargo bench-real`
    #[command(disable_help_flag = true)]
    BenchReal {
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

fn main() -> ExitCode {
    let task = Cli::parse().command;
    match task {
        Task::BenchVirtual { arguments } => return bench::on_virtual_cpus(arguments),
        Task::BenchReal { arguments } => return bench::on_real_cpus(arguments),
        Task::Tidy => return tidy::run(&long_checks().iter().map(Check::name).collect::<Vec<_>>()),
        // A check runs each of these, and has chosen the compiler flags for it.
        Task::Planted(args) => return prove::planted::run(&args),
        Task::Reach(args) => return prove::reach::run(&args),
        Task::Kernels(args) => return prove::kernels::run(&args),
        _ => {}
    }
    if env::var_os("RUSTFLAGS").is_some() {
        eprintln!("RUSTFLAGS is set, and would win over the flags of the checks: unset it");
        return ExitCode::from(2);
    }
    if let Err(error) = limited::end_with_this_program() {
        eprintln!("can't listen for Ctrl-C: {error}");
    }
    match task {
        Task::Prove(args) => prove::run(&args),
        Task::Release(args) => release::run(&args),
        Task::Test { long, only } => {
            let mut checks = if long { long_checks() } else { short_checks() };
            let names: Vec<&str> = checks.iter().map(Check::name).collect();
            if let Some(unknown) = only.iter().find(|text| !names.iter().any(|name| name.contains(*text))) {
                eprintln!("no check is named `{unknown}`; there are: {}", names.join(", "));
                return ExitCode::from(2);
            }
            checks.retain(|check| only.is_empty() || only.iter().any(|text| check.name().contains(text)));
            check::conclude(&check::run(checks))
        }
        _ => ExitCode::SUCCESS,
    }
}

/// The workspace without `lab/`.
const PRODUCT: &str = "--workspace --exclude bench --exclude fuzz-targets";

fn short_checks() -> Vec<Check> {
    vec![
        formatting(),
        tidy(),
        cargo("lints", &format!("clippy {PRODUCT} --all-targets -- -D warnings")),
        cargo("tests", &format!("test {PRODUCT}")),
    ]
}

/// The target directory of checks that generate no code. They share nothing with the tests' builds
/// but macros and build scripts, and these compile in less time than the tests would have to wait.
const NO_CODE: &str = "no-code";

/// The gate's checks. Checks that build in the same target directory run one after the other.
fn long_checks() -> Vec<Check> {
    let mut checks = vec![formatting(), tidy(), lints()];
    checks.extend(features());
    checks.push(documentation());
    let mut checks: Vec<Check> = checks.into_iter().map(|check| check.in_directory(NO_CODE)).collect();
    checks.extend(prove::gate_checks());
    checks
}

fn formatting() -> Check {
    cargo("format", "fmt --all --check")
}

fn tidy() -> Check {
    this_program("tidy", "", "tidy")
}

/// Uses the release profile, as the checks of features and documentation do. So macros and build
/// scripts are compiled only once.
fn lints() -> Check {
    cargo("lints", "clippy --release --workspace --all-targets -- -D warnings")
}

/// Builds the library without features, and with each feature alone. Also builds the command line
/// with its default features, as the README's first command does. Uses clippy, with warnings as
/// errors, instead of `check`: this finds code that only one feature uses but that is compiled
/// without it.
fn features() -> Vec<Check> {
    let with = |name, features: &str| {
        let arguments =
            format!("clippy --release -p pagefold --no-default-features --features={features} -- -D warnings");
        cargo(name, &arguments)
    };
    vec![
        with("features: none", ""),
        with("features: uring", "uring"),
        with("features: serde", "serde"),
        with("features: prometheus", "prometheus"),
        with("features: zstd", "zstd"),
        with("features: encrypted-swap", "encrypted-swap"),
        cargo("features: command line", "clippy --release -p pagefold-cli -- -D warnings"),
    ]
}

fn documentation() -> Check {
    cargo("documentation", "doc --release --workspace --no-deps --lib").env("RUSTDOCFLAGS", "-D warnings")
}
