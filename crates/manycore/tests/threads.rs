//! Locks, waiting and scheduling in virtual time.

use manycore::time::Duration;
use manycore::{
    AtomicBool, AtomicU64, AtomicUsize, Cause, Condvar, Costs, Instant, Machine, Mutex, OnceCell, Ordering::*, RwLock,
    Shape, cpu, spin_hint, thread, work,
};
use std::cell::{Cell, RefCell};

fn machine(cpus: usize) -> Machine {
    Machine::new(Shape::new(1, cpus, 1).unwrap(), Costs::default()).unwrap().events_max(50_000_000)
}

/// Runs `enter` on `tasks` threads. `enter` must call its argument under mutual exclusion.
fn exclusive(cpus: usize, tasks: usize, enter: impl Fn(&dyn Fn()) + Send + Sync) {
    let (inside, entered) = (AtomicUsize::new(0), AtomicUsize::new(0));
    machine(cpus)
        .run_tasks(tasks, |_| {
            for _ in 0..50 {
                enter(&|| {
                    assert_eq!(inside.fetch_add(1, Relaxed), 0, "two inside");
                    work::cpu(300);
                    inside.fetch_sub(1, Relaxed);
                    entered.fetch_add(1, Relaxed);
                });
            }
        })
        .unwrap();
    assert_eq!(entered.load(Relaxed), tasks * 50);
}

#[test]
fn a_mutex_lets_one_in() {
    let lock = Mutex::new(());
    for (cpus, tasks) in [(8, 8), (2, 9)] {
        exclusive(cpus, tasks, |inside| {
            let _guard = lock.lock();
            inside();
        });
    }
}

#[test]
fn a_writer_is_alone() {
    let lock = RwLock::new(());
    for (cpus, tasks) in [(8, 8), (2, 9)] {
        exclusive(cpus, tasks, |inside| {
            drop(lock.read());
            let _guard = lock.write();
            inside();
        });
    }
}

#[test]
fn readers_and_writers_keep_each_other_out() {
    let (lock, readers, writers) = (RwLock::new(()), AtomicUsize::new(0), AtomicUsize::new(0));
    machine(8)
        .run_tasks(8, |task| {
            for i in 0..50 {
                if (task + i) % 4 == 0 {
                    let _guard = lock.write();
                    assert_eq!((writers.fetch_add(1, Relaxed), readers.load(Relaxed)), (0, 0));
                    work::cpu(500);
                    assert_eq!(readers.load(Relaxed), 0);
                    writers.fetch_sub(1, Relaxed);
                } else {
                    let _guard = lock.read();
                    readers.fetch_add(1, Relaxed);
                    work::cpu(500);
                    assert_eq!(writers.load(Relaxed), 0);
                    readers.fetch_sub(1, Relaxed);
                }
                work::cpu(100);
            }
        })
        .unwrap();
}

#[test]
fn readers_share() {
    let lock = RwLock::new(());
    let report = machine(8)
        .run_tasks(8, |_| {
            let _guard = lock.read();
            work::cpu(100_000);
        })
        .unwrap();
    assert!(report.elapsed_ns < 150_000.0, "{}", report.elapsed_ns);
}

#[test]
fn a_lock_that_is_none_is_found_out() {
    let taken = AtomicBool::new(false);
    let failure = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
        exclusive(8, 8, |inside| {
            while taken.load(Relaxed) {
                spin_hint();
            }
            taken.store(true, Relaxed);
            inside();
            taken.store(false, Relaxed);
        });
    }));
    assert!(failure.is_err(), "the check for mutual exclusion checks nothing");
}

