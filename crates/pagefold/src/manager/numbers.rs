//! Numbers for mappings of memory that is no file's: none is given out twice (ENTRY-1 of `entry`).

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};

/// Numbers that a CPU takes at a time, as a power of two.
const BLOCK_SHIFT: u32 = 16;

/// See the module's head. A billion numbers a second would last for two years.
#[derive(Debug)]
pub(crate) struct Numbers {
    blocks: AtomicU64,
    /// The next number of the CPU's block; 0 modulo a block's size if that is used up.
    next: PerCpu<AtomicU64>,
}

impl Default for Numbers {
    fn default() -> Self {
        Self { blocks: AtomicU64::new(0), next: PerCpu::new(AtomicU64::default) }
    }
}

impl Numbers {
    /// Relaxed, all of it: a number is given out once, and orders nothing else.
    pub(crate) fn fresh(&self) -> u64 {
        let here = self.next.here();
        let is_last = |next: u64| next.is_multiple_of(1 << BLOCK_SHIFT);
        let advance = |next: u64| (!is_last(next)).then_some(next + 1);
        here.fetch_update(Ordering::Relaxed, Ordering::Relaxed, advance).unwrap_or_else(|_| {
            // The first block isn't used, so that no number is 0.
            let first = (self.blocks.fetch_add(1, Ordering::Relaxed) + 1) << BLOCK_SHIFT;
            here.store(first + 1, Ordering::Relaxed); // Another thread's block may be lost by that.
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
