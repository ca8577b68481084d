//! Sweeps over all calls to the backend, in three scenarios:
//!
//! 1. Opening, reading and closing files, while calls fail.
//! 2. Creating, writing, syncing, cutting off and closing a file, while calls fail.
//! 3. Writing and reading a file that another process makes longer or cuts off.
//!
//! In scenarios 1 and 2, call 1 to the backend fails in the first run, call 2 in the second run,
//! and so on, until a run ends before the call that should fail. This is repeated for each kind of
//! fault, both for a single failing call and for all calls from there on. Interruptions are an
//! exception: 100 calls in a row are interrupted, and this must make no call of Pagefold fail.
//!
//! In scenario 3, the other process acts right before call 1 in the first run, before call 2 in the
//! second run, and so on.
#![cfg(not(pagefold_loom))]

mod meddled;
mod reader;
mod steps;
mod stranger;
#[path = "../support/mod.rs"]
mod support;
mod worlds;
mod writer;

use pagefold::io::ThreadPool;
use reader::scenario;
use support::{RealFiles, disk};
use sync::atomic::{AtomicU64, Ordering};
use test_disks::{Fault, Schedule};
use writer::writing_scenario;

const FILE_LEN: u64 = 90 * 4096 + 77;

/// Whether the schedule makes calls fail with errors other than interruptions.
fn may_fail(schedule: &Schedule) -> bool {
    !matches!(schedule, Schedule::Once(_, Fault::Interrupted) | Schedule::InARow { .. })
}

/// The number of faults that have fired, in all scenarios, and that weren't printed yet.
static FIRED: AtomicU64 = AtomicU64::new(0);

/// Prints in how many runs of a sweep faults were injected, and how many faults have fired since
/// the last time. Sweeps run side by side, so of the faults only the sum of what all sweeps print
/// is exact. The table of `cargo xtask prove faults` shows it.
fn print_injected(runs: u64) {
    println!("faults injected: {} in {runs} runs", FIRED.swap(0, Ordering::Relaxed));
}

#[test]
fn any_call_of_a_reader_may_fail_in_any_way() {
    sweep(|schedule| scenario(disk(2, FILE_LEN), schedule));
}

#[test]
fn also_where_threads_do_it() {
    sweep_some(|schedule| scenario(ThreadPool::new(disk(2, FILE_LEN), 3).unwrap(), schedule));
}

/// io_uring performs the requests, and the faults change their answers.
#[test]
fn also_where_io_uring_does_it() {
    let files = RealFiles::new(2, FILE_LEN);
    sweep_some(|schedule| scenario(files.clone(), schedule));
}

#[test]
fn any_call_of_a_writer_may_fail_in_any_way() {
    sweep(|schedule| writing_scenario(disk(0, 0), schedule));
}

#[test]
fn any_call_of_a_writer_may_fail_where_io_uring_does_it() {
    sweep_some(|schedule| writing_scenario(RealFiles::new(0, 0), schedule));
}

#[test]
fn another_process_may_change_the_length_before_any_call() {
    meddled::sweep_all();
}

/// Threads that run sweeps at the same time. There may be more than CPUs, because a run mostly
/// waits.
const SWEEPERS: usize = 4;

/// The first four are of different kinds.
const FAULTS: [Fault; 11] = [
    Fault::Errno(5),
    Fault::Interrupted,
    Fault::Short(100),
    Fault::ShortThenErrno(512, 5),
    Fault::Again,
    Fault::Short(0),
    Fault::Short(4095),
    Fault::Errno(28),
    Fault::Errno(12),
    Fault::Errno(24),
    Fault::Errno(1),
];

/// Sweeps with every fault. For scenarios on the simulated disk.
fn sweep(scenario: impl Fn(Schedule) -> u64 + Sync) {
    sweep_with(&FAULTS, scenario);
}

/// For other paths to the same code: uses one fault of each kind, or all faults if
/// `PAGEFOLD_ALL_FAULTS` is set.
fn sweep_some(scenario: impl Fn(Schedule) -> u64 + Sync) {
    let all = std::env::var_os("PAGEFOLD_ALL_FAULTS").is_some();
    sweep_with(if all { &FAULTS } else { &FAULTS[..4] }, scenario);
}

fn sweep_with(faults: &[Fault], scenario: impl Fn(Schedule) -> u64 + Sync) {
    let clean = scenario(Schedule::Never);
    let schedules = [Schedule::Once as fn(u64, Fault) -> Schedule, Schedule::lasting];
    let kinds: Vec<_> = faults.iter().flat_map(|&fault| schedules.map(|schedule| (schedule, fault))).collect();
    let runs_of = |&(schedule, fault): &(fn(u64, Fault) -> Schedule, Fault)| {
        let mut call = 1;
        while scenario(schedule(call, fault)) >= call {
            call += 1;
        }
        assert!(call <= clean + 100, "retries without end");
        call - 1
    };
    let runs = side_by_side(&kinds, runs_of);
    println!("{clean} calls in a clean run");
    print_injected(runs);
    assert!(runs > 20 * 20);
}

/// Runs all jobs on a few threads. Returns the total number of runs.
fn side_by_side<T: Sync>(jobs: &[T], runs_of: impl Fn(&T) -> u64 + Sync) -> u64 {
    let next = AtomicU64::new(0);
    let sweep_on = || -> u64 {
        let job = || jobs.get(next.fetch_add(1, Ordering::Relaxed) as usize);
        std::iter::from_fn(job).map(&runs_of).sum()
    };
    std::thread::scope(|scope| {
        let sweepers: Vec<_> = (0..SWEEPERS).map(|_| scope.spawn(sweep_on)).collect();
        let runs = |thread: std::thread::ScopedJoinHandle<'_, u64>| {
            thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
        };
        sweepers.into_iter().map(runs).sum()
    })
}
