//! One test for each guarantee of the lock.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

use std::io::Write as _;

use span_lock::{LockRange, RangeLock};
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::thread;
use sync::time::{Duration, Instant};
use sync::{Arc, Weak, asleep};

const MIB: u64 = 1 << 20;
/// The time limit for everything that must happen. It is at least ten times as long as anything
/// takes here, even on a busy machine.
const PATIENCE: Duration = Duration::from_secs(120);

/// Aborts the process, with a message that contains `what`, unless the returned value is dropped in
/// time.
fn watchdog(what: &'static str) -> Arc<()> {
    let alive = Arc::new(());
    let (watched, start) = (Arc::downgrade(&alive), Instant::now());
    let watch = move || {
        while Weak::upgrade(&watched).is_some() {
            if start.elapsed() > PATIENCE {
                // Writes to stderr directly, because the test harness would capture the message.
                let _ = writeln!(std::io::stderr(), "waited in vain for this: {what}");
                std::process::abort();
            }
            thread::sleep(Duration::from_millis(10));
        }
    };
    drop(thread::spawn("watchdog", watch).unwrap());
    alive
}

fn range(start: u64, end: u64) -> LockRange {
    LockRange::new(start, end).unwrap()
}

/// Makes the lock spread.
fn spread(lock: RangeLock) -> RangeLock {
    assert_eq!(lock.table_bytes(), 0);
    let low = lock.read(range(0, 4096));
    drop((lock.read(range(8192, 12288)), low));
    assert!(lock.table_bytes() > 0);
    lock
}

/// Returns locks that have or haven't spread, with small and with large units.
fn locks() -> [RangeLock; 4] {
    let large = || RangeLock::with_unit_bits(20);
    [RangeLock::new(), spread(RangeLock::new()), large(), spread(large())]
}

/// Tries to lock `range` in another thread, for reading and for writing. Returns which of the two
/// was refused.
fn refused(lock: &RangeLock, range: LockRange) -> (bool, bool) {
    std::thread::scope(|scope| {
        let refused = scope.spawn(|| {
            let to_read = lock.try_read(range).is_none();
            (to_read, lock.try_write(range).is_none())
        });
        refused.join().unwrap()
    })
}

#[test]
fn ranges_exclude_what_they_overlap_and_nothing_else() {
    locks().iter().for_each(ranges_are_exact);
}

fn ranges_are_exact(lock: &RangeLock) {
    let ranges = [
        range(0, 1),
        range(0, 4096),
        range(5, 9000),
        range(4096, 8192),
        range(2 * MIB - 4096, 2 * MIB),
        range(2 * MIB - 4096, 2 * MIB + 4096),
        range(2 * MIB, 2 * MIB + 4096),
        range(1, 4 * MIB + 1),
        range(4 * MIB, 4 * MIB + 1),
        range(MIB, 64 * MIB),
        range(64 * MIB, 4096 * MIB),
        range(1 << 62, (1 << 62) + 1),
        range(u64::MAX - 1, u64::MAX),
        LockRange::FULL,
    ];
    for held in ranges {
        for other in ranges {
            let overlaps = held.overlaps(other);
            let reader = lock.read(held);
            assert_eq!(refused(lock, other), (false, overlaps), "{other} beside a reader of {held}");
            drop(reader);
            let writer = lock.write(held);
            assert_eq!(refused(lock, other), (overlaps, overlaps), "{other} beside a writer of {held}");
            let reader = writer.downgrade();
            assert_eq!(refused(lock, other), (false, overlaps), "{other} beside a former writer of {held}");
            drop(reader);
            assert_eq!(refused(lock, other), (false, false), "{other} after {held}");
        }
    }
}

#[test]
fn disjoint_ranges_that_share_all_nodes_are_held_together() {
    let lock = RangeLock::with_unit_bits(0);
    // Uses `try_write`, because `write` would add more edges to the lock order than are kept.
    let guards: Vec<_> = (0..5000).map(|at| lock.try_write(range(at * 3, at * 3 + 2)).expect("free")).collect();
    assert_eq!(refused(&lock, range(0, 15_000)), (true, true));
    assert!((0..5000).all(|at| lock.try_write(range(at * 3 + 2, at * 3 + 3)).is_some()));
    drop(guards);
    assert_eq!(refused(&lock, LockRange::FULL), (false, false));
}

#[test]
fn a_lock_that_nobody_shares_any_more_is_compact_again() {
    let lock = spread(RangeLock::new());
    let held = lock.write(range(MIB, 5 * MIB));
    assert!(!lock.compact(), "somebody holds a range");
    drop(held);
    assert!(lock.compact());
    ranges_are_exact(&lock);
    for _ in 0..10_000 {
        drop(lock.read(range(0, 4096)));
        assert!(lock.try_write(LockRange::FULL).is_some(), "nobody is about");
        assert!(lock.try_write(range(MIB, 3 * MIB)).is_some(), "nobody is about");
    }
}

