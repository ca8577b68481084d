//! The cost of single instructions on cache lines that the core has in its own cache.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU64, Ordering, fence};
use std::time::Instant;

use anyhow::Result;

use super::Bench;

const WORDS: usize = 512;

/// Measures a hit, a read-modify-write, a fence, a pause, and reading the clock.
///
/// The time of a hit is measured over many independent loads and stores, because most accesses in
/// real code are independent of each other. The model itself doesn't let hits overlap.
pub(crate) fn instructions(bench: &mut Bench) -> Result<()> {
    let rounds = bench.rounds;
    let words: Vec<AtomicU64> = (0..WORDS as u64).map(AtomicU64::new).collect();
    let words = &words[..];
    let hit = bench.add(
        "line_hit",
        rounds.each(|n| {
            for at in 0..n as usize / 2 {
                let word = &words[at % WORDS];
                word.store(word.load(Ordering::Relaxed) | 1, Ordering::Relaxed);
            }
        }),
    );
    let less = |samples: Vec<f64>, less: f64| samples.into_iter().map(|ns| (ns - less).max(0.0)).collect();
    let update = rounds.each(|n| {
        for at in 0..n as usize {
            black_box(words[at % WORDS].fetch_add(1, Ordering::AcqRel));
        }
    });
    bench.add("rmw", less(update, hit));
    let fenced = rounds.each(|n| {
        for at in 0..n as usize {
            // The compiler merges fences with nothing between them.
            words[at % WORDS].store(1, Ordering::Relaxed);
            fence(Ordering::SeqCst);
        }
    });
    bench.add("fence", less(fenced, hit));
    bench.add("pause", rounds.each(|n| (0..n).for_each(|_| spin_loop())));
    bench.add("clock_read", rounds.each(|n| (0..n).for_each(|_| _ = black_box(Instant::now()))));
    Ok(())
}
