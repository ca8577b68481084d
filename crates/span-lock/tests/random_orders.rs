//! Virtual threads lock ranges in random orders. Checks that the threads exclude each other, and
//! that no write is lost. A lost wake-up would be a deadlock, which ends the run.
//!
//! Run with `RUSTFLAGS="--cfg pagefold_manycore"`; `MANYCORE_SEED` repeats an order.
#![cfg(pagefold_manycore)]

mod board;
mod work;

use board::Board;
use manycore::{Costs, Machine, Shape};
use span_lock::{LockRange, RangeLock};
use sync::atomic::{AtomicU64, Ordering};
use sync::random::Random;

fn machine(cpus: usize) -> Machine {
    Machine::new(Shape::new(1, cpus, 1).unwrap(), Costs::default()).unwrap().events_max(5_000_000)
}

fn run(machine: &Machine, tasks: usize, unit_bits: u32, stride: u64, turns: u64) -> Result<(), Box<manycore::Failure>> {
    let (lock, mut board, wrote) = (RangeLock::with_unit_bits(unit_bits), Board::new(12, stride), AtomicU64::new(0));
    machine.run_tasks(tasks, |task| {
        let mut random = Random::seeded(task as u64);
        for _ in 0..turns {
            let range = work::range(&mut random, 12, stride);
            wrote.fetch_add(work::one(&lock, &board, range, &mut random), Ordering::Relaxed);
        }
    })?;
    assert_eq!(board.sum(), wrote.into_inner(), "a write was lost");
    assert!(lock.try_write(LockRange::FULL).is_some(), "a range is still locked");
    Ok(())
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
