//! What two CPUs do to each other.

use std::hint::black_box;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::distance::{self, Distance, Placement};
use super::timing::Rounds;
use super::{Bench, shape, timing};

#[repr(align(128))]
struct Line(AtomicU64);

/// What measuring again may take, if the host moves the CPUs meanwhile.
const PATIENCE: Duration = Duration::from_secs(30);

/// Measures lines that another core has written, and how long a line stays with a core.
pub(crate) fn transfer(bench: &mut Bench) -> Result<()> {
    let first = shape::first();
    if let Some(other) = shape::other_socket(first) {
        let times = Distance::new(first, other)?.rounds(bench.rounds.count * 10)?;
        bench.add("transfer_machine", times);
    }
    let Some(other) = shape::other_core(first).or_else(|| shape::other_socket(first)) else { return Ok(()) };
    let placement = Placement::new(Distance::new(first, other)?, None, PATIENCE)?;
    let ((takes, together), looks) = placement.keep(|| {
        let takes = placement.distance().rounds(bench.rounds.count * 10)?;
        Ok((takes, adding(bench.rounds, first, other)?))
    })?;
    bench.notes.push(format!("a line took {:.1} and {:.1} ns between CPUs {first} and {other}", looks[0], looks[1]));
    if !distance::same(looks[0], looks[1]) {
        bench.notes.push("the host moved the CPUs meanwhile: what two of them do to each other is wrong".to_owned());
    }
    let ns = timing::median(takes.clone());
    if shape::other_core(first).is_some() {
        bench.add("transfer_socket", takes);
    }
    overlap(bench, ns, together)
}

/// Adds a note if the host has moved the CPUs since.
pub(crate) fn moved(bench: &mut Bench) -> Result<()> {
    let first = shape::first();
    let Some(other) = shape::other_core(first) else { return Ok(()) };
    let (before, now) = (bench.costs()?.transfer_socket, Distance::new(first, other)?.look()?);
    if !distance::same(before, now) {
        let what = "the host has moved the CPUs since: a line took";
        bench.notes.push(format!("{what} {before:.1} ns between {first} and {other}, and takes {now:.1} ns now"));
    }
    Ok(())
}

/// Measures `transfer_hold`: the part of a transfer's time during which the line is with the CPU
/// that received it, while two CPUs add to one number. Each CPU requests the line as soon as it has
/// lost it, so every request waits. `transfer_overlap`, which is for requests that needn't wait, is
/// assumed to be equal.
///
/// In the time of one transfer, the line changes hands once, and the two CPUs make `takes / ns`
/// additions. The holder makes them without waiting, and each takes `alone`. But the last addition
/// only has to begin before the line leaves, so half an addition is subtracted:
/// `hold = (takes / ns - 0.5) * alone / takes`.
fn overlap(bench: &mut Bench, takes: f64, together: Vec<f64>) -> Result<()> {
    let costs = bench.costs()?;
    let alone = costs.rmw + costs.line_hit;
    let share = |ns: f64| ((takes / ns - 0.5) * alone / takes).clamp(0.0, 1.0);
    let both = timing::median(together.clone());
    let what = "two CPUs that add to one number take";
    bench.notes.push(format!("{what} {both:.1} ns for each addition, one alone {alone:.1} ns"));
    let shares: Vec<f64> = together.into_iter().map(share).collect();
    bench.add("transfer_hold", shares.clone());
    bench.add("transfer_overlap", shares);
    Ok(())
}

/// Nanoseconds for an addition, while two CPUs add to one number.
fn adding(rounds: Rounds, first: usize, other: usize) -> Result<Vec<f64>> {
    let number = Line(AtomicU64::new(0));
    let stop = AtomicU64::new(0);
    let add = |n: u64| (0..n).for_each(|_| _ = black_box(number.0.fetch_add(1, Ordering::AcqRel)));
    std::thread::scope(|scope| {
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
    })
}

/// Measures how many times longer a computation takes while another CPU computes as well. Siblings
/// (two CPUs of one core) slow each other down; other CPUs hardly do.
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
        "CPUs {first} and {other} are {kind} by the system's word; beside each other each computes {factor:.2} times \
         as long"
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
