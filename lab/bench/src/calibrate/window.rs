//! How far a core works ahead of an access that waits: what its reorder buffer holds, as time.
//!
//! A load out of memory, then work that doesn't need its value, many times. The time saved by
//! running both at once is the latency hidden. As the work grows, that time levels off at the
//! buffer's capacity, which is how Henry Wong measured the buffer's size ("Measuring Reorder Buffer
//! Capacity", 2013). The work here has some two instructions to a cycle, as much code does; in
//! nanoseconds the buffer reaches further if the work waits more, less far if it is denser.

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
    // More than is hidden.
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
