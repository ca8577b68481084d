//! Repeatable randomness: every user seeds its own generator.

use core::ops::Range;

/// SplitMix64 (Steele, Lea, Flood: "Fast splittable pseudorandom number generators", OOPSLA 2014).
/// Small, fast, and the same on every machine; not suitable for secrets.
#[derive(Clone, Debug)]
pub struct Random {
    state: u64,
}

impl Random {
    /// Creates the generator for `seed`.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        Self { state: seed }
    }

    /// Returns the next 64 random bits.
    #[inline]
    pub fn next_u64(&mut self) -> u64 {
        self.state = self.state.wrapping_add(0x9e37_79b9_7f4a_7c15);
        mix(self.state)
    }

    /// Returns a number below `bound`, or 0 if `bound` is 0. The bias is below `bound` / 2^64.
    #[inline]
    pub fn below(&mut self, bound: u64) -> u64 {
        ((u128::from(self.next_u64()) * u128::from(bound)) >> 64) as u64
    }

    /// Returns a number in 0.0..1.0.
    #[inline]
    pub fn unit(&mut self) -> f64 {
        (self.next_u64() >> 11) as f64 / (1_u64 << 53) as f64
    }

    /// Returns true once in `n` times on average; never for 0.
    #[inline]
    pub fn one_in(&mut self, n: u64) -> bool {
        n != 0 && self.below(n) == 0
    }
}

/// Returns the seeds that a randomized test should try. If the environment variable `PAGEFOLD_SEED`
/// is set, its value is the only seed. Otherwise `PAGEFOLD_SEEDS`, if set, is a range of seeds such
/// as `3000..6000`, or a number `n` that stands for `0..n`. If neither is set, the seeds are
/// `0..usual`.
///
/// # Panics
/// If a variable is set and isn't a number or range: a test that silently tries other seeds proves
/// nothing.
#[must_use]
pub fn seeds(usual: u64) -> Range<u64> {
    if let Ok(seed) = std::env::var("PAGEFOLD_SEED") {
        let seed = seed.parse().expect("PAGEFOLD_SEED is a number");
        return seed..seed + 1;
    }
    let Ok(seeds) = std::env::var("PAGEFOLD_SEEDS") else { return 0..usual };
    let (first, end) = seeds.split_once("..").unwrap_or(("0", &seeds));
    let number = |text: &str| text.parse().expect("PAGEFOLD_SEEDS is a number, or a range such as 3000..6000");
    number(first)..number(end)
}

/// Spreads the bits of `x`, so close numbers become unrelated numbers (SplitMix64's finalizer). A
/// bijection.
#[inline]
#[must_use]
pub fn mix(mut x: u64) -> u64 {
    x = (x ^ (x >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    x = (x ^ (x >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    x ^ (x >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn below_stays_below_and_reaches_all() {
        let mut random = Random::seeded(1);
        let mut seen = [0; 5];
        for _ in 0..10_000 {
            seen[usize::try_from(random.below(5)).unwrap()] += 1;
        }
        assert!(seen.iter().all(|&n| n > 1_800), "{seen:?}");
        assert_eq!(random.below(0), 0);
    }

    #[test]
    fn known_sequence() {
        // The reference implementation's first outputs for the seed 1234567.
        let mut random = Random::seeded(1_234_567);
        assert_eq!(random.next_u64(), 6_457_827_717_110_365_317);
        assert_eq!(random.next_u64(), 3_203_168_211_198_807_973);
    }
}
