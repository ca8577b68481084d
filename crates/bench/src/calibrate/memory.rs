//! Latency and bandwidth of caches and memory.
//!
//! Rates are what the product's own copy out of shared bytes reaches, into a buffer that is in the first-level cache.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use anyhow::Result;
use sync::SharedBytes;

use super::arena::{Arena, PAGE_WORDS, shuffled};
use super::{Bench, shape, timing};
use crate::peers::PAGE;

/// Far more than any cache.
const FAR: usize = 256 << 20;

/// The sizes of the caches, a line out of the socket's, and one out of memory.
pub(crate) fn latencies(bench: &mut Bench) -> Result<()> {
    let caches = shape::caches();
    bench.add("first_cache", vec![caches.first as f64]);
    bench.add("core_cache", vec![caches.core as f64]);
    bench.add("socket_cache", vec![caches.socket as f64]);
    let latency = |bytes: usize| -> Result<Vec<f64>> {
        let arena = Arena::new(bytes)?;
        arena.link(bytes / 64);
        let mut at = arena.chase(0, bytes.min(32 << 20) as u64 / 64);
        Ok(bench.rounds.each(|n| at = arena.chase(at, n)))
    };
    let socket = latency(between(caches.core, caches.socket))?;
    let memory = latency(FAR)?;
    bench.add("socket_hit", socket);
    bench.add("first_touch", memory);
    Ok(())
}

/// A size that doesn't fit into the smaller cache, and does into the larger.
fn between(smaller: usize, larger: usize) -> usize {
    (smaller * 4).min(larger / 2).max(smaller + smaller / 2)
}

/// What one core moves, by where the bytes lie.
pub(crate) fn rates(bench: &mut Bench) -> Result<()> {
    let caches = shape::caches();
    let costs = bench.costs()?;
    let rate = |ns: f64, latency: f64| PAGE as f64 / (ns - latency).max(ns / 2.0);
    let read = |bytes: usize, latency: f64| -> Result<Vec<f64>> {
        let arena = Arena::new(bytes)?;
        let order = shuffled(bytes / PAGE);
        let mut into = vec![0; PAGE];
        let mut at = 0;
        let times = bench.rounds.each(|n| {
            for _ in 0..n {
                SharedBytes::new(arena.page(order[at])).copy_to(0, &mut into);
                at = (at + 1) % order.len();
            }
        });
        Ok(times.into_iter().map(|ns| rate(ns, latency)).collect())
    };
    let first = read(PAGE, costs.line_hit)?;
    let core = read(between(caches.first, caches.core), costs.line_hit)?;
    let socket = read(between(caches.core, caches.socket), costs.socket_hit)?;
    let memory = read(FAR, costs.first_touch)?;
    bench.add("first_cache_rate", first);
    bench.add("core_cache_rate", core);
    bench.add("socket_cache_rate", socket);
    bench.add("memory_read_rate", memory);
    let arena = Arena::new(FAR)?;
    let order = shuffled(FAR / PAGE);
    let mut at = 0;
    let mut next = || {
        at = (at + 1) % order.len();
        order[at]
    };
    let copy = bench.rounds.each(|n| {
        for _ in 0..n {
            let (from, to) = (arena.page(next()), arena.page(next()));
            // SAFETY: both are whole pages of the arena, which only this thread uses; if they are the same page, `copy`
            // allows it.
            unsafe { std::ptr::copy(from.as_ptr(), to.as_ptr().cast_mut(), PAGE_WORDS) };
        }
    });
    let zero = bench.rounds.each(|n| {
        for _ in 0..n {
            let page = arena.page(next());
            // SAFETY: as above; zero is a value of an atomic.
            unsafe { std::ptr::write_bytes(page.as_ptr().cast_mut(), 0, PAGE_WORDS) };
        }
    });
    bench.add("copy_rate", copy.into_iter().map(|ns| rate(ns, 0.0)).collect());
    bench.add("zero_rate", zero.into_iter().map(|ns| rate(ns, 0.0)).collect());
    Ok(())
}

/// What memory moves for one CPU and for all of a socket, reading.
pub(crate) fn bandwidth(bench: &mut Bench) -> Result<()> {
    let arena = Arena::new(FAR)?;
    let cpus = shape::of_one_socket(&bench.shape);
    let one = timing::median(moved(bench, &arena, &cpus[..1])?);
    let all = moved(bench, &arena, &cpus)?;
    let all = bench.add("memory_bandwidth", all);
    bench.notes.push(format!(
        "memory_bandwidth is what {} CPUs read at once; one alone reads {one:.1} bytes/ns, so the bus may have room",
        cpus.len(),
    ));
    if all < one {
        bench.notes.push("all CPUs together read less than one alone: somebody else was at work".to_owned());
    }
    Ok(())
}

/// Bytes a nanosecond that these CPUs read together, each its own part of the arena.
fn moved(bench: &Bench, arena: &Arena, cpus: &[usize]) -> Result<Vec<f64>> {
    let part = arena.words().len() / cpus.len();
    let gate = Barrier::new(cpus.len());
    let count = bench.rounds.count.div_ceil(10);
    let results: Vec<Result<Vec<f64>>> = std::thread::scope(|scope| {
        let threads: Vec<_> = cpus
            .iter()
            .enumerate()
            .map(|(number, &cpu)| {
                let gate = &gate;
                scope.spawn(move || {
                    let pinned = timing::pin(cpu);
                    let words = &arena.words()[number * part..][..part];
                    let mut into = vec![0; PAGE];
                    let mut rates = Vec::new();
                    for _ in 0..count {
                        gate.wait();
                        let start = Instant::now();
                        for page in words.chunks_exact(PAGE_WORDS) {
                            SharedBytes::new(page).copy_to(0, &mut into);
                        }
                        rates.push(part as f64 * 8.0 / (start.elapsed().as_secs_f64() * 1e9));
                        black_box(&into);
                    }
                    pinned.map(|()| rates)
                })
            })
            .collect();
        threads.into_iter().map(|thread| thread.join().expect("the thread doesn't panic")).collect()
    });
    let rates = results.into_iter().collect::<Result<Vec<_>>>()?;
    // Keeps the words from being taken for untouched.
    arena.words()[0].store(1, Relaxed);
    Ok((0..count).map(|round| rates.iter().map(|rates| rates[round]).sum()).collect())
}
