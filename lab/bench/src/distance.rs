//! How far two CPUs are from each other: what a line takes that the other one has written.
//!
//! A virtual machine's CPUs don't stay where they are: its host moves them, between neighbouring
//! cores and ones with other caches in between, and a line then takes several times as long. What
//! two CPUs do to each other can only be compared where that is the same, so it is measured before
//! and after.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use crate::calibrate::{Arena, median, on, pin};
use crate::peers::PAGE;

/// Lines handed over in a round.
const LINES: u64 = 256;
/// Rounds for one look at the distance: it takes a millisecond or two.
const ROUNDS: usize = 25;
/// Distances that differ by less than a quarter are one.
const SAME: f64 = 1.25;

/// Whether two transfers took about as long.
pub(crate) fn same(a: f64, b: f64) -> bool {
    a.max(b) <= SAME * a.min(b)
}

/// Two CPUs, and lines to hand over.
pub(crate) struct Distance {
    arena: Arena,
    order: Vec<usize>,
    reader: usize,
    writer: usize,
}

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

impl Distance {
    /// Of a CPU that reads from one that writes.
    pub(crate) fn new(reader: usize, writer: usize) -> Result<Self> {
        let arena = Arena::new(LINES as usize * PAGE)?;
        let order = arena.link_pages();
        Ok(Self { arena, order, reader, writer })
    }

    /// Nanoseconds for a line, round by round: one line after the other, as each names the next.
    pub(crate) fn rounds(&self, rounds: usize) -> Result<Vec<f64>> {
        let turn = Turn(AtomicU64::new(0));
        std::thread::scope(|scope| {
            let (arena, order, turn) = (&self.arena, &self.order, &turn);
            let writer = scope.spawn(move || {
                let pinned = pin(self.writer);
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
            let times = on(self.reader, || {
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

    /// Nanoseconds for a line, now.
    pub(crate) fn look(&self) -> Result<f64> {
        Ok(median(self.rounds(ROUNDS)?))
    }
}

/// Keeps runs to one distance, as far as the host lets it.
pub(crate) struct Placement {
    distance: Distance,
    wanted: f64,
    patience: Duration,
    waited_ns: AtomicU64,
    repeated: AtomicU32,
}

impl Placement {
    /// Runs count in which a line took about `wanted` ns, or as long as now. What waiting and
    /// repeating takes may add up to `patience`.
    pub(crate) fn new(distance: Distance, wanted: Option<f64>, patience: Duration) -> Result<Self> {
        let wanted = match wanted {
            Some(wanted) => wanted,
            None => distance.look()?,
        };
        Ok(Self { distance, wanted, patience, waited_ns: AtomicU64::new(0), repeated: AtomicU32::new(0) })
    }

    /// Of which CPUs.
    pub(crate) fn distance(&self) -> &Distance {
        &self.distance
    }

    /// Makes a run between two looks at the distance, and again if that wasn't as wanted. The run,
    /// and what a line took before and after.
    pub(crate) fn keep<R>(&self, mut run: impl FnMut() -> Result<R>) -> Result<(R, [f64; 2])> {
        loop {
            let start = Instant::now();
            let mut before = self.distance.look()?;
            while !same(before, self.wanted) && !self.is_tired(start) {
                std::thread::sleep(Duration::from_millis(20));
                before = self.distance.look()?;
            }
            let result = run()?;
            let looks = [before, self.distance.look()?];
            if looks.iter().all(|&look| same(look, self.wanted)) || self.is_tired(start) {
                return Ok((result, looks));
            }
            // Relaxed, here and below: one thread makes all runs.
            self.waited_ns.fetch_add(start.elapsed().as_nanos() as u64, Ordering::Relaxed);
            self.repeated.fetch_add(1, Ordering::Relaxed);
        }
    }

    fn is_tired(&self, start: Instant) -> bool {
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)) + start.elapsed() >= self.patience
    }

    /// How it went, in half a sentence.
    pub(crate) fn report(&self) -> String {
        let (wanted, repeated) = (self.wanted, self.repeated.load(Ordering::Relaxed));
        format!("CPUs {wanted:.0} ns from each other, {repeated} runs made again as they weren't")
    }
}
