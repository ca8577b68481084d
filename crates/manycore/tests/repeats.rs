//! The same seed gives the same results, and random order finds bugs.

use manycore::time::Duration;
use manycore::{AtomicU64, AtomicUsize, Costs, Machine, Mutex, Ordering::*, Report, Shape, spin_hint, thread, work};

#[repr(align(64))]
#[derive(Default)]
struct Line<T>(T);

/// A workload with a bit of everything.
fn mixed(machine: &Machine, tasks: usize) -> Report {
    let counters: Vec<Line<AtomicU64>> = (0..16).map(|_| Line::default()).collect();
    let lock = Line(Mutex::new(0_u64));
    let turn = Line(AtomicUsize::new(0));
    machine
        .measure(tasks, Duration::from_micros(300), |task| {
            counters[task % 16].0.fetch_add(1, Relaxed);
            *lock.0.lock() += 1;
            if turn.0.fetch_add(1, AcqRel).is_multiple_of(8) {
                thread::sleep(Duration::from_micros(3));
            }
            work::copy(256);
        })
        .unwrap()
}

#[test]
fn the_same_seed_gives_the_same_bytes_and_another_one_other_figures() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    for tasks in [5, 88, 120] {
        let json = |seed| serde_json::to_string(&mixed(&machine.clone().seed(seed), tasks)).unwrap();
        let first = json(1);
        // Now other memory of the host is in use.
        let _heap: Vec<Vec<u8>> = (1..200).map(|i| vec![0; i * 77]).collect();
        assert_eq!(first, json(1));
        assert_ne!(first, json(2));
    }
}

#[test]
fn a_known_run_gives_the_known_figures() {
    // These results must never change, on any machine: otherwise published results would change,
    // too.
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let counter = Line(AtomicU64::new(0));
    let add = |counter: &Line<AtomicU64>| _ = counter.0.fetch_add(1, Relaxed);
    let report = machine.run_tasks(8, |_| (0..100).for_each(|_| add(&counter))).unwrap();
    assert_eq!((report.events, report.transfers, report.elapsed_ns), KNOWN);
}

const KNOWN: (u64, u64, f64) = (800, 397, 18_409.736);

/// So many seeds that a bug can't stay hidden by chance.
const SEEDS: std::ops::Range<u64> = 0..200;

fn small() -> Machine {
    Machine::new(Shape::new(1, 4, 1).unwrap(), Costs::default()).unwrap().events_max(1_000_000)
}

#[test]
fn random_order_finds_a_lost_update_that_virtual_time_hides_and_repeats_it() {
    let run = |machine: &Machine| {
        let counter = Line(AtomicUsize::new(0));
        machine.run(|| {
            thread::scope(|scope| {
                for cpu in 0..2 {
                    let counter = &counter;
                    scope.spawn(Some(cpu), move || {
                        // The two updates are far apart in time, so they never overlap in measured
                        // order.
                        work::cpu(1 + cpu as u64 * 1_000_000);
                        let old = counter.0.load(Relaxed);
                        counter.0.store(old + 1, Relaxed);
                    });
                }
            });
            assert_eq!(counter.0.load(Relaxed), 2, "an update was lost");
        })
    };
    run(&small()).unwrap();
    let failure = small().explore(SEEDS, run).unwrap_err();
    assert!(failure.to_string().contains("an update was lost"), "{failure}");
    let again = run(&small().random_order().seed(failure.seed)).unwrap_err();
    assert_eq!(*failure, *again);
}

/// A broken lock: it checks the word, and then takes it in a second access.
fn enter_broken(lock: &AtomicUsize) {
    while lock.load(Acquire) == 1 {
        spin_hint();
    }
    lock.store(1, Release);
}

fn enter(lock: &AtomicUsize) {
    while lock.compare_exchange_weak(0, 1, Acquire, Relaxed).is_err() {
        spin_hint();
    }
}

fn use_lock(machine: &Machine, enter: fn(&AtomicUsize)) -> Result<Report, Box<manycore::Failure>> {
    let (lock, inside) = (Line(AtomicUsize::new(0)), Line(AtomicUsize::new(0)));
    machine.run_tasks(3, |_| {
        for _ in 0..3 {
            enter(&lock.0);
            assert_eq!(inside.0.fetch_add(1, Relaxed), 0, "two inside");
            inside.0.fetch_sub(1, Relaxed);
            lock.0.store(0, Release);
        }
    })
}

#[test]
fn random_order_finds_a_broken_lock_and_no_fault_with_a_sound_one() {
    let failure = small().explore(SEEDS, |machine| use_lock(machine, enter_broken)).unwrap_err();
    assert!(failure.to_string().contains("two inside"), "{failure}");
    small().explore(SEEDS, |machine| use_lock(machine, enter)).unwrap();
}

#[test]
fn random_order_finds_no_fault_with_the_crates_own_locks() {
    let run = |machine: &Machine| {
        let (mutex, shared, changed) = (Mutex::new(0), manycore::RwLock::new(0), manycore::Condvar::new());
        machine.run_tasks(5, |task| {
            for _ in 0..4 {
                *mutex.lock() += 1;
                changed.notify_all();
                assert!(*shared.read() <= 20);
                *shared.write() += 1;
            }
            let mut guard = mutex.lock();
            while *guard < 20 {
                changed.wait_for(&mut guard, Duration::from_millis(task as u64 + 1));
            }
        })
    };
    small().explore(SEEDS, run).unwrap();
}

#[test]
fn a_notification_that_was_taken_arrives() {
    let run = |machine: &Machine| {
        let (mutex, changed) = (Mutex::new(()), manycore::Condvar::new());
        machine.run_tasks(2, |task| match task {
            0 => changed.wait(&mut mutex.lock()),
            _ => {
                while !changed.notify_one() {
                    thread::yield_now();
                }
            }
        })
    };
    small().explore(SEEDS, run).unwrap();
}

#[test]
fn random_order_ends_spins_without_hints() {
    let run = |machine: &Machine| {
        let flag = Line(AtomicUsize::new(0));
        machine.run_tasks(2, |task| match task {
            0 => flag.0.store(1, Release),
            _ => while flag.0.load(Acquire) == 0 {},
        })
    };
    small().explore(0..50, run).unwrap();
}

/// Regression: in each round of a loop, a thread read a flag, then waited for a lock or in an inner
/// spin, and then executed a spin hint. Another thread set the flag during the inner wait. The spin
/// hint then waited forever for another store to the flag.
#[test]
fn a_spin_knows_of_what_changed_while_it_waited_within_a_turn() {
    let [flag, other] = [const { Line(AtomicUsize::new(0)) }; 2];
    let lock = Mutex::new(());
    let set_flag = || {
        let held = lock.lock();
        work::cpu(3000);
        flag.0.store(1, Release);
        work::cpu(3000);
        other.0.store(1, Release);
        drop(held);
    };
    let in_turns = |inside: &dyn Fn()| {
        while flag.0.load(Acquire) == 0 {
            inside();
            spin_hint();
        }
    };
    let takes_the_lock = || drop(lock.lock());
    let spins_for_another = || {
        while other.0.load(Acquire) == 0 {
            spin_hint();
        }
    };
    let insides: [&(dyn Fn() + Sync); 2] = [&takes_the_lock, &spins_for_another];
    for inside in insides {
        let run = |machine: &Machine| {
            flag.0.store(0, Relaxed);
            other.0.store(0, Relaxed);
            machine.run_tasks(2, |task| if task == 0 { in_turns(inside) } else { set_flag() })
        };
        small().explore(0..100, run).unwrap();
    }
}
