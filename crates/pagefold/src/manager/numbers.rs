//! Numbers for mappings of anonymous memory. No number is given out twice (ENTRY-1 of `entry`).

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};

/// How many numbers a CPU takes at a time, as a power of two.
const BLOCK_SHIFT: u32 = 16;

/// See the module's head. An entry has 56 bits for a number (`space::entry`): at a billion numbers
/// a second, the numbers last for two years.
#[derive(Debug)]
pub(crate) struct Numbers {
    blocks: AtomicU64,
    /// The next number of the CPU's block. A multiple of the block size if the block is used up.
    next: PerCpu<AtomicU64>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { blocks: AtomicU64::new(0), next: PerCpu::new(AtomicU64::default) }
    }
}

impl Numbers {
    /// Returns a number that was never given out before. All accesses are Relaxed: a number only
    /// has to be unique, and orders no other access.
    pub(crate) fn fresh(&self) -> u64 {
        let here = self.next.here();
        let is_last = |next: u64| next.is_multiple_of(1 << BLOCK_SHIFT);
        let advance = |next: u64| (!is_last(next)).then_some(next + 1);
        here.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance).unwrap_or_else(|_| {
            // The first block isn't used, so that no number is 0.
            let first = (self.blocks.fetch_add(1, Ordering::Relaxed) + 1) << BLOCK_SHIFT;
            here.store(first + 1, Ordering::Relaxed); // May replace another thread's block, which then stays unused.
            first
        })
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn no_number_is_given_out_twice() {
        let numbers = Numbers::default();
        let mut all: Vec<_> = (0..3 << BLOCK_SHIFT).map(|_| numbers.fresh()).collect();
        all.sort_unstable();
        assert!(all[0] > 0 && all.windows(2).all(|pair| pair[0] < pair[1]));
    }
}
