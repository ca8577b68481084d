//! The lanes.

use std::ops::Range;
use std::time::Duration;

use super::{Lane, More, kernels, planted, reach};
use crate::check::{Check, address_sanitizer, cargo, cargo_with, loom, tests, thread_sanitizer, virtual_cpus};
use crate::workspace;

/// All lanes. Checks that build in the same target directory run one after the other. Checks of
/// different directories run side by side. The build of all tests, in the usual directory, takes
/// longest. Meanwhile the checks of loom and of virtual CPUs run, and then those of the two
/// sanitizers. Checks that only run tests of this build wait for it, and then run side by side.
pub(crate) static ALL: [Lane; 18] = [
    TESTS, LOOM, PLANTED, MODEL, SWAP, FAULTS, POWER, KILL, FUZZ, STRANGERS, ORDERS, NEIGHBOURS, SANITIZERS, REACH,
    TIMES, BENCHES, CROWDS, KERNELS,
];

/// Time limits: one for a check that runs only at night, and one for all planted bugs together. All
/// planted bugs take half an hour on a quiet machine.
const A_NIGHT: Duration = Duration::from_hours(8);
const FOR_ALL_PLANTED: Duration = Duration::from_hours(4);

const TESTS: Lane = Lane {
    name: "tests",
    about: "unit, integration and documentation tests, but for those that other lanes run with more seeds",
    gate: || {
        let skipped: String = SEEDED_IN_THE_GATE.map(|test| format!(" --skip {test}")).concat();
        // Tests that pass print what they did without.
        let all = tests("tests", &format!("--no-fail-fast -- --show-output{skipped}"));
        // Of the order in which a thread takes locks, among other things.
        vec![all, cargo("tests: debug assertions", "test -p span-lock -p smp-list -p pagefold-sync --lib --tests")]
    },
    by_hand: Vec::new,
    more: None,
};

const LOOM: Lane = Lane {
    name: "loom",
    about: "every interleaving of each protocol, up to a bound of preemptions",
    gate: loom_models,
    by_hand: Vec::new,
    more: Some(More {
        unit: "times with one preemption more",
        gate: 0,
        night: 1,
        step: 1,
        hours_min: 8.0,
        checks: |_| {
            let deeper = |check: Check| check.env("PAGEFOLD_MORE_PREEMPTIONS", "1").may_take(A_NIGHT);
            loom_models().into_iter().map(deeper).collect()
        },
    }),
};

/// In all of these checks, dependencies have the same features: those that `frames` or the product
/// needs. So each dependency is built only once.
fn loom_models() -> Vec<Check> {
    let beside_frames = |name, tests: &str| loom(name, &format!("-p pagefold-frames {tests}"));
    vec![
        beside_frames("loom models: frames", "--lib --tests"),
        loom("loom models: io", "-p pagefold-io --no-default-features --lib --test loom_thread_pool"),
        beside_frames("loom models: sync", "-p pagefold-sync --lib models"),
        loom("loom models: swap", "-p pagefold-swap --lib --test loom_areas"),
        beside_frames("loom models: span-lock", "-p span-lock --test loom_lock"),
        beside_frames("loom models: smp-list", "-p smp-list --test loom_lock --test loom_pairs"),
    ]
}

/// All checks on virtual CPUs name these packages, whichever tests they run. The checks with a
/// sanitizer have such a list, too. Cargo builds a dependency with the features that all named
/// packages need together. So with another list of packages, cargo would build the dependency
/// again.
const ON_VIRTUAL_CPUS: &str = "-p bench -p pagefold -p pagefold-swap -p smp-list -p span-lock";
const UNDER_THREAD_SANITIZER: &str =
    "-p pagefold -p pagefold-frames -p pagefold-io -p pagefold-swap -p smp-list -p span-lock";
const UNDER_ADDRESS_SANITIZER: &str = "-p pagefold -p pagefold-frames";

fn on_virtual_cpus(name: &'static str, tests: &str) -> Check {
    virtual_cpus(name, &format!("{ON_VIRTUAL_CPUS} {tests}"))
}

