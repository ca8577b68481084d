//! Zipf's law over a finite number of ranks, without approximation: rank `k` (from 0) has the
//! probability `(k + 1)^-s / H(n, s)`.
//!
//! Sampling uses Walker's alias method in Vose's form: every rank has one column of equal width,
//! and a part of the column may belong to one other rank. A sample picks a column, and then a point
//! in it, which decides between the two ranks. The parts are rounded to 2^-32 of a column.

use crate::random::Random;

/// The distribution, ready to be sampled.
#[derive(Debug)]
pub(crate) struct Zipf {
    columns: Vec<Column>,
}

/// One column: its own rank below `share`, the `alias` above.
#[derive(Clone, Copy, Debug)]
struct Column {
    share: u32,
    alias: u32,
}

impl Zipf {
    /// The law with exponent `s` over `ranks` ranks.
    pub(crate) fn new(ranks: u32, s: f64) -> Self {
        let total = harmonic(ranks, s);
        let n = f64::from(ranks);
        let mut scaled: Vec<f64> = (0..ranks).map(|rank| weight(rank, s) * n / total).collect();
        let mut columns: Vec<Column> = (0..ranks).map(|rank| Column { share: u32::MAX, alias: rank }).collect();
        let (mut small, mut large): (Vec<u32>, Vec<u32>) = (0..ranks).partition(|&rank| scaled[rank as usize] < 1.0);
        while let (Some(&giver), Some(taker)) = (large.last(), small.pop()) {
            let share = scaled[taker as usize];
            columns[taker as usize] = Column { share: to_share(share), alias: giver };
            scaled[giver as usize] -= 1.0 - share;
            if scaled[giver as usize] < 1.0 {
                large.pop();
                small.push(giver);
            }
        }
        Self { columns }
    }

    /// A rank; 0 is the most popular.
    pub(crate) fn sample(&self, random: &mut Random) -> u32 {
        let ranks = u32::try_from(self.columns.len()).expect("built from a u32");
        let rank = random.below(ranks);
        let column = self.columns[rank as usize];
        // A second draw, so that the position in the column doesn't depend on which column it is.
        let position = (random.next() >> 32) as u32;
        if position <= column.share { rank } else { column.alias }
    }
}

/// The miss ratio of a cache that always holds the `resident` most popular of `ranks` ranks. If
/// accesses are independent, no policy without knowledge of the future has a lower one.
#[cfg(any(test, not(pagefold_manycore)))]
pub(crate) fn best_miss_ratio(ranks: u32, s: f64, resident: u32) -> f64 {
    1.0 - harmonic(resident.min(ranks), s) / harmonic(ranks, s)
}

/// Sum of all weights; the smallest first, for precision.
fn harmonic(ranks: u32, s: f64) -> f64 {
    (0..ranks).rev().map(|rank| weight(rank, s)).sum()
}

fn weight(rank: u32, s: f64) -> f64 {
    (f64::from(rank) + 1.0).powf(-s)
}

fn to_share(share: f64) -> u32 {
    // `as` saturates, which is what a share of one means.
    (share * f64::from(u32::MAX)) as u32
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frequencies_follow_the_law() {
        let (ranks, s, samples) = (1_000, 0.99, 2_000_000_u32);
        let zipf = Zipf::new(ranks, s);
        let mut random = Random::new(3);
        let mut counts = vec![0_u32; ranks as usize];
        for _ in 0..samples {
            counts[zipf.sample(&mut random) as usize] += 1;
        }
        let total = harmonic(ranks, s);
        for rank in [0, 1, 2, 9, 99, 500, 999] {
            let expected = weight(rank, s) / total * f64::from(samples);
            let deviation = f64::from(counts[rank as usize]) - expected;
            assert!(deviation.abs() < 5.0 * expected.sqrt(), "rank {rank}: {deviation} off {expected}");
        }
    }

    #[test]
    fn the_share_of_popular_ranks_is_the_complement_of_the_best_miss_ratio() {
        let zipf = Zipf::new(4_096, 0.99);
        let mut random = Random::new(4);
        let missed = (0..1_000_000).filter(|_| zipf.sample(&mut random) >= 1_024).count();
        let ratio = missed as f64 / 1e6;
        assert!((ratio - best_miss_ratio(4_096, 0.99, 1_024)).abs() < 0.002, "{ratio}");
    }

    #[test]
    fn a_quarter_of_a_million_pages_leaves_a_tenth_of_misses() {
        let best = best_miss_ratio(1 << 20, 0.99, 1 << 18);
        assert!((best - 0.102).abs() < 0.0005, "{best}");
    }
}
