//! Random operations of several threads, in 20,000 random orders, on virtual CPUs.
#![cfg(pagefold_manycore)]

mod world;

use manycore::{Failure, Machine};
use smp_list::{CombiningLock, TwoModeLock};
use sync::atomic::{AtomicU32, Ordering};
use sync::random::Random;
use world::{Op, World};

const SEEDS: u64 = 20_000;
const TASKS: u32 = 4;
/// The number of operations of a task. Only the first one may add new nodes.
const OPS: usize = 3;

fn machine() -> Machine {
    Machine::preset("xeon-e5-2699v4").unwrap().events_max(100_000)
}

fn operation(random: &mut Random, len: u32, first: bool) -> Op {
    let node = random.below(u64::from(len.max(1))) as u32;
    let max = 1 + random.below(4) as usize;
    let choices = [
        Op::AddHead,
        Op::AddTail,
        Op::SpliceHead,
        Op::SpliceTail,
        Op::Rotate,
        Op::Fetch,
        Op::TakeTail(max),
        Op::TakeHead(max),
        Op::Del(node),
        Op::Touch(node),
        Op::Cool(node),
        Op::Move(node),
    ];
    let from = if first { 0 } else { 4 };
    // If the list starts empty, leaves out the operations that name a node.
    let to = if len == 0 { choices.len() - 4 } else { choices.len() };
    choices[from + random.below((to - from) as u64) as usize]
}

#[test]
fn lists_stay_whole() {
    let run = |machine: &Machine, seed: u64| -> Result<(), Box<Failure>> {
        let mut random = Random::seeded(seed);
        let len = random.below(9) as u32;
        let plans: Vec<Vec<Op>> =
            (0..TASKS).map(|_| (0..OPS).map(|at| operation(&mut random, len, at == 0)).collect()).collect();
        let mut world = World::new(len, TASKS);
        machine.run_tasks(TASKS as usize, |task| {
            plans[task].iter().for_each(|&op| world.run(op, task as u32));
        })?;
        world.check(&format!("seed {seed}: {plans:?} on {len}"));
        Ok(())
    };
    let one = std::env::var("MANYCORE_SEED").ok().and_then(|seed| seed.parse().ok());
    for seed in one.map_or(0..SEEDS, |seed| seed..seed + 1) {
        run(&machine().random_order().seed(seed), seed).unwrap();
    }
}

#[test]
fn modes_keep_apart() {
    let run = |machine: &Machine| {
        let lock = TwoModeLock::new([AtomicU32::new(0), AtomicU32::new(0)]);
        machine.run_tasks(4, |task| {
            for turn in 0..3 {
                if (task + turn) % 2 == 0 {
                    let pair = lock.exclusive();
                    pair.iter().for_each(|word| _ = word.fetch_add(1, Ordering::Relaxed));
                } else {
                    let pair = lock.shared();
                    let [a, b] = [0, 1].map(|at| pair[at].load(Ordering::Relaxed));
                    assert_eq!(a, b, "in shared mode beside exclusive mode");
                }
            }
        })
    };
    machine().explore(0..SEEDS / 4, run).unwrap();
}

/// On 88 CPUs, exclusive mode costs at most two cache-line fetches per CPU.
#[test]
fn the_price_of_exclusive_mode_is_bounded() {
    let slots = AtomicU32::new(0);
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let ns = |exclusive: bool| {
        let report = machine.measure_with(
            1,
            std::time::Duration::from_micros(100),
            || {
                let lock = TwoModeLock::new(());
                slots.store(lock.slots() as u32, Ordering::Relaxed);
                lock
            },
            |lock, _| if exclusive { drop(lock.exclusive()) } else { drop(lock.shared()) },
        );
        1e9 / report.unwrap().operations_per_s
    };
    let (shared, exclusive) = (ns(false), ns(true));
    let slots = f64::from(slots.load(Ordering::Relaxed));
    println!("shared mode {shared:.0} ns, exclusive mode {exclusive:.0} ns, {slots} slots");
    assert!(exclusive < slots * 2.0 * shared, "{exclusive} ns for {slots} slots, {shared} ns for one");
}

/// There are three threads for every two CPUs, and each takes exclusive mode repeatedly. Suppose
/// that the lock were handed over in the order of arrival. Then it would often go to a thread that
/// sleeps or has lost its CPU, and stay unused until this thread runs again. Each turn would take a
/// hundred times as long as it does now.
#[test]
fn no_thread_waits_for_one_that_does_not_run() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let turn_ns = |threads: usize| {
        let window = std::time::Duration::from_millis(20);
        let report = machine.measure_with(threads, window, || TwoModeLock::new(0), |lock, _| *lock.exclusive() += 1);
        1e9 / report.unwrap().operations_per_s
    };
    let (alone, crowded) = (turn_ns(1), turn_ns(132));
    println!("exclusive mode every {alone:.0} ns with one thread, every {crowded:.0} ns with 132");
    assert!(crowded < 3.0 * alone, "every {alone} ns with one thread, every {crowded} ns with 132");
}

/// Each thread makes changes, and none waits until its change is made. So the price of exclusive
/// mode is paid once for many changes.
#[test]
fn changes_share_the_price_of_exclusive_mode() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let change_ns = |threads: usize| {
        let window = std::time::Duration::from_millis(2);
        let lock = || CombiningLock::new(0);
        let report = machine.measure_with(threads, window, lock, |lock, _| lock.change(1, |sum, more| *sum += more));
        1e9 / report.unwrap().operations_per_s
    };
    let (alone, crowded) = (change_ns(1), change_ns(132));
    println!("a change every {alone:.0} ns with one thread, every {crowded:.0} ns with 132");
    assert!(crowded < alone / 2.0, "every {alone} ns with one thread, every {crowded} ns with 132");
}

/// Shared mode scales to 88 CPUs: a thread writes only to its own CPU's cache line.
#[test]
fn shared_mode_scales() {
    let machine = Machine::preset("xeon-e5-2699v4").unwrap();
    let both = machine
        .efficiency(|machine| {
            machine.measure_with(
                88,
                std::time::Duration::from_micros(50),
                || TwoModeLock::new(()),
                |lock, _| drop(lock.shared()),
            )
        })
        .unwrap();
    assert!(both.ratio() > 0.99, "contention efficiency {}", both.ratio());
}