const ORDERS: Lane = Lane {
    name: "orders",
    about: "virtual CPUs in random orders, more threads than CPUs; no hit waits or writes on 88 of them",
    gate: || {
        vec![
            on_virtual_cpus("random orders: lists", "--test random_order"),
            on_virtual_cpus("88 virtual CPUs: gates", "--test virtual_cpus -- --skip a_quiet_tenant"),
            on_virtual_cpus("88 virtual CPUs: swap slots", "--test many_cpus"),
            on_virtual_cpus("random orders: bench", "--bin bench"),
        ]
    },
    by_hand: Vec::new,
    more: Some(More {
        unit: "seeds",
        gate: 300,
        night: 50_000,
        step: 2_000,
        hours_min: 0.0,
        // Only those of `pagefold` have seeds; those of swap slots and of `span-lock` never change.
        checks: |seeds| vec![of_seeds(on_virtual_cpus("random orders", "--test random_orders"), seeds)],
    }),
};

const MODEL: Lane = Lane {
    name: "model",
    about: "random operations on files and groups against a plain model, with faults",
    gate: Vec::new,
    by_hand: Vec::new,
    more: Some(More {
        unit: "seeds",
        gate: 1_000,
        night: 300_000,
        step: 20_000,
        hours_min: 0.0,
        checks: |seeds| {
            let mut checks = vec![seeded("model", "--test model -- --nocapture", seeds.clone())];
            // Not in the gate: timeouts decide how a run goes. Nor as often: a run mostly waits.
            if seeds.start > 0 {
                let silent = "--test model -- --nocapture --ignored beside_a_silent_device";
                checks.push(seeded("model: silent devices", silent, seeds.start / 8..seeds.end / 8));
            }
            checks
        },
    }),
};

const FAULTS: Lane = Lane {
    name: "faults",
    about: "call 1, 2, 3 … to a backend or for memory fails, in every way, once and for ever",
    // The lane `tests` runs them, too, some of them with fewer kinds of faults.
    gate: Vec::new,
    by_hand: || {
        // They print how many faults they injected.
        vec![
            tests("faults: calls for memory", "--test memory_faults -- --nocapture"),
            tests("faults: calls to backends", "--test fault_sweep -- --nocapture").env("PAGEFOLD_ALL_FAULTS", "1"),
            tests("faults: calls of swap", "--test swap faults -- --nocapture"),
        ]
    },
    more: None,
};

const NEIGHBOURS: Lane = Lane {
    name: "neighbours",
    about: "a quiet tenant beside every kind of hog: on virtual CPUs, and by hand on real ones",
    gate: || vec![on_virtual_cpus("neighbours: virtual CPUs", "--test virtual_cpus a_quiet_tenant")],
    by_hand: || vec![cargo("neighbours: real CPUs", "run --release -p bench -- real neighbours --rounds 5 --check")],
    more: None,
};

const FUZZ: Lane = Lane {
    name: "fuzz",
    about: "any bytes for ranges, sizes, arguments of calls, swap headers, traces and iologs",
    // The lane `tests` runs the corpora, and 100 inputs of each target.
    gate: Vec::new,
    by_hand: Vec::new,
    more: Some(More {
        unit: "inputs of each target",
        gate: 0,
        night: 500_000,
        step: 10_000,
        hours_min: 0.0,
        checks: |seeds| {
            let guided = if seeds.start > 0 && has_cargo_fuzz() { guided() } else { Vec::new() };
            let random = "--test corpora random";
            guided.into_iter().chain([seeded("fuzz: random bytes", random, seeds)]).collect()
        },
    }),
};

/// Returns what the machine lacks for the fresh seeds of a lane, as tests print it.
pub(super) fn lacking(lane: &Lane) -> Option<String> {
    let lacks_it = lane.name == FUZZ.name && !has_cargo_fuzz();
    lacks_it.then(|| "not here: cargo-fuzz".to_owned())
}

fn has_cargo_fuzz() -> bool {
    workspace::cargo().args(["fuzz", "--version"]).output().is_ok_and(|output| output.status.success())
}