#[test]
fn parked_threads_leave_their_cpu_to_others_and_pay_for_waking() {
    let lock = Mutex::named("hot", ());
    let report = machine(4)
        .run_tasks(4, |_| {
            for _ in 0..20 {
                let guard = lock.lock();
                work::cpu(50_000);
                drop(guard);
            }
        })
        .unwrap();
    let hot = &report.locks[0];
    assert_eq!((hot.name.as_str(), hot.taken), ("hot", 80));
    assert!(report.wakeups > 50, "{report}");
    assert!(hot.parked > 100.0, "three of four threads are parked most of the time: {report}");
    assert!(hot.shares.waiting < 10.0, "{report}");
}

#[test]
fn a_spin_ends_when_its_line_is_written_and_not_before() {
    let flag = AtomicBool::new(false);
    let seen = Mutex::new((Duration::ZERO, 0));
    let report = machine(2)
        .run_tasks(2, |task| {
            let start = Instant::now();
            if task == 0 {
                work::cpu(500_000);
                flag.store(true, Release);
            } else {
                let mut hints = 0;
                while !flag.load(Acquire) {
                    spin_hint();
                    hints += 1;
                }
                *seen.lock() = (start.elapsed(), hints);
            }
        })
        .unwrap();
    let (elapsed, hints) = seen.into_inner();
    assert!((450_000..560_000).contains(&elapsed.as_nanos()), "{elapsed:?}");
    assert!(hints <= 3, "{hints} hints: the CPU wasn't parked");
    assert!(report.shares.waiting > 45.0, "{report}");
}

#[test]
fn a_write_between_the_look_and_the_hint_is_not_missed() {
    // The load sees the old value, and the store happens during the work between load and hint.
    let flag = AtomicBool::new(false);
    machine(2)
        .run_tasks(2, |task| {
            if task == 0 {
                work::cpu(10_000);
                flag.store(true, Release);
            } else {
                while !flag.load(Acquire) {
                    work::cpu(50_000);
                    spin_hint();
                }
            }
        })
        .unwrap();
}

#[test]
fn a_spin_with_a_deadline_ends_by_the_clock() {
    let flag = AtomicBool::new(false);
    let run = machine(2).run(|| {
        let start = Instant::now();
        while !flag.load(Acquire) && start.elapsed() < Duration::from_micros(50) {
            spin_hint();
        }
        start.elapsed()
    });
    assert!((50..60).contains(&run.unwrap().value.as_micros()));
}

#[test]
fn yielding_in_a_loop_waits_without_a_storm_of_events() {
    let flag = AtomicBool::new(false);
    let report = machine(2)
        .run_tasks(2, |task| {
            if task == 0 {
                work::cpu(10_000_000);
                flag.store(true, Release);
            } else {
                while !flag.load(Acquire) {
                    thread::yield_now();
                }
            }
        })
        .unwrap();
    assert!(report.events < 10_000, "{}", report.events);
}

#[test]
fn threads_beyond_the_cpus_are_time_sliced() {
    let slice = Costs::default().time_slice;
    let longest = AtomicU64::new(0);
    let report = machine(2)
        .run_tasks(6, |_| {
            let mut last = Instant::now();
            for _ in 0..2_000 {
                work::cpu(5_000);
                let now = Instant::now();
                longest.fetch_max((now - last).as_nanos() as u64, Relaxed);
                last = now;
            }
        })
        .unwrap();
    assert!(report.elapsed_ns > 30e6, "three threads of 10 ms on each CPU: {}", report.elapsed_ns);
    assert!(report.context_switches >= 12, "{report}");
    let longest = longest.load(Relaxed) as f64;
    assert!((1.9 * slice..2.2 * slice).contains(&longest), "off the CPU for {longest} ns");
}

#[test]
fn a_preempted_holder_of_a_spinlock_stops_everybody() {
    let run = |tasks: usize| {
        let lock = AtomicBool::new(false);
        let held = |_| {
            while lock.compare_exchange(false, true, Acquire, Relaxed).is_err() {
                spin_hint();
            }
            work::cpu(20_000);
            lock.store(false, Release);
            work::cpu(1_000);
        };
        machine(4).measure(tasks, Duration::from_millis(60), held).unwrap()
    };
    let (four, eight) = (run(4), run(8));
    assert!(
        four.operations_per_s > 1.5 * eight.operations_per_s,
        "{} {}",
        four.operations_per_s,
        eight.operations_per_s
    );
}

