//! How far a core works ahead of an access that waits: what its reorder buffer holds, as time.
//!
//! The probe repeats a load from memory, followed by work that doesn't need the loaded value. The
//! time that is saved by doing both at once is the part of the latency that is hidden. As the work
//! grows, this time levels off at the buffer's capacity. Henry Wong measured the buffer's size in
//! this way ("Measuring Reorder Buffer Capacity", 2013). The work here has about two instructions a
//! cycle, as much code does. In nanoseconds, the buffer reaches further if code waits more, and
//! less far if code is denser.

use std::hint::black_box;

use anyhow::Result;

use super::arena::Arena;
use super::{Bench, timing};

/// Far more than any cache.
const BYTES: usize = 256 << 20;

/// See the [module](self).
pub(crate) fn window(bench: &mut Bench) -> Result<()> {
    let rounds = bench.rounds;
    let arena = Arena::new(BYTES)?;
    arena.link(BYTES / 64);
    let mut at = 0;
    let mut work = Work::default();
    let step = timing::median(rounds.each(|n| work.go(n)));
    let waits = bench.costs()?.first_touch;
    // More work than can be hidden.
    let steps = (waits * 1.5 / step).ceil() as u64;
    let loads = timing::median(rounds.each(|n| at = arena.chase(at, n)));
    let together = rounds.each(|n| {
        for _ in 0..n {
            at = arena.chase(at, 1);
            work.go(steps);
        }
    });
    black_box((at, work));
    let apart = loads + steps as f64 * step;
    bench.add("window", together.into_iter().map(|ns| (apart - ns).clamp(0.0, loads)).collect());
    Ok(())
}

/// A chain of arithmetic, with loads and stores that hit.
struct Work {
    value: u64,
    memory: [u64; 64],
}

impl Default for Work {
    fn default() -> Self {
        Self { value: 1, memory: [0; 64] }
    }
}

impl Work {
    #[inline]
    fn go(&mut self, steps: u64) {
        for _ in 0..steps {
            self.value = self.value.wrapping_mul(0x9e37_79b9_7f4a_7c15) ^ (self.value >> 29);
            let word = &mut self.memory[(self.value % 64) as usize];
            *word = word.wrapping_add(self.value);
        }
    }
}
