//! Memory to measure in: words in huge pages, touched before anything is timed.

use anyhow::Result;
use manycore::Random;
use sync::atomic::{AtomicU64, Ordering::Relaxed};

use crate::peers::{Backing, Mapping, PAGE};

/// Words in a line.
const LINE: usize = 8;
/// Words in a page.
pub(crate) const PAGE_WORDS: usize = PAGE / 8;

/// A run of words.
pub(crate) struct Arena {
    mapping: Mapping,
    words: usize,
}

impl Arena {
    /// At least `bytes`, zero.
    pub(crate) fn new(bytes: usize) -> Result<Self> {
        let pages = bytes.div_ceil(PAGE);
        let mapping = Mapping::anonymous(u32::try_from(pages)?, Backing::Huge)?;
        let arena = Self { mapping, words: pages * PAGE_WORDS };
        arena.words().iter().step_by(PAGE_WORDS).for_each(|word| word.store(0, Relaxed));
        Ok(arena)
    }

    pub(crate) fn words(&self) -> &[AtomicU64] {
        // SAFETY: this value owns the mapping, which has `words` words and is aligned; zero is a
        // valid atomic.
        unsafe { std::slice::from_raw_parts(self.mapping.page(0).cast(), self.words) }
    }

    /// The arena's page `n`, counted round.
    pub(crate) fn page(&self, n: usize) -> &[AtomicU64] {
        let pages = self.words / PAGE_WORDS;
        &self.words()[n % pages * PAGE_WORDS..][..PAGE_WORDS]
    }

    /// Links the first `lines` lines into one ring in random order: each line holds the place of
    /// the next.
    pub(crate) fn link(&self, lines: usize) {
        self.ring(&shuffled(lines).into_iter().map(|line| line * LINE).collect::<Vec<_>>());
    }

    /// Links lines like [`link`](Self::link), but only one line of each page, so that prefetchers
    /// don't fetch the next line. Returns the first word of each of these lines.
    pub(crate) fn link_pages(&self) -> Vec<usize> {
        let pages = self.words / PAGE_WORDS;
        // 7 and 64 have no common divisor, so that the lines spread over the sets of a cache.
        let word = |page: usize| page * PAGE_WORDS + page * 7 % (PAGE_WORDS / LINE) * LINE;
        let words: Vec<_> = shuffled(pages).into_iter().map(word).collect();
        self.ring(&words);
        words
    }

    fn ring(&self, order: &[usize]) {
        for (at, &word) in order.iter().enumerate() {
            self.words()[word].store(order[(at + 1) % order.len()] as u64, Relaxed);
        }
    }

    /// Goes `steps` lines on from the line at `word`.
    #[inline]
    pub(crate) fn chase(&self, word: u64, steps: u64) -> u64 {
        let words = self.words();
        (0..steps).fold(word, |at, _| words[at as usize].load(Relaxed))
    }
}

/// The numbers below `count`, in an order that is always the same and has no pattern.
pub(crate) fn shuffled(count: usize) -> Vec<usize> {
    let mut random = Random::seeded(7);
    let mut order: Vec<usize> = (0..count).collect();
    for at in (1..count).rev() {
        order.swap(at, random.below(at as u64 + 1) as usize);
    }
    order
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_ring_goes_through_all_lines() {
        let arena = Arena::new(64 << 10).unwrap();
        arena.link(1000);
        let mut seen = std::collections::HashSet::new();
        let mut at = 0;
        for _ in 0..1000 {
            assert!(seen.insert(at));
            at = arena.chase(at, 1);
        }
        assert_eq!(at, 0);
    }
}