/// Returns fuzzing checks, which choose inputs by the code that they reach. Each target runs for a
/// minute.
fn guided() -> Vec<Check> {
    let run = |name, target: &str| {
        let arguments = format!("fuzz run -s none --fuzz-dir fuzz {target} -- -max_total_time=60 -timeout=60");
        // The compiler's coverage is behind a flag.
        cargo_with(name, "", "fuzz", &arguments).env("RUSTC_BOOTSTRAP", "1")
    };
    vec![
        run("cargo fuzz: calls of files", "calls_of_files"),
        run("cargo fuzz: calls of spaces", "calls_of_spaces"),
        run("cargo fuzz: swap headers", "swap_headers"),
        run("cargo fuzz: traces", "traces"),
        run("cargo fuzz: iologs", "iologs"),
    ]
}

const STRANGERS: Lane = Lane {
    name: "strangers",
    about: "other processes change, cut, replace and lock the files; fork, seccomp, limits, other file systems",
    gate: || vec![tests("strangers: surroundings", "--test strangers -- --nocapture --skip meddlers").built()],
    by_hand: || vec![tests("strangers: valgrind, gdb", "--test cli -- --ignored it_runs_under")],
    more: Some(More {
        unit: "rounds",
        gate: 100,
        night: 100_000,
        step: 5_000,
        hours_min: 0.0,
        checks: |seeds| vec![seeded("strangers: meddlers", "--test strangers meddlers", seeds)],
    }),
};

const REACH: Lane = Lane {
    name: "reach",
    about: "what no lane reaches of public functions, errors, transitions and rare states",
    gate: Vec::new,
    by_hand: || vec![reach::check()],
    more: None,
};

const KERNELS: Lane = Lane {
    name: "kernels",
    about: "guests with kernels from 5.10 to the newest, one CPU, no /proc, io_uring or AVX; one killed as it writes",
    gate: Vec::new,
    by_hand: || vec![kernels::check()],
    more: None,
};

const SWAP: Lane = Lane {
    name: "swap",
    about: "random operations on memory in swap, on spaces, and on slots, against plain models, with faults",
    gate: Vec::new,
    by_hand: Vec::new,
    more: Some(More {
        unit: "seeds",
        gate: 1_000,
        night: 200_000,
        step: 10_000,
        hours_min: 0.0,
        checks: |seeds| {
            let mut checks = vec![
                seeded("model: swap", "--test swap seeds", seeds.clone()),
                seeded("model: slots", "--lib random_steps", seeds.clone()),
            ];
            // Not in the gate: the order of real threads decides how a run goes.
            if seeds.start > 0 {
                let spaces = "--test space -- --nocapture --ignored pages_stay_what_was_written";
                checks.push(seeded("model: spaces", spaces, seeds.start / 4..seeds.end / 4));
            }
            checks
        },
    }),
};

const POWER: Lane = Lane {
    name: "power",
    about: "the power is cut at a random call; what was synced is there",
    gate: Vec::new,
    by_hand: Vec::new,
    more: Some(More {
        unit: "cuts",
        gate: 1_000,
        night: 100_000,
        step: 10_000,
        hours_min: 0.0,
        checks: |seeds| vec![seeded("power cuts", "--test power_cut", seeds)],
    }),
};

const KILL: Lane = Lane {
    name: "kill",
    about: "a writing process is killed; what was synced is in the file",
    gate: Vec::new,
    by_hand: Vec::new,
    more: Some(More {
        unit: "kills",
        gate: 20,
        night: 5_000,
        step: 250,
        hours_min: 0.0,
        checks: |seeds| vec![seeded("kills", "--test kill", seeds)],
    }),
};

fn with_thread_sanitizer(name: &'static str, tests: &str) -> Check {
    thread_sanitizer(name, &format!("test {UNDER_THREAD_SANITIZER} {tests}"))
}

fn with_address_sanitizer(name: &'static str, tests: &str) -> Check {
    address_sanitizer(name, &format!("test {UNDER_ADDRESS_SANITIZER} {tests}"))
}

