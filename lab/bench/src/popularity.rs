//! Which pages are read, decided before anything is timed.
//!
//! A sequence is a plain array of page numbers. Every subject reads it from front to back, so that
//! it costs all subjects the same. A random permutation scatters popular pages over the file, so
//! that popularity and position are independent.

use crate::random::Random;
use crate::zipf::Zipf;

/// How often pages are wanted.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Distribution {
    /// All alike.
    Uniform,
    /// By Zipf's law with this exponent.
    Zipf(f64),
    /// One page in five is wanted four times out of five.
    Fifth,
}

impl Distribution {
    /// As it stands in the tables: `uniform`, `zipf 0.99`.
    #[cfg(not(pagefold_manycore))]
    pub(crate) fn label(self) -> String {
        match self {
            Self::Uniform => "uniform".to_owned(),
            Self::Zipf(s) => format!("zipf {s}"),
            Self::Fifth => "80 % of a fifth".to_owned(),
        }
    }
}

/// A distribution over the pages of one file, from which any number of sequences can be drawn.
#[derive(Debug)]
pub(crate) struct Popularity {
    pages: u32,
    law: Law,
}

/// How a page is drawn: uniformly, or by drawing a rank. The vector then says which page has that
/// rank.
#[derive(Debug)]
enum Law {
    Uniform,
    Zipf(Zipf, Vec<u32>),
    Fifth(Vec<u32>),
}

/// The seed that decides which page has which rank: the same in every run and for every thread.
const PERMUTATION_SEED: u64 = 0x5EED;

impl Popularity {
    /// `distribution` over `pages` pages.
    pub(crate) fn new(distribution: Distribution, pages: u32) -> Self {
        let law = match distribution {
            Distribution::Uniform => Law::Uniform,
            Distribution::Zipf(s) => Law::Zipf(Zipf::new(pages, s), permutation(pages)),
            Distribution::Fifth => Law::Fifth(permutation(pages)),
        };
        Self { pages, law }
    }

    /// `len` accesses that follow from `seed`.
    #[cfg(any(test, not(pagefold_manycore)))]
    pub(crate) fn accesses(&self, len: usize, seed: u64) -> Vec<u32> {
        let mut random = Random::new(seed);
        (0..len).map(|_| self.page(&mut random)).collect()
    }

    /// One access.
    pub(crate) fn page(&self, random: &mut Random) -> u32 {
        match &self.law {
            Law::Uniform => random.below(self.pages),
            Law::Zipf(zipf, page_of) => page_of[zipf.sample(random) as usize],
            Law::Fifth(page_of) => {
                let fifth = (self.pages / 5).max(1);
                let rank = if random.below(5) == 0 && fifth < self.pages {
                    fifth + random.below(self.pages - fifth)
                } else {
                    random.below(fifth)
                };
                page_of[rank as usize]
            }
        }
    }
}

/// A uniformly random order of `0..pages` (Fisher and Yates).
fn permutation(pages: u32) -> Vec<u32> {
    let mut random = Random::new(PERMUTATION_SEED);
    let mut order: Vec<u32> = (0..pages).collect();
    for last in (1..pages).rev() {
        order.swap(last as usize, random.below(last + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_permutation_holds_every_page_once() {
        let mut order = permutation(1_000);
        assert_ne!(order, (0..1_000).collect::<Vec<_>>());
        order.sort_unstable();
        assert_eq!(order, (0..1_000).collect::<Vec<_>>());
    }

    #[test]
    fn sequences_follow_from_the_seed_and_stay_in_the_file() {
        for distribution in [Distribution::Uniform, Distribution::Zipf(0.99), Distribution::Fifth] {
            let popularity = Popularity::new(distribution, 300);
            let sequence = popularity.accesses(10_000, 5);
            assert_eq!(sequence, popularity.accesses(10_000, 5));
            assert_ne!(sequence, popularity.accesses(10_000, 6));
            assert!(sequence.iter().all(|&page| page < 300));
        }
    }

    #[test]
    fn a_fifth_of_the_pages_gets_four_fifths_of_the_accesses() {
        let mut counts = [0; 100];
        let sequence = Popularity::new(Distribution::Fifth, 100).accesses(100_000, 1);
        sequence.into_iter().for_each(|page| counts[page as usize] += 1);
        counts.sort_unstable();
        let share = counts[80..].iter().sum::<u32>();
        assert!((79_500..80_500).contains(&share), "{share}");
        assert!(counts[0] > 200 && counts[79] < 300 && counts[80] > 3_700, "{counts:?}");
    }
}
