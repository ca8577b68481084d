//! The residual, from a reference workload: lookups in a table of atomics.
//!
//! The workload is written once and compiled twice: with the real atomics, and with `manycore`'s.
//! An operation hashes a number, compares it with two words of a slot, and increments a counter;
//! every eighth operation also swaps a word. The residual is the time of an operation on one real
//! CPU, minus its time on one virtual CPU without a residual, divided by the number of events in
//! the operation.

use std::hint::black_box;

use anyhow::{Context, Result};
use manycore::Machine;

use super::{Bench, shape, timing};

/// Slots of the table: 16 KiB, which is in the first-level cache.
const SLOTS: usize = 1024;

macro_rules! reference {
    ($name:ident, $($atomics:tt)+) => {
        pub(super) mod $name {
            use $($atomics)+::{AtomicU64, Ordering::{AcqRel, Acquire, Relaxed, Release}};

            /// A key and a value.
            pub(crate) struct Slot(AtomicU64, AtomicU64);

            pub(crate) struct Table {
                slots: Vec<Slot>,
                counter: AtomicU64,
                word: AtomicU64,
            }

            impl Table {
                pub(crate) fn new(slots: usize) -> Self {
                    let slots = (0..slots as u64).map(|n| Slot(AtomicU64::new(n), AtomicU64::new(n ^ 1))).collect();
                    Self { slots, counter: AtomicU64::new(0), word: AtomicU64::new(0) }
                }

                /// One operation, with 4 accesses or 5.
                #[inline]
                pub(crate) fn operation(&self, number: u64) -> bool {
                    let key = (number.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 20) % self.slots.len() as u64;
                    let slot = &self.slots[key as usize];
                    let found = slot.0.load(Acquire) == key && slot.1.load(Relaxed) == key ^ 1;
                    self.counter.store(self.counter.load(Relaxed) + 1, Release);
                    if number % 8 == 0 {
                        self.word.swap(number, AcqRel);
                    }
                    found
                }
            }
        }
    };
}

reference!(real, std::sync::atomic);
reference!(modelled, manycore);

/// See the [module](self).
pub(crate) fn residual(bench: &mut Bench) -> Result<()> {
    let table = real::Table::new(SLOTS);
    let rounds = bench.rounds;
    let times = timing::on(shape::first(), || {
        let mut number = 0;
        rounds.each(|n| {
            for _ in 0..n {
                number += 1;
                black_box(table.operation(number));
            }
        })
    })?;
    let costs = bench.costs()?.with("residual", 0.0)?.with("jitter", 0.0)?;
    let (virtual_ns, events) = modelled_time(&Machine::new(bench.shape, costs)?)?;
    let real_ns = timing::median(times.clone());
    bench.notes.push(format!(
        "residual: the reference workload takes {real_ns:.2} ns on a real CPU, {virtual_ns:.2} ns on a virtual one \
         without"
    ));
    if real_ns < virtual_ns {
        bench.notes.push("the costs explain more time than there is; the residual is 0".to_owned());
    }
    bench.add("residual", times.into_iter().map(|ns| ((ns - virtual_ns) / events).max(0.0)).collect());
    Ok(())
}

/// Nanoseconds and events of one operation on one virtual CPU.
fn modelled_time(machine: &Machine) -> Result<(f64, f64)> {
    const OPERATIONS: u64 = 8000;
    let table = modelled::Table::new(SLOTS);
    let run = |rounds: u64| {
        machine.run_tasks(1, |_| {
            for number in 1..=rounds * OPERATIONS {
                black_box(table.operation(number));
            }
        })
    };
    // Both runs contain the first touches of the lines, so the difference doesn't.
    let once = run(1).context("the reference workload doesn't run")?;
    let twice = run(2).context("the reference workload doesn't run")?;
    let each = |more: f64| more / OPERATIONS as f64;
    Ok((each(twice.elapsed_ns - once.elapsed_ns), each((twice.events - once.events) as f64)))
}

#[cfg(test)]
mod tests {
    use super::*;
    use manycore::{Costs, Shape};

    #[test]
    fn an_operation_has_four_accesses_and_an_eighth() {
        let costs = Costs { residual: 0.0, jitter: 0.0, line_hit: 2.0, rmw: 8.0, ..Costs::default() };
        let machine = Machine::new(Shape::new(1, 1, 1).unwrap(), costs).unwrap();
        let (ns, events) = modelled_time(&machine).unwrap();
        assert!((events - 4.125).abs() < 1e-9, "{events}");
        assert!((ns - (4.125 * 2.0 + 1.0)).abs() < 1e-3, "{ns}");
        assert!((1..1000).all(|number| real::Table::new(16).operation(number)));
    }
}
