//! How much work a core executes while a load waits for memory: the capacity of its reorder buffer,
//! in nanoseconds.
//!
//! The probe repeats a load from memory, followed by work that doesn't need the loaded value. The
//! core executes a part of the work while the load waits, and this saves time. With more work, the
//! saved time grows up to a limit, which the capacity of the reorder buffer sets. Henry Wong
//! measured the buffer's size in this way ("Measuring Reorder Buffer Capacity", 2013). The work
//! here has about two instructions per cycle, like much code. Code with fewer instructions per
//! cycle would hide more nanoseconds, code with more would hide fewer.

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
