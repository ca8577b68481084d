//! Times operations in many short rounds, and computes the median and the quartiles of the rounds.

use std::time::{Duration, Instant};

use anyhow::{Context, Result};
use rustix::thread::{CpuSet, sched_setaffinity};

use super::Measured;

/// How much a probe may do.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Rounds {
    /// Rounds of each probe.
    pub(crate) count: usize,
    /// Operations are repeated within a round for about so long.
    pub(crate) time: Duration,
}

impl Rounds {
    pub(crate) fn new(quick: bool) -> Self {
        if quick {
            Self { count: 5, time: Duration::from_micros(50) }
        } else {
            Self { count: 301, time: Duration::from_millis(1) }
        }
    }

    /// Returns the nanoseconds of one operation, for each round. `many(n)` must execute `n`
    /// operations.
    pub(crate) fn each(&self, mut many: impl FnMut(u64)) -> Vec<f64> {
        let mut n = 16;
        while {
            let start = Instant::now();
            many(n);
            start.elapsed() < self.time && n < 1 << 40
        } {
            n *= 2;
        }
        (0..self.count)
            .map(|_| {
                let start = Instant::now();
                many(n);
                start.elapsed().as_secs_f64() * 1e9 / n as f64
            })
            .collect()
    }
}

/// Median and quartiles.
pub(crate) fn summary(cost: &'static str, mut samples: Vec<f64>) -> Measured {
    samples.sort_by(f64::total_cmp);
    let at = |share: usize| samples[(samples.len() - 1) * share / 4];
    Measured { cost, value: at(2), low: at(1), high: at(3) }
}

/// The middle of some samples.
pub(crate) fn median(samples: Vec<f64>) -> f64 {
    summary("", samples).value
}

/// Keeps this thread on one CPU.
pub(crate) fn pin(cpu: usize) -> Result<()> {
    let mut set = CpuSet::new();
    set.set(cpu);
    sched_setaffinity(None, &set).with_context(|| format!("cannot stay on CPU {cpu}"))
}

/// Runs `body` on a thread of its own that stays on `cpu`.
pub(crate) fn on<R: Send>(cpu: usize, body: impl FnOnce() -> R + Send) -> Result<R> {
    std::thread::scope(|scope| {
        let thread = scope.spawn(|| {
            pin(cpu)?;
            Ok(body())
        });
        thread.join().unwrap_or_else(|panic| std::panic::resume_unwind(panic))
    })
}