#[test]
fn conditions_hand_values_over_and_time_out() {
    let (queue, filled) = (Mutex::new(Vec::new()), Condvar::new());
    let sum = AtomicUsize::new(0);
    machine(4)
        .run_tasks(4, |task| {
            for i in 0..100 {
                if task < 2 {
                    work::cpu(1_000);
                    queue.lock().push(i);
                    filled.notify_one();
                } else {
                    let mut items = queue.lock();
                    while items.is_empty() {
                        filled.wait(&mut items);
                    }
                    sum.fetch_add(items.pop().unwrap(), Relaxed);
                }
            }
        })
        .unwrap();
    assert_eq!(sum.into_inner(), 2 * 4950);
    let waited = machine(1).run(|| {
        let (lock, never, start) = (Mutex::new(()), Condvar::new(), Instant::now());
        let result = never.wait_for(&mut lock.lock(), Duration::from_millis(5));
        (result.timed_out(), start.elapsed())
    });
    let (timed_out, elapsed) = waited.unwrap().value;
    assert!(timed_out && (5_000..5_100).contains(&elapsed.as_micros()), "{elapsed:?}");
}

#[test]
fn threads_are_joined_parked_unparked_and_put_to_sleep() {
    let run = machine(2).run(|| {
        let start = Instant::now();
        let sleeper = thread::spawn(|| {
            thread::park();
            thread::sleep(Duration::from_millis(3));
            (thread::index(), cpu::count())
        });
        work::cpu(1_000_000);
        sleeper.thread().unpark();
        let value = sleeper.join().unwrap();
        (value, start.elapsed())
    });
    let (value, elapsed) = run.unwrap().value;
    assert_eq!(value, (1, 2));
    assert!((4_000..4_100).contains(&elapsed.as_micros()), "{elapsed:?}");
}

#[test]
fn a_permit_is_kept_for_a_thread_that_is_not_parked_yet() {
    let run = machine(2).run(|| {
        let late = thread::spawn(|| {
            work::cpu(1_000_000);
            thread::park();
        });
        late.thread().unpark();
        late.join().unwrap();
    });
    run.unwrap();
}

#[test]
fn a_cell_is_made_once_even_if_making_it_waits() {
    let (cell, made) = (OnceCell::new(), AtomicUsize::new(0));
    machine(4)
        .run_tasks(8, |_| {
            let value = *cell.get_or_init(|| {
                thread::sleep(Duration::from_millis(1));
                made.fetch_add(1, Relaxed) + 7
            });
            assert_eq!(value, 7);
        })
        .unwrap();
    assert_eq!(cell.set(1), Err(1));
    assert_eq!(made.into_inner(), 1);
}

static DROPPED: AtomicUsize = AtomicUsize::new(0);

struct CountsDrops;

impl Drop for CountsDrops {
    fn drop(&mut self) {
        // Values without a destructor stay available until the thread's end; others don't.
        assert_eq!(TURN.get(), 10);
        assert!(OWNED.try_with(|_| ()).is_err());
        DROPPED.fetch_add(1, Relaxed);
    }
}

manycore::thread_local! {
    static TURN: Cell<usize> = const { Cell::new(0) };
    static OWNED: RefCell<Option<CountsDrops>> = RefCell::new(Some(CountsDrops));
}

#[test]
fn thread_locals_belong_to_virtual_threads() {
    machine(2)
        .run_tasks(4, |_| {
            for turn in 0..10 {
                OWNED.with(|_| ());
                assert_eq!(TURN.replace(turn + 1), turn);
                work::cpu(100_000);
                thread::yield_now();
            }
        })
        .unwrap();
    assert_eq!(DROPPED.load(Relaxed), 4);
    assert_eq!(TURN.get(), 0);
}

