//! `cargo xtask test [--long]`: every check of the workspace, in one command. Behind `cargo bench-virtual` and `cargo
//! bench-real`, the benchmarks.
//!
//! Builds that need other flags get target directories of their own, so that they don't throw each other's out, and run
//! side by side.

mod bench;
mod check;
mod workspace;

use std::env;
use std::ffi::OsString;
use std::process::ExitCode;

use crate::check::{Check, address_sanitizer, cargo, cargo_with, loom, thread_sanitizer};

const HELP: &str = "Runs the checks of the workspace, and its benchmarks.

Usage: cargo xtask test [--long]
       cargo bench-virtual [NAME …]
       cargo bench-real [NAME …]

  test          formatting, lints, unit and integration tests, examples in the documentation
  test --long   these, and: loom models, hits on 88 virtual CPUs, ThreadSanitizer, thousands of seeds, the
                benchmarks in small
  bench-virtual   experiments on up to 256 virtual CPUs
  bench-real      the same on the CPUs that there are";

fn main() -> ExitCode {
    let mut arguments: Vec<OsString> = env::args_os().skip(1).collect();
    let words: Vec<&str> = arguments.iter().filter_map(|argument| argument.to_str()).collect();
    let long = match words[..] {
        ["bench-virtual", ..] => return bench::on_virtual_cpus(arguments.split_off(1)),
        ["bench-real", ..] => return bench::on_real_cpus(arguments.split_off(1)),
        ["test"] => false,
        ["test", "--long"] => true,
        ["--help" | "-h" | "help"] | [] => {
            println!("{HELP}");
            return ExitCode::SUCCESS;
        }
        _ => {
            eprintln!("{HELP}");
            return ExitCode::from(2);
        }
    };
    if env::var_os("RUSTFLAGS").is_some() {
        eprintln!("RUSTFLAGS is set, and would win over the flags of the checks: unset it");
        return ExitCode::from(2);
    }
    let mut checks = short_checks();
    if long {
        checks.extend(long_checks());
    }
    check::run(checks)
}

fn short_checks() -> Vec<Check> {
    vec![
        cargo("format", "fmt --all --check"),
        cargo("lints", "clippy --workspace --all-targets -- -D warnings"),
        cargo("tests", "test --workspace"),
    ]
}

fn long_checks() -> Vec<Check> {
    vec![
        cargo("documentation", "doc --workspace --no-deps --lib").env("RUSTDOCFLAGS", "-D warnings"),
        loom("loom models: frames", "test --release -p pagefold-frames --lib --tests"),
        loom("loom models: io", "test --release -p pagefold-io --lib --test loom_thread_pool"),
        loom("loom models: swap", "test --release -p pagefold-swap --lib --test loom_areas"),
        loom("loom models: range-lock", "test --release -p range-lock --test loom_lock"),
        loom("loom models: smp-list", "test --release -p smp-list --tests"),
        cargo_with(
            "random orders: smp-list",
            "--cfg pagefold_manycore",
            "virtual",
            "test --release -p smp-list --test random_order",
        ),
        cargo_with(
            "88 virtual CPUs: hits wait for nobody, the same figures each time, a report",
            "--cfg pagefold_manycore",
            "virtual",
            "test --release -p bench --test virtual_cpus",
        ),
        cargo_with(
            "virtual CPUs in random order: swap slots",
            "--cfg pagefold_manycore",
            "virtual",
            "test --release -p pagefold-swap --test random_orders",
        ),
        thread_sanitizer("ThreadSanitizer: swap", "test -p pagefold-swap --test stress"),
        thread_sanitizer("ThreadSanitizer: smp-list", "test -p smp-list --test stress"),
        address_sanitizer("AddressSanitizer: io", "test -p pagefold-io --lib --test requests"),
        address_sanitizer("AddressSanitizer: pagefold", "test -p pagefold --test deep --test read_queue"),
        thread_sanitizer("ThreadSanitizer: io", "test -p pagefold-io --test requests"),
        cargo_with(
            "range-lock in random orders",
            "--cfg pagefold_manycore",
            "virtual",
            "test --release -p range-lock --test random_orders",
        ),
        thread_sanitizer("ThreadSanitizer: range-lock", "test -p range-lock --test stress"),
        thread_sanitizer("ThreadSanitizer: frames", "test -p pagefold-frames --test stress"),
        thread_sanitizer(
            "ThreadSanitizer: pagefold",
            "test -p pagefold --test stress --test files --test writes --test space --test deep --test read_queue --test swap",
        ),
        thread_sanitizer(
            "ThreadSanitizer: the known race, built",
            "test -p pagefold-frames --test known_race --no-run",
        ),
        thread_sanitizer(
            "ThreadSanitizer sees the known race",
            "test -p pagefold-frames --test known_race -- --ignored",
        )
        .must_fail(),
        cargo("model test, 3,000 seeds", "test --release -p pagefold --test model -- --nocapture")
            .env("PAGEFOLD_SEEDS", "3000"),
        cargo("swap slots, 5,000 seeds", "test --release -p pagefold-swap --lib random_steps")
            .env("PAGEFOLD_SEEDS", "5000"),
        cargo("memory in swap beside a plain model, 2,000 seeds", "test --release -p pagefold --test swap seeds")
            .env("PAGEFOLD_SEEDS", "2000"),
        cargo("benchmarks in small", "run --release -p bench -- peers all --quick"),
    ]
}
