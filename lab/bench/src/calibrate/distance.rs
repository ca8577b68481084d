//! The distance of two CPUs: how long it takes one CPU to get a cache line that the other has
//! written.
//!
//! A virtual machine's CPUs don't stay on the same cores of the host. If the host moves two CPUs to
//! cores that are further apart, the transfer of a line takes several times as long. Measurements
//! of how two CPUs affect each other can be compared only at the same distance. So the distance is
//! measured before and after each run.

use std::hint::{black_box, spin_loop};
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Result;

use super::{Arena, median, on, pin};
use crate::peers::PAGE;

/// Lines handed over in a round.
const LINES: u64 = 256;
/// Rounds for one look at the distance: it takes a millisecond or two.
const ROUNDS: usize = 25;
/// Two distances count as the same if they differ by at most this factor.
const SAME: f64 = 1.25;
/// The same for a [`Placement`] with a wanted distance: runs that differ by more are dropped.
const NEARLY: f64 = 1.1;

/// Whether two transfers took about as long.
pub(crate) fn same(a: f64, b: f64) -> bool {
    is_within(SAME, a, b)
}

fn is_within(factor: f64, a: f64, b: f64) -> bool {
    a.max(b) <= factor * a.min(b)
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
    /// The distance of a CPU that reads from one that writes.
    pub(crate) fn new(reader: usize, writer: usize) -> Result<Self> {
        let arena = Arena::new(LINES as usize * PAGE)?;
        let order = arena.link_pages();
        Ok(Self { arena, order, reader, writer })
    }

    /// Returns the nanoseconds for the transfer of a line, for each round. The lines are
    /// transferred one after the other, because each holds the place of the next.
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
    /// Whether runs at another distance never count, not even after `patience` has passed.
    is_strict: bool,
    patience: Duration,
    waited_ns: AtomicU64,
    dropped: AtomicU32,
}

impl Placement {
    /// With `wanted`, a run counts only if the transfer of a line takes `wanted` ns, to within a
    /// tenth. Without it, every run counts, but runs are preferred in which a transfer takes about
    /// as long as it does now. Waiting and repeating may take up to `patience` in total.
    pub(crate) fn new(distance: Distance, wanted: Option<f64>, patience: Duration) -> Result<Self> {
        let (is_strict, wanted) = match wanted {
            Some(wanted) => (true, wanted),
            None => (false, distance.look()?),
        };
        let (waited_ns, dropped) = (AtomicU64::new(0), AtomicU32::new(0));
        Ok(Self { distance, wanted, is_strict, patience, waited_ns, dropped })
    }

    /// Of which CPUs.
    pub(crate) fn distance(&self) -> &Distance {
        &self.distance
    }

    /// Measures the distance, makes a run, and measures the distance again. Repeats all of this if
    /// one of the two distances isn't the wanted one. Returns the run's result, and both distances.
    /// After `patience` has passed, the result may be that of a run that doesn't
    /// [count](Self::counts).
    pub(crate) fn keep<R>(&self, mut run: impl FnMut() -> Result<R>) -> Result<(R, [f64; 2])> {
        loop {
            let start = Instant::now();
            let mut before = self.distance.look()?;
            while !self.is_wanted(before) && !self.is_tired(start) {
                std::thread::sleep(Duration::from_millis(20));
                before = self.distance.look()?;
            }
            let waited = start.elapsed();
            let result = run()?;
            let looks = [before, self.distance.look()?];
            let (is_kept, is_tired) = (looks.iter().all(|&look| self.is_wanted(look)), self.is_tired(start));
            let is_dropped = !is_kept && (self.is_strict || !is_tired);
            let wasted = if is_kept { waited } else { start.elapsed() };
            // Relaxed, here and below: one thread makes all runs.
            self.waited_ns.fetch_add(wasted.as_nanos() as u64, Ordering::Relaxed);
            self.dropped.fetch_add(u32::from(is_dropped), Ordering::Relaxed);
            if is_kept || is_tired {
                return Ok((result, looks));
            }
        }
    }

    /// Returns whether a run counts, given the distances before and after it.
    pub(crate) fn counts(&self, looks: [f64; 2]) -> bool {
        !self.is_strict || looks.iter().all(|&look| self.is_wanted(look))
    }

    fn is_wanted(&self, look: f64) -> bool {
        is_within(if self.is_strict { NEARLY } else { SAME }, look, self.wanted)
    }

    fn is_tired(&self, start: Instant) -> bool {
        Duration::from_nanos(self.waited_ns.load(Ordering::Relaxed)) + start.elapsed() >= self.patience
    }

    /// How many runs were dropped: made again, or left out.
    pub(crate) fn dropped(&self) -> u32 {
        self.dropped.load(Ordering::Relaxed)
    }

    /// How it went, in half a sentence.
    pub(crate) fn report(&self) -> String {
        format!("CPUs {:.0} ns from each other, {} runs dropped as they weren't", self.wanted, self.dropped())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::scaling::stage::allowed_cpus;

    /// Time that no line takes from one CPU to the other.
    const NEVER_NS: f64 = 1e12;

    #[test]
    fn runs_at_another_distance_are_dropped_if_a_distance_was_asked_for() {
        let [first, second, ..] = allowed_cpus()[..] else { return println!("not here: two CPUs") };
        let placement = |wanted| {
            let distance = Distance::new(first, second).expect("memory");
            Placement::new(distance, wanted, Duration::ZERO).expect("threads")
        };
        let strict = placement(Some(NEVER_NS));
        let ((), looks) = strict.keep(|| Ok(())).expect("a run");
        assert!(!strict.counts(looks) && strict.dropped() == 1);
        assert!(strict.waited_ns.load(Ordering::Relaxed) > 0, "the next run would have the same patience again");
        assert!(strict.counts([0.92 * NEVER_NS, 1.08 * NEVER_NS]) && !strict.counts([NEVER_NS, 1.2 * NEVER_NS]));
        // Patience is at its end from the beginning.
        let lenient = placement(None);
        let ((), looks) = lenient.keep(|| Ok(())).expect("a run");
        assert!(lenient.counts(looks) && lenient.dropped() == 0);
    }
}