#[test]
fn a_deadlock_is_reported_with_every_position() {
    let (a, b) = (Mutex::named("a", ()), Mutex::named("b", ()));
    let failure = machine(2)
        .run_tasks(2, |task| {
            let (first, second) = if task == 0 { (&a, &b) } else { (&b, &a) };
            let _first = first.lock();
            work::cpu(10_000);
            let _second = second.lock();
        })
        .unwrap_err();
    assert_eq!(failure.cause, Cause::Deadlock);
    let text = failure.to_string();
    for part in ["waiting for mutex a", "waiting for mutex b", "waiting for a condition", "threads.rs:"] {
        assert!(text.contains(part), "{part} is missing: {text}");
    }
}

#[test]
fn spinning_for_ever_is_a_deadlock() {
    let flag = AtomicBool::new(false);
    let failure = machine(2)
        .run_tasks(2, |_| {
            while !flag.load(Relaxed) {
                spin_hint();
            }
        })
        .unwrap_err();
    assert_eq!(failure.cause, Cause::Deadlock);
    assert_eq!(failure.threads.iter().filter(|position| position.doing == "spinning").count(), 2);
}

#[test]
fn endless_loops_hit_the_limit() {
    let failure = machine(1)
        .events_max(1_000)
        .run(|| {
            while cpu::count() == 1 {
                work::cpu(1);
            }
        })
        .unwrap_err();
    assert_eq!(failure.cause, Cause::TooManyEvents { limit: 1_000 });
}

#[test]
fn a_panic_unwinds_and_is_reported_with_the_seed() {
    let lock = Mutex::new(());
    let unwound = AtomicBool::new(false);
    struct Unwound<'a>(&'a AtomicBool);
    impl Drop for Unwound<'_> {
        fn drop(&mut self) {
            self.0.store(true, Relaxed);
        }
    }
    let failure = machine(4)
        .seed(77)
        .run_tasks(4, |task| {
            let _unwound = (task == 2).then(|| Unwound(&unwound));
            let _guard = lock.lock();
            work::cpu(10_000);
            assert!(task != 2, "planted");
        })
        .unwrap_err();
    let Cause::Panic { message, .. } = &failure.cause else { panic!("{failure}") };
    assert!(message.contains("planted") && failure.to_string().contains("MANYCORE_SEED=77"), "{failure}");
    assert!(unwound.into_inner());
    // The panic was on a host thread that has ended, so later machines aren't affected.
    assert!(!std::thread::panicking());
    machine(2).run_tasks(2, |_| work::cpu(10)).unwrap();
}

#[test]
fn who_has_to_wait_while_unwinding_ends_the_run() {
    let lock = Mutex::new(());
    struct Locks<'a>(&'a Mutex<()>);
    impl Drop for Locks<'_> {
        fn drop(&mut self) {
            drop(self.0.lock());
        }
    }
    let failure = machine(2)
        .run_tasks(2, |task| {
            if task == 0 {
                let _guard = lock.lock();
                thread::sleep(Duration::from_millis(1));
            } else {
                work::cpu(10_000);
                let _locks = Locks(&lock);
                panic!("planted");
            }
        })
        .unwrap_err();
    assert!(failure.to_string().contains("while unwinding"), "{failure}");
}

/// Something with a thread of its own.
struct Server {
    requests: std::sync::Arc<(Mutex<Option<u64>>, Condvar)>,
    thread: Option<thread::JoinHandle<u64>>,
}

