//! Three spinlocks on 1 to 88 CPUs: `cargo run --release -p manycore --example spinlocks
//! [--features plot -- FILE.svg]`.

use manycore::{AtomicUsize, Machine, Ordering::*, spin_hint, time::Duration, work};

/// Words on a line of their own.
#[derive(Default)]
#[repr(align(64))]
struct Line(AtomicUsize, AtomicUsize);

/// What the locks need: a word to take, a counter of tickets, and a node for each task. Tasks are
/// numbered from 1.
type Lock = (Line, Line, Vec<Line>);
type Enter = fn(&Lock, usize, &dyn Fn());

fn test_and_set((word, ..): &Lock, _: usize, critical: &dyn Fn()) {
    while word.0.swap(1, Acquire) == 1 {
        spin_hint();
    }
    critical();
    word.0.store(0, Release);
}

fn ticket((serving, next, _): &Lock, _: usize, critical: &dyn Fn()) {
    let mine = next.0.fetch_add(1, Relaxed);
    while serving.0.load(Acquire) != mine {
        spin_hint();
    }
    critical();
    serving.0.store(mine + 1, Release);
}

/// Mellor-Crummey and Scott's: each task spins on a line of its own.
fn queue((last, _, nodes): &Lock, me: usize, critical: &dyn Fn()) {
    let Line(waits, successor) = &nodes[me];
    waits.store(1, Relaxed);
    successor.store(0, Relaxed);
    let before = last.0.swap(me, AcqRel);
    if before != 0 {
        nodes[before].1.store(me, Release);
        while waits.load(Acquire) == 1 {
            spin_hint();
        }
    }
    critical();
    if successor.load(Acquire) != 0 || last.0.compare_exchange(me, 0, Release, Relaxed).is_err() {
        while successor.load(Acquire) == 0 {
            spin_hint();
        }
        nodes[successor.load(Relaxed)].0.store(0, Release);
    }
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let machine = Machine::preset("xeon-e5-2699v4")?;
    let locks: [(&str, Enter); 3] = [("test-and-set", test_and_set), ("ticket", ticket), ("queue", queue)];
    let mut curves = vec![];
    for (name, enter) in locks {
        let mut curve = vec![];
        for cpus in [1, 2, 4, 8, 16, 22, 33, 44, 66, 88] {
            let lock = (Line::default(), Line::default(), (0..=cpus).map(|_| Line::default()).collect());
            let shared = Line::default();
            let report = machine.measure(cpus, Duration::from_millis(1), |task| {
                enter(&lock, task + 1, &|| shared.0.store(shared.0.load(Relaxed) + 1, Relaxed));
                work::cpu(500);
            })?;
            println!("{name:12} {cpus:3} CPUs {:6.2} M/s", report.operations_per_s / 1e6);
            curve.push((cpus, report.operations_per_s / 1e6));
        }
        curves.push((name, curve));
    }
    #[cfg(feature = "plot")]
    if let Some(file) = std::env::args().nth(1) {
        std::fs::write(file, manycore::plot::curves("Three spinlocks", "million operations/s", &curves)?)?;
    }
    Ok(())
}
