//! Latency and bandwidth of caches and memory.
//!
//! The rates are those of `SharedBytes`'s copy, which Pagefold uses, into a buffer that is in the
//! first-level cache.

use std::hint::black_box;
use std::sync::Barrier;
use std::sync::atomic::Ordering::Relaxed;
use std::time::Instant;

use anyhow::Result;
use sync::SharedBytes;

use super::arena::{Arena, PAGE_WORDS, shuffled};
use super::timing::Rounds;
use super::{Bench, shape, timing};
use crate::peers::PAGE;
use crate::placed::Placed;

/// Far more than any cache.
const FAR: usize = 256 << 20;

/// Measures caches and memory. One probe measures both latencies and rates, because [`rate`] needs
/// the latency.
pub(crate) fn levels(bench: &mut Bench) -> Result<()> {
    latencies(bench)?;
    rates(bench)
}

/// Adds the sizes of the caches, the latency of a line in the socket's cache, and that of a line in
/// memory.
fn latencies(bench: &mut Bench) -> Result<()> {
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

/// Returns a size that fits into the larger cache, but not into the smaller one.
fn between(smaller: usize, larger: usize) -> usize {
    (smaller * 4).min(larger / 2).max(smaller + smaller / 2)
}

/// Pages that are copied out of one level of the memory.
struct Source {
    cost: &'static str,
    arena: Arena,
    order: Vec<usize>,
    next: usize,
    latency: f64,
    rates: Vec<f64>,
}

impl Source {
    fn new(cost: &'static str, bytes: usize, latency: f64) -> Result<Self> {
        let arena = Arena::new(bytes)?;
        Ok(Self { cost, arena, order: shuffled(bytes / PAGE), next: 0, latency, rates: Vec::new() })
    }

    fn measure(&mut self, rounds: Rounds, into: &mut [u8]) {
        let times = rounds.each(|n| {
            for _ in 0..n {
                SharedBytes::new(self.arena.page(self.order[self.next])).copy_to(0, into);
                self.next = (self.next + 1) % self.order.len();
            }
        });
        self.rates.extend(times.into_iter().map(|ns| rate(ns, self.latency)));
    }
}

/// Returns bytes per nanosecond: copying a page takes `ns`, of which `latency` is for its first
/// line.
fn rate(ns: f64, latency: f64) -> f64 {
    PAGE as f64 / (ns - latency).max(ns / 2.0)
}

/// Rounds in a turn of [`rates`].
const TURN: usize = 7;

/// Measures how fast one core copies bytes out of each level of the memory. Each turn measures all
/// levels, and has another target. See [`placed`](crate::placed) for why some targets are much
/// slower than others. Most targets are fast, so the median over all turns is that of a fast one.
fn rates(bench: &mut Bench) -> Result<()> {
    let (caches, costs) = (shape::caches(), bench.costs()?);
    let mut sources = [
        Source::new("first_cache_rate", PAGE, costs.line_hit)?,
        Source::new("core_cache_rate", between(caches.first, caches.core), costs.line_hit)?,
        Source::new("socket_cache_rate", between(caches.core, caches.socket), costs.socket_hit)?,
        Source::new("memory_read_rate", FAR, costs.first_touch)?,
    ];
    let rounds = Rounds { count: TURN, ..bench.rounds };
    let turns = bench.rounds.count.div_ceil(TURN);
    for turn in 0..turns {
        // Of 16 bytes, as allocators have them.
        let mut target = Placed::new(PAGE, turn * (PAGE / 16) / turns * 16);
        sources.iter_mut().for_each(|source| source.measure(rounds, target.bytes()));
    }
    for source in sources {
        bench.add(source.cost, source.rates);
    }
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
            // SAFETY: both are whole pages of the arena, which only this thread uses; if they are
            // the same page, `copy` allows it.
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

/// Returns the bytes per nanosecond that these CPUs read together. Each reads its own part of the
/// arena.
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
                    let mut into = Placed::between_pages(PAGE);
                    let mut rates = Vec::new();
                    for _ in 0..count {
                        gate.wait();
                        let start = Instant::now();
                        for page in words.chunks_exact(PAGE_WORDS) {
                            SharedBytes::new(page).copy_to(0, into.bytes());
                        }
                        rates.push(part as f64 * 8.0 / (start.elapsed().as_secs_f64() * 1e9));
                        black_box(into.bytes());
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
