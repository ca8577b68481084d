//! `cargo xtask test [--long]`: every check of the workspace, in one command. Behind `cargo bench-virtual` and `cargo
//! bench-real`, the benchmarks.
//!
//! Builds that need other flags get target directories of their own, so that they don't throw each other's out.

mod bench;
mod workspace;

use std::env;
use std::ffi::OsString;
use std::process::{Command, ExitCode};
use std::time::Instant;

use crate::workspace::{root, target_directory};

const HELP: &str = "Runs the checks of the workspace, and its benchmarks.

Usage: cargo xtask test [--long]
       cargo bench-virtual [NAME …]
       cargo bench-real [NAME …]

  test          formatting, lints, unit and integration tests, examples in the documentation
  test --long   these, and: loom models, hits on 88 virtual CPUs, ThreadSanitizer, thousands of seeds, the
                benchmarks in small
  bench-virtual   experiments on up to 256 virtual CPUs
  bench-real      the same on the CPUs that there are";

/// One check: a name, and the command that makes it.
struct Check {
    name: &'static str,
    command: Command,
    /// The check passes if the command fails.
    must_fail: bool,
}

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
    run(checks)
}

fn run(checks: Vec<Check>) -> ExitCode {
    let mut failed = Vec::new();
    let count = checks.len();
    for mut check in checks {
        println!("== {}", check.name);
        let start = Instant::now();
        let passed = match check.command.status() {
            Ok(status) => status.success() != check.must_fail,
            Err(error) => {
                eprintln!("can't run {:?}: {error}", check.command.get_program());
                false
            }
        };
        println!(
            "== {}: {} in {:.0} s",
            check.name,
            if passed { "ok" } else { "FAILED" },
            start.elapsed().as_secs_f64()
        );
        if !passed {
            failed.push(check.name);
        }
    }
    println!("{} passed, {} failed", count - failed.len(), failed.len());
    if failed.is_empty() {
        return ExitCode::SUCCESS;
    }
    eprintln!("failed: {}", failed.join(", "));
    ExitCode::FAILURE
}

fn cargo(name: &'static str, arguments: &str) -> Check {
    let mut command = workspace::cargo();
    command.args(arguments.split_whitespace()).current_dir(root());
    Check { name, command, must_fail: false }
}

/// As [`cargo`], with compiler flags and a target directory for them.
fn cargo_with(name: &'static str, flags: &str, directory: &str, arguments: &str) -> Check {
    let mut check = cargo(name, arguments);
    check.command.env("RUSTFLAGS", flags).env("CARGO_TARGET_DIR", target_directory(directory));
    check
}

fn short_checks() -> Vec<Check> {
    vec![
        cargo("format", "fmt --all --check"),
        cargo("lints", "clippy --workspace --all-targets -- -D warnings"),
        cargo("tests", "test --workspace"),
    ]
}

fn long_checks() -> Vec<Check> {
    let mut model = cargo("model test, 3,000 seeds", "test --release -p pagefold --test model -- --nocapture");
    model.command.env("PAGEFOLD_SEEDS", "3000");
    let mut swap_slots = cargo("swap slots, 5,000 seeds", "test --release -p pagefold-swap --lib random_steps");
    swap_slots.command.env("PAGEFOLD_SEEDS", "5000");
    let mut swap =
        cargo("memory in swap beside a plain model, 2,000 seeds", "test --release -p pagefold --test swap seeds");
    swap.command.env("PAGEFOLD_SEEDS", "2000");
    let mut docs = cargo("documentation", "doc --workspace --no-deps --lib");
    docs.command.env("RUSTDOCFLAGS", "-D warnings");
    vec![
        docs,
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
        Check {
            must_fail: true,
            ..thread_sanitizer(
                "ThreadSanitizer sees the known race",
                "test -p pagefold-frames --test known_race -- --ignored",
            )
        },
        model,
        swap_slots,
        swap,
        cargo("benchmarks in small", "run --release -p bench -- peers all --quick"),
    ]
}

fn loom(name: &'static str, arguments: &str) -> Check {
    cargo_with(name, "--cfg pagefold_loom", "loom", arguments)
}

/// Sees memory that is used after it was freed: by a device too, if it is the kernel that copies, or somebody reads it later.
fn address_sanitizer(name: &'static str, arguments: &str) -> Check {
    let target = concat!("--target ", "x86_64-unknown-linux-gnu");
    let mut check = cargo_with(name, "-Zsanitizer=address", "asan", &format!("{arguments} {target}"));
    check.command.env("RUSTC_BOOTSTRAP", "1");
    check
}

fn thread_sanitizer(name: &'static str, arguments: &str) -> Check {
    // The sanitizer is in the stable compiler, behind a flag; naming the target keeps it out of build scripts.
    let flags = "-Zsanitizer=thread -Cunsafe-allow-abi-mismatch=sanitizer --cfg pagefold_tsan";
    let target = concat!("--target ", "x86_64-unknown-linux-gnu");
    let (test, rest) = arguments.split_once(" -- ").unwrap_or((arguments, ""));
    let mut check = cargo_with(name, flags, "tsan", &format!("{test} {target} -- {rest}"));
    let suppressions = root().join("crates/frames/tests/tsan.supp");
    let options = format!("halt_on_error=1 suppressions={}", suppressions.display());
    check.command.env("RUSTC_BOOTSTRAP", "1").env("TSAN_OPTIONS", options);
    check
}
