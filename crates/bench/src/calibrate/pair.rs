//! What two CPUs do to each other.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use anyhow::Result;

use super::arena::Arena;
use super::{Bench, shape, timing};
use crate::peers::PAGE;

/// Lines handed over in a round.
const LINES: u64 = 256;

#[repr(align(128))]
struct Turn(AtomicU64);

impl Turn {
    fn wait(&self, turn: u64) {
        // Acquire pairs with the Release in `pass`.
        while self.0.load(Ordering::Acquire) != turn {
            spin_loop();
        }
    }

    fn pass(&self, turn: u64) {
        self.0.store(turn, Ordering::Release);
    }
}

/// Lines that another core has written: one after the other, as each names the next.
pub(crate) fn transfer(bench: &mut Bench) -> Result<()> {
    let first = shape::first();
    let mut measure = |cost, other: Option<usize>| -> Result<()> {
        if let Some(other) = other {
            let times = between(first, other, bench.rounds.count * 10)?;
            let value = bench.add(cost, times);
            bench
                .notes
                .push(format!("{cost}: CPUs {first} and {other}, {value:.1} ns for a line the other has written"));
        }
        Ok(())
    };
    measure("transfer_socket", shape::other_core(first))?;
    measure("transfer_machine", shape::other_socket(first))?;
    match shape::other_core(first).or_else(|| shape::other_socket(first)) {
        Some(other) => overlap(bench, first, other),
        None => Ok(()),
    }
}

/// How much of a transfer the owner uses the line in, from two CPUs that add to one number.
///
/// With an overlap `o` above a half, a transfer's time `t` apart, each has the line for `(2o - 1)t` and nobody for
/// `(1 - o)t`; so it is in use for `(2o - 1)/o` of the time, which is the time of an addition alone over that of one of
/// both CPUs' together. With less, each makes one addition and the line is on its way for `(1 - o)t`.
fn overlap(bench: &mut Bench, first: usize, other: usize) -> Result<()> {
    let costs = bench.costs()?;
    let (alone, takes) = (costs.rmw + costs.line_hit, costs.transfer_socket);
    let number = Turn(AtomicU64::new(0));
    let stop = AtomicU64::new(0);
    let rounds = bench.rounds;
    let add = |n: u64| (0..n).for_each(|_| _ = black_box(number.0.fetch_add(1, Ordering::AcqRel)));
    let together = std::thread::scope(|scope| {
        let rival = scope.spawn(|| {
            let pinned = timing::pin(other);
            while stop.load(Ordering::Relaxed) == 0 {
                add(100);
            }
            pinned
        });
        let times = timing::on(first, || {
            (0..rounds.count)
                .map(|_| {
                    let (start, before) = (Instant::now(), number.0.load(Ordering::Relaxed));
                    while start.elapsed() < rounds.time {
                        add(100);
                    }
                    let time = start.elapsed().as_secs_f64() * 1e9;
                    time / (number.0.load(Ordering::Relaxed) - before) as f64
                })
                .collect::<Vec<f64>>()
        });
        stop.store(1, Ordering::Relaxed);
        rival.join().expect("the thread doesn't panic")?;
        times
    })?;
    let share = |ns: f64| {
        let ns = ns.max(alone);
        let one_each = 1.0 - (ns - alone) / takes;
        if one_each < 0.5 { one_each.max(0.0) } else { 1.0 / (2.0 - alone / ns) }
    };
    bench.notes.push(format!(
        "two CPUs that add to one number take {:.1} ns for each addition, one alone {alone:.1} ns",
        timing::median(together.clone())
    ));
    bench.add("transfer_overlap", together.into_iter().map(share).collect());
    Ok(())
}

fn between(reader: usize, writer: usize, rounds: usize) -> Result<Vec<f64>> {
    let arena = Arena::new(LINES as usize * PAGE)?;
    let order = arena.link_pages();
    let turn = Turn(AtomicU64::new(0));
    std::thread::scope(|scope| {
        let (arena, order, turn) = (&arena, &order, &turn);
        let writer = scope.spawn(move || {
            let pinned = timing::pin(writer);
            for round in 0..rounds as u64 {
                turn.wait(2 * round);
                for word in order.iter().map(|&at| &arena.words()[at]) {
                    // A store of what is there takes the line as well.
                    word.store(word.load(Ordering::Relaxed), Ordering::Relaxed);
                }
                turn.pass(2 * round + 1);
            }
            pinned
        });
        let times = timing::on(reader, || {
            let times = (0..rounds as u64).map(|round| {
                turn.wait(2 * round + 1);
                let start = Instant::now();
                black_box(arena.chase(order[0] as u64, LINES));
                let time = start.elapsed();
                turn.pass(2 * round + 2);
                time.as_secs_f64() * 1e9 / LINES as f64
            });
            times.collect()
        });
        writer.join().expect("the thread doesn't panic")?;
        times
    })
}

/// How much longer a CPU computes while another one does: siblings of one core share it; others hardly.
pub(crate) fn slowdown(bench: &mut Bench) -> Result<()> {
    let first = shape::first();
    let Some(other) = shape::sibling(first).or_else(|| shape::other_core(first)) else { return Ok(()) };
    let is_sibling = shape::sibling(first) == Some(other);
    let rounds = bench.rounds;
    let alone = timing::median(timing::on(first, || rounds.each(compute))?);
    let stop = AtomicU64::new(0);
    let beside = std::thread::scope(|scope| {
        let busy = scope.spawn(|| {
            let pinned = timing::pin(other);
            while stop.load(Ordering::Relaxed) == 0 {
                compute(1000);
            }
            pinned
        });
        let times = timing::on(first, || rounds.each(compute));
        stop.store(1, Ordering::Relaxed);
        busy.join().expect("the thread doesn't panic")?;
        times
    })?;
    let factors: Vec<f64> = beside.into_iter().map(|ns| (ns / alone).max(1.0)).collect();
    let factor = timing::median(factors.clone());
    let kind = if is_sibling { "siblings of one core" } else { "two cores" };
    bench.notes.push(format!(
        "CPUs {first} and {other} are {kind} by the system's word; beside each other each computes {factor:.2} times as long"
    ));
    if is_sibling {
        bench.add("sibling_slowdown", factors);
    } else if factor > 1.2 {
        bench.notes.push("so much for two cores is doubtful: a virtual machine's CPUs may be siblings".to_owned());
    }
    Ok(())
}

/// Arithmetic with some parallelism, and loads and stores that hit.
fn compute(n: u64) {
    let mut lanes = [1_u64, 2, 3, 4];
    let mut memory = [0_u64; 64];
    for at in 0..n {
        for lane in &mut lanes {
            *lane = lane.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (*lane >> 29);
        }
        memory[(at % 64) as usize] = memory[(lanes[0] % 64) as usize].wrapping_add(lanes[1]);
    }
    black_box((lanes, memory));
}