const SANITIZERS: Lane = Lane {
    name: "sanitizers",
    about: "ThreadSanitizer and AddressSanitizer, each with a known error that it must see",
    gate: || {
        vec![
            with_thread_sanitizer("ThreadSanitizer: stress", "--test stress"),
            // With the features that `pagefold` wants of these packages, so that the next check
            // uses the same builds.
            address_sanitizer(
                "AddressSanitizer: io",
                "test -p pagefold-io -p pagefold-test-disks -p pagefold-sync --no-default-features \
                 --features pagefold-io/uring,pagefold-sync/refusals --lib --test requests",
            ),
            with_address_sanitizer("AddressSanitizer: pagefold", "--test deep --test read_queue"),
            with_thread_sanitizer("ThreadSanitizer: io", "--test requests"),
            // Without optional features, because `swap` has tests of a build that can't encrypt.
            // The tests that are skipped have only one thread.
            with_thread_sanitizer(
                "ThreadSanitizer: pagefold",
                "--test files --test writes --test space --test deep --test read_queue --test swap \
                 -- --skip whichever_call_fails --skip along::",
            ),
            with_thread_sanitizer("ThreadSanitizer: the known race, built", "--test known_race --no-run"),
            with_thread_sanitizer("ThreadSanitizer sees the known race", "--test known_race -- --ignored").must_fail(),
            with_address_sanitizer("AddressSanitizer: the known error, built", "--test known_use_after_free --no-run"),
            with_address_sanitizer("AddressSanitizer sees the known error", "--test known_use_after_free -- --ignored")
                .must_fail(),
        ]
    },
    by_hand: Vec::new,
    more: None,
};

/// Tests that `cargo test` ignores, because their result depends on more than the code: `timed_…`,
/// `chance_…`.
const TIMES: Lane = Lane {
    name: "times",
    about: "tests that look at the clock, or wait for what happens by chance",
    gate: Vec::new,
    by_hand: || {
        vec![
            cargo("timed tests", "test --release --workspace --no-fail-fast -- --ignored timed_ --test-threads 1"),
            cargo("tests of chance", "test --release --workspace --no-fail-fast -- --ignored chance_"),
        ]
    },
    more: None,
};

const BENCHES: Lane = Lane {
    name: "benches",
    about: "every benchmark in small",
    gate: Vec::new,
    by_hand: || vec![cargo("benchmarks in small", "run --release -p bench -- peers all --quick")],
    more: None,
};

const CROWDS: Lane = Lane {
    name: "crowds",
    about: "a hundred thousand files, and as many other objects, in a budget that they fill",
    gate: Vec::new,
    by_hand: || vec![cargo("crowds", "run --release -p bench -- real crowds --rounds 1 --check-memory")],
    more: None,
};

const PLANTED: Lane = Lane {
    name: "planted",
    about: "patches that each break one rule; a check has to fail with each of them",
    gate: || vec![planted::check(&planted::IN_THE_GATE)],
    by_hand: Vec::new,
    more: Some(More {
        unit: "times all",
        gate: 0,
        night: 1,
        step: 1,
        hours_min: 2.0,
        checks: |_| vec![planted::check(&[]).may_take(FOR_ALL_PLANTED)],
    }),
};

/// Tests that take long, and that lanes of the gate run over more seeds than the tests use by
/// default.
const SEEDED_IN_THE_GATE: [&str; 3] = [
    "random_operations_agree_with_the_model",
    "threads_agree_with_a_plain_model_in_an_eighth_of_the_memory",
    "what_sync_promised_survives_a_power_cut",
];

/// A check by some of the workspace's tests, over a range of seeds. In the gate, they have been
/// built by the check that runs all tests.
fn seeded(name: &'static str, which: &str, seeds: Range<u64>) -> Check {
    of_seeds(tests(name, which), seeds).built()
}

fn of_seeds(check: Check, seeds: Range<u64>) -> Check {
    check.env("PAGEFOLD_SEEDS", &format!("{}..{}", seeds.start, seeds.end))
}
