//! A thread that repeatedly tries to lock a range, and fails, must not delay other threads.
//!
//! Run with `RUSTFLAGS="--cfg pagefold_manycore"`.
#![cfg(pagefold_manycore)]

use manycore::{Costs, Machine, Report, Shape};
use span_lock::{LockRange, RangeLock};
use sync::atomic::{AtomicBool, Ordering, spin_hint};
use sync::thread;
use sync::time::Duration;

fn range(start: u64, len: u64) -> LockRange {
    LockRange::at(start, len).unwrap()
}

/// One task locks `theirs` and holds it for 200 µs. Meanwhile three tasks repeatedly call `tries`,
/// which must fail to lock a part of it.
fn tried(theirs: LockRange, tries: impl Fn(&RangeLock) -> bool + Sync) -> Report {
    let lock = RangeLock::new();
    let low = lock.read(range(0, 4096));
    drop((lock.read(range(8192, 4096)), low));
    assert!(lock.table_bytes() > 0, "disjoint ranges have met");
    let (is_held, is_over) = (AtomicBool::new(false), AtomicBool::new(false));
    let machine = Machine::new(Shape::new(1, 4, 1).unwrap(), Costs::default()).unwrap();
    machine
        .run_tasks(4, |task| {
            if task == 0 {
                let _guard = lock.write(theirs);
                is_held.store(true, Ordering::Release);
                thread::sleep(Duration::from_micros(200));
                is_over.store(true, Ordering::Relaxed);
                return;
            }
            while !is_held.load(Ordering::Acquire) {
                spin_hint();
            }
            while !is_over.load(Ordering::Relaxed) {
                assert!(!tries(&lock) || is_over.load(Ordering::Relaxed), "somebody has it");
            }
        })
        .unwrap_or_else(|failure| panic!("{failure}"))
}

/// An attempt that writes to a node delays the claims that wait for this node. If there are enough
/// such attempts, the claims wait for ever. So an attempt that a claim at an upper level excludes
/// must fail before it writes anything.
#[test]
fn tries_that_are_excluded_from_above_write_to_nothing() {
    let small = range(1 << 21, 8192);
    for theirs in [LockRange::FULL, range(0, 16 << 21)] {
        for wanted in [small, range((2 << 21) - 4096, 8192)] {
            let reports = [
                tried(theirs, |lock| lock.try_read(wanted).is_some()),
                tried(theirs, |lock| lock.try_write(wanted).is_some()),
            ];
            for report in reports {
                assert!(report.shared_writes < 100, "{} times, to get {wanted} of {theirs}", report.shared_writes);
            }
        }
    }
}
