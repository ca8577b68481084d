//! The cost of calls of the operating system.

use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::thread;
use std::time::{Duration, Instant};

use anyhow::Result;
use rustix::time::{ClockId, clock_gettime};

use super::{Bench, shape, timing};

/// Measures yielding, a switch between threads on one CPU, and the start of a thread.
pub(crate) fn calls(bench: &mut Bench) -> Result<()> {
    let rounds = bench.rounds;
    let cpu = shape::first();
    let yielding = move || rounds.each(|n| (0..n).for_each(|_| thread::yield_now()));
    let alone = timing::on(cpu, yielding)?;
    let alone = bench.add("yield_call", alone);
    let stop = AtomicBool::new(false);
    let both = thread::scope(|scope| {
        let other = scope.spawn(|| {
            let pinned = timing::pin(cpu);
            while !stop.load(Ordering::Relaxed) {
                thread::yield_now();
            }
            pinned
        });
        // Each yield runs the other thread, which yields too.
        let times = timing::on(cpu, yielding);
        stop.store(true, Ordering::Relaxed);
        other.join().expect("the thread doesn't panic")?;
        times
    })?;
    bench.add("context_switch", both.into_iter().map(|ns| (ns / 2.0 - alone).max(0.0)).collect());
    let starts = (0..rounds.count).map(|_| {
        let start = Instant::now();
        let started = thread::spawn(|| ());
        let time = start.elapsed();
        started.join().expect("the thread doesn't panic");
        time.as_secs_f64() * 1e9
    });
    let starts = starts.collect();
    bench.add("thread_start", starts);
    Ok(())
}

/// Measures parking, waking a parked thread, and the time until the woken thread runs.
pub(crate) fn waking(bench: &mut Bench) -> Result<()> {
    let first = shape::first();
    let Some(other) = shape::other_core(first).or_else(|| shape::sibling(first)) else { return Ok(()) };
    let count = bench.rounds.count as u64;
    let start = Instant::now();
    let now = move || start.elapsed().as_nanos() as u64;
    let (seen, parks) = (AtomicU64::new(0), AtomicU64::new(0));
    let (mut calls, mut delays) = (Vec::new(), Vec::new());
    let parked = thread::scope(|scope| -> Result<f64> {
        let sleeper = scope.spawn(|| -> Result<f64> {
            timing::pin(other)?;
            let before = thread_time();
            for _ in 0..count {
                thread::park();
                seen.store(now(), Ordering::Release);
                parks.fetch_add(1, Ordering::Relaxed);
            }
            Ok((thread_time() - before).as_secs_f64() * 1e9 / count as f64)
        });
        timing::pin(first)?;
        for _ in 0..count {
            // Long enough for the other one to be parked.
            let until = Instant::now() + Duration::from_micros(100);
            while Instant::now() < until {}
            seen.store(0, Ordering::Relaxed);
            let asked = now();
            sleeper.thread().unpark();
            let done = now();
            let woken = loop {
                match seen.load(Ordering::Acquire) {
                    0 => std::hint::spin_loop(),
                    woken => break woken,
                }
            };
            calls.push((done - asked) as f64);
            delays.push(woken.saturating_sub(done) as f64);
        }
        sleeper.join().expect("the thread doesn't panic")
    });
    // The main thread goes on where it likes.
    shape::unpin()?;
    bench.add("park_call", vec![parked?]);
    bench.add("wake_call", calls);
    bench.add("wake_up", delays);
    Ok(())
}

/// This thread's CPU time.
fn thread_time() -> Duration {
    let time = clock_gettime(ClockId::ThreadCPUTime);
    Duration::new(time.tv_sec.unsigned_abs(), u32::try_from(time.tv_nsec).unwrap_or(0))
}
