//! Three scenarios, of opening, reading and closing, of making, writing, syncing and cutting off,
//! and of the same beside another process that changes the file's length. In the first two, call 1
//! to the backend fails, then call 2, and so on until the call that was to fail is never made; each
//! in every way, once and for ever. Interruptions come a hundred times in a row instead, and no
//! call fails for them. In the third, the other process acts at call 1, then at call 2, and so on.
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

/// Whether a schedule has calls fail, and not only interrupted.
fn may_fail(schedule: &Schedule) -> bool {
    !matches!(schedule, Schedule::Once(_, Fault::Interrupted) | Schedule::InARow { .. })
}

/// Faults that have fired in all scenarios.
static FIRED: AtomicU64 = AtomicU64::new(0);

#[test]
fn any_call_of_a_reader_may_fail_in_any_way() {
    sweep(|schedule| scenario(disk(2, FILE_LEN), schedule));
}

#[test]
fn also_where_threads_do_it() {
    sweep_some(|schedule| scenario(ThreadPool::new(disk(2, FILE_LEN), 3).unwrap(), schedule));
}

/// Of requests that io_uring did, the answers are changed.
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

/// Threads that sweep side by side: a run waits more than it works.
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

/// On the simulated disk, with every fault.
fn sweep(scenario: impl Fn(Schedule) -> u64 + Sync) {
    sweep_with(&FAULTS, scenario);
}

/// On other ways to the same code, with one fault of each kind; with all, where
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
    let fired = FIRED.load(Ordering::Relaxed);
    println!("{clean} calls in a clean run, {runs} runs with a fault, {fired} faults until now in all scenarios");
    assert!(runs > 20 * 20);
}

/// Has a few threads do all the jobs. Returns the number of runs in all.
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
