//! Virtual threads in random orders: exclusion, no lost wake-up (a deadlock ends the run), no write
//! lost.
//!
//! Run with `RUSTFLAGS="--cfg pagefold_manycore"`; `MANYCORE_SEED` repeats an order.
#![cfg(pagefold_manycore)]

mod board;
mod work;

use board::Board;
use manycore::{Costs, Machine, Shape};
use span_lock::{LockRange, RangeLock};
use sync::random::Random;

fn machine(cpus: usize) -> Machine {
    Machine::new(Shape::new(1, cpus, 1).unwrap(), Costs::default()).unwrap().events_max(5_000_000)
}

fn run(machine: &Machine, tasks: usize, unit_bits: u32, stride: u64, turns: u64) -> Result<(), Box<manycore::Failure>> {
    let (lock, board) = (RangeLock::with_unit_bits(unit_bits), Board::new(12, stride));
    machine
        .run_tasks(tasks, |task| {
            let mut random = Random::seeded(task as u64);
            for _ in 0..turns {
                let range = work::range(&mut random, 12, stride);
                work::one(&lock, &board, range, &mut random);
            }
        })
        .map(|_| assert!(lock.try_write(LockRange::FULL).is_some(), "somebody never gave a range back"))
}

#[test]
fn neighbours_in_one_granule() {
    let machine = machine(4);
    machine.explore(0..2_000, |machine| run(machine, 4, 12, 4096, 12)).unwrap_or_else(|failure| panic!("{failure}"));
}

#[test]
fn granules_of_all_levels() {
    let machine = machine(3);
    machine.explore(0..2_000, |machine| run(machine, 5, 0, 1 << 16, 10)).unwrap_or_else(|failure| panic!("{failure}"));
}