#[test]
fn a_timeout_ends_and_leaves_nothing_behind() {
    let _watchdog = watchdog("tries with a time limit end");
    for lock in locks() {
        let guard = lock.write(range(0, 4096));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                for wanted in [range(0, 10), range(4095, 8 * MIB), LockRange::FULL] {
                    for time in [0, 1, 3_000] {
                        let time = Duration::from_micros(time);
                        let start = Instant::now();
                        assert!(
                            lock.try_write_for(wanted, time).is_none() && lock.try_read_for(wanted, time).is_none()
                        );
                        assert!(start.elapsed() >= 2 * time);
                    }
                }
            });
        });
        drop(guard);
        assert_eq!(refused(&lock, LockRange::FULL), (false, false));
    }
}

#[test]
fn a_timed_wait_ends_with_the_range() {
    for lock in locks() {
        let guard = lock.write(range(0, 4096));
        std::thread::scope(|scope| {
            let waiter = asleep::spawn(scope, || lock.try_write_for(LockRange::FULL, PATIENCE).is_some());
            drop(guard);
            assert!(waiter.join().unwrap());
        });
    }
}

/// If a waiter gives up, threads that waited only for this waiter must go on.
#[test]
fn who_waited_for_a_waiter_goes_on_when_that_gives_up() {
    let _watchdog = watchdog("a reader behind a writer that gives up gets its range");
    for lock in locks() {
        let _guard = lock.read(range(0, 4096));
        std::thread::scope(|scope| {
            // If this thread gets no CPU until the writer has given up, the test checks less.
            asleep::spawn(scope, || {
                assert!(lock.try_write_for(LockRange::FULL, Duration::from_millis(20)).is_none());
            });
            // In a thread that doesn't have the range already.
            scope.spawn(|| drop(lock.read(range(0, 4096))));
        });
    }
}

/// Readers that follow each other without a gap must not starve a writer.
#[test]
fn a_writer_gets_its_turn_among_readers_that_never_leave_the_range_free() {
    for lock in locks() {
        for ranges in [[LockRange::FULL; 2], [range(0, 4096), range(0, 8 * MIB)], [range(0, 4096), LockRange::FULL]] {
            let _watchdog = watchdog("a writer gets its turn among readers");
            let [ours, theirs] = ranges;
            let (stop, turns) = (AtomicBool::new(false), AtomicU64::new(0));
            std::thread::scope(|scope| {
                for _ in 0..3 {
                    scope.spawn(|| {
                        while !stop.load(Ordering::Relaxed) {
                            let _guard = lock.read(theirs);
                            thread::yield_now();
                            turns.fetch_add(1, Ordering::Relaxed);
                        }
                    });
                }
                while turns.load(Ordering::Relaxed) < 100 {
                    thread::yield_now();
                }
                for _ in 0..5 {
                    drop(lock.write(ours));
                }
                stop.store(true, Ordering::Relaxed);
            });
        }
    }
}

/// The checks of the lock order in builds with debug assertions.
mod order {
    use super::*;

    fn message(body: impl FnOnce() + Send) -> String {
        std::thread::scope(|scope| {
            let panic = scope.spawn(body).join().unwrap_err();
            panic.downcast_ref::<String>().cloned().unwrap_or_default()
        })
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "needs debug assertions")]
    fn a_range_that_overlaps_what_the_thread_has_is_refused_with_both_places() {
        for (held, wanted) in [(range(0, 10), range(9, 12)), (LockRange::FULL, range(5, 6))] {
            let lock = RangeLock::new();
            let (first, second) = (line!() + 2, line!() + 3);
            let said = message(|| {
                let _first = lock.read(held);
                let _second = lock.read(wanted);
            });
            for line in [first, second] {
                assert!(said.contains(&format!("tests/lock.rs:{line}:")), "{said}");
            }
        }
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "needs debug assertions")]
    fn two_orders_of_two_locks_are_found() {
        let locks = [RangeLock::new(), RangeLock::new()];
        let both = |first: usize, second: usize| {
            let _first = locks[first].write(LockRange::FULL);
            let _second = locks[second].read(range(first as u64, 9));
        };
        both(0, 1);
        both(0, 1);
        let said = message(|| both(1, 0));
        assert_eq!(said.matches("tests/lock.rs:").count(), 4, "{said}");
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "needs debug assertions")]
    fn two_orders_of_two_ranges_are_found_and_one_order_isnt() {
        let lock = RangeLock::new();
        let both = |first: u64, second: u64| {
            let _first = lock.write(range(first, first + 1));
            let _second = lock.write(range(second, second + 1));
        };
        (0..100).for_each(|at| both(at, at + 1));
        let said = message(|| both(100, 0));
        assert!(said.contains("lock order"), "{said}");
        // The edge that closed the cycle wasn't added, so this order is still permitted.
        both(0, 99);
    }

    #[test]
    #[cfg_attr(not(debug_assertions), ignore = "needs debug assertions")]
    fn trying_waits_for_nobody_and_so_has_no_order() {
        let lock = RangeLock::new();
        let low = lock.write(range(0, 1));
        drop(lock.write(range(1, 2)));
        drop(low);
        let high = lock.write(range(1, 2));
        assert!(lock.try_write(range(0, 1)).is_some());
        drop(high);
    }
}
