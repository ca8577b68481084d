//! Three spinlocks on 1 to 88 CPUs: `cargo run --release -p manycore --example spinlocks [--features plot -- FILE.svg]`.

use manycore::time::Duration;
use manycore::{AtomicBool, AtomicUsize, Machine, Ordering::*, spin_hint, work};

/// A word on a line of its own.
#[repr(align(64))]
#[derive(Default)]
struct Line<T>(T);

/// The lock's words, enough for each of the three kinds.
#[derive(Default)]
struct Lock {
    next: Line<AtomicUsize>,
    owner: Line<AtomicUsize>,
    queue: Vec<Line<(AtomicUsize, AtomicBool)>>,
}

fn test_and_set(lock: &Lock, _: usize, critical: impl Fn()) {
    while lock.owner.0.swap(1, Acquire) == 1 {
        spin_hint();
    }
    critical();
    lock.owner.0.store(0, Release);
}

fn ticket(lock: &Lock, _: usize, critical: impl Fn()) {
    let mine = lock.next.0.fetch_add(1, Relaxed);
    while lock.owner.0.load(Acquire) != mine {
        spin_hint();
    }
    critical();
    lock.owner.0.store(mine + 1, Release);
}

/// Mellor-Crummey and Scott's queue; node 0 is nobody, task i has node i + 1.
fn queue(lock: &Lock, task: usize, critical: impl Fn()) {
    let (me, node) = (task + 1, &lock.queue[task + 1].0);
    node.0.store(0, Relaxed);
    node.1.store(true, Relaxed);
    let before = lock.owner.0.swap(me, AcqRel);
    if before != 0 {
        lock.queue[before].0.0.store(me, Release);
        while node.1.load(Acquire) {
            spin_hint();
        }
    }
    critical();
    if node.0.load(Acquire) == 0 && lock.owner.0.compare_exchange(me, 0, AcqRel, Acquire).is_ok() {
        return;
    }
    while node.0.load(Acquire) == 0 {
        spin_hint();
    }
    lock.queue[node.0.load(Relaxed)].0.1.store(false, Release);
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::preset("xeon-e5-2699v4")?;
    let all_cpus = [1, 2, 4, 8, 16, 22, 33, 44, 66, 88];
    let mut curves = vec![("test-and-set", vec![]), ("ticket", vec![]), ("queue", vec![])];
    println!("million operations/s\nCPUs  test-and-set   ticket    queue");
    for cpus in all_cpus {
        print!("{cpus:4}");
        for (name, curve) in &mut curves {
            let lock = Lock { queue: (0..=cpus).map(|_| Line::default()).collect(), ..Lock::default() };
            let shared = Line(AtomicUsize::new(0));
            let critical = || shared.0.store(shared.0.load(Relaxed) + 1, Relaxed);
            let report = machine.measure(cpus, Duration::from_millis(1), |task| {
                match *name {
                    "test-and-set" => test_and_set(&lock, task, critical),
                    "ticket" => ticket(&lock, task, critical),
                    _ => queue(&lock, task, critical),
                }
                work::cpu(500);
            })?;
            print!("{:>14.2}", report.operations_per_s / 1e6);
            curve.push((cpus, report.operations_per_s / 1e6));
        }
        println!();
    }
    #[cfg(feature = "plot")]
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(file, manycore::plot::curves("Three spinlocks", "million operations/s", &curves)?)?;
    }
    Ok(())
}