impl Server {
    fn start() -> Self {
        let requests = std::sync::Arc::new((Mutex::new(Some(0)), Condvar::new()));
        let served = std::sync::Arc::clone(&requests);
        let thread = thread::spawn(move || {
            let (mut served_all, mut waiting) = (0, served.0.lock());
            while let Some(count) = waiting.as_mut() {
                served_all += std::mem::take(count);
                served.1.wait(&mut waiting);
            }
            served_all
        });
        Self { requests, thread: Some(thread) }
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        work::cpu(50_000_000);
        *self.requests.0.lock() = None;
        self.requests.1.notify_one();
        assert_eq!(self.thread.take().unwrap().join().unwrap(), 40);
    }
}

#[test]
fn setting_up_and_dropping_happen_inside_and_are_not_measured() {
    let set_up = || {
        work::cpu(70_000_000);
        Server::start()
    };
    let ask = |server: &Server, _| {
        for _ in 0..10 {
            server.requests.0.lock().as_mut().map(|count| *count += 1).unwrap();
            server.requests.1.notify_one();
            work::cpu(1_000);
        }
    };
    let report = machine(8).run_tasks_with(4, set_up, ask).unwrap();
    assert!(report.elapsed_ns < 10e6, "{report}");
}

#[test]
fn indexes_are_reused_and_differ_among_the_living() {
    let run = machine(4).run(|| {
        let index = || {
            work::cpu(1_000);
            thread::index()
        };
        let pair = [thread::spawn(index), thread::spawn(index)].map(|thread| thread.join().unwrap());
        (thread::index(), pair, thread::spawn(index).join().unwrap())
    });
    assert_eq!(run.unwrap().value, (0, [1, 2], 1));
}

#[test]
fn a_panic_that_is_caught_inside_disturbs_nobody() {
    let counter = AtomicUsize::new(0);
    machine(2)
        .run_tasks(4, |_| {
            let result = std::panic::catch_unwind(|| {
                struct Touches<'a>(&'a AtomicUsize);
                impl Drop for Touches<'_> {
                    fn drop(&mut self) {
                        (0..10).for_each(|_| _ = self.0.fetch_add(1, Relaxed));
                    }
                }
                let _touches = Touches(&counter);
                panic!("to be caught");
            });
            assert!(result.is_err() && !std::thread::panicking());
        })
        .unwrap();
    assert_eq!(counter.into_inner(), 40);
}

#[test]
fn no_thread_runs_while_another_one_unwinds() {
    let counter = AtomicUsize::new(0);
    machine(2)
        .run_tasks(2, |task| {
            struct Touches<'a>(&'a AtomicUsize);
            impl Drop for Touches<'_> {
                fn drop(&mut self) {
                    (0..100).for_each(|_| _ = self.0.fetch_add(1, Relaxed));
                }
            }
            let touches = Touches(&counter);
            if task == 0 {
                let result = std::panic::catch_unwind(std::panic::AssertUnwindSafe(|| {
                    let _touches = touches;
                    panic!("to be caught");
                }));
                return drop(result.unwrap_err());
            }
            for _ in 0..1_000 {
                counter.fetch_add(1, Relaxed);
                assert!(!std::thread::panicking(), "the other thread's panic");
            }
        })
        .unwrap();
    assert_eq!(counter.into_inner(), 1_200);
}

#[test]
fn outside_of_a_machine_there_are_plain_values_and_clear_messages() {
    let lock = Mutex::new(1);
    *lock.lock() += 1;
    assert!(lock.try_lock().is_some());
    let shared = RwLock::new(3);
    assert_eq!((*lock.lock(), *shared.read()), (2, 3));
    std::thread::scope(|scope| {
        for _ in 0..4 {
            scope.spawn(|| (0..1000).for_each(|_| *lock.lock() += 1));
        }
    });
    assert_eq!(lock.into_inner(), 4002);
    let panic = std::panic::catch_unwind(|| drop(thread::spawn(|| ()))).unwrap_err();
    assert!(panic.downcast_ref::<String>().unwrap().contains("Machine::run"));
    work::copy(4096);
    spin_hint();
    assert_eq!(cpu::current(), 0);
}
