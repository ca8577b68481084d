//! A set of pages, as ranges that neither overlap nor adjoin.

use std::collections::{BTreeMap, BTreeSet};

use super::address::Pages;

/// See the module's head.
#[derive(Debug, Default)]
pub(super) struct Ranges {
    /// The end of each range, by its first page.
    ends: BTreeMap<u64, u64>,
    /// The length and the first page of each range.
    by_len: BTreeSet<(u64, u64)>,
}

/// Roughly the bytes that a range takes in both trees.
pub(super) const RANGE_BYTES: u64 = 64;

impl Ranges {
    pub(super) fn len(&self) -> usize {
        self.ends.len()
    }

    fn add(&mut self, range: Pages) {
        self.ends.insert(range.first, range.end);
        self.by_len.insert((range.count(), range.first));
    }

    fn drop_range(&mut self, range: Pages) {
        self.ends.remove(&range.first);
        self.by_len.remove(&(range.count(), range.first));
    }

    /// Returns the last range that begins at or before `end`.
    fn last_up_to(&self, end: u64) -> Option<Pages> {
        self.ends.range(..=end).next_back().map(|(&first, &end)| Pages { first, end })
    }

    /// Adds pages. Some of them may be in the set already.
    pub(super) fn insert(&mut self, mut pages: Pages) {
        while let Some(other) = self.last_up_to(pages.end).filter(|other| other.end >= pages.first) {
            self.drop_range(other);
            pages = Pages { first: pages.first.min(other.first), end: pages.end.max(other.end) };
        }
        self.add(pages);
    }

    /// Removes pages, as far as they are in the set.
    pub(super) fn remove(&mut self, pages: Pages) {
        while let Some(other) = self.last_up_to(pages.end - 1).filter(|other| other.end > pages.first) {
            self.drop_range(other);
            if other.first < pages.first {
                self.add(Pages { end: pages.first, ..other });
            }
            if other.end > pages.end {
                self.add(Pages { first: pages.end, ..other });
            }
        }
    }

    /// Returns the shortest range of at least `count` pages.
    pub(super) fn best(&self, count: u64) -> Option<Pages> {
        self.by_len.range((count, 0)..).next().map(|&(len, first)| Pages { first, end: first + len })
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use std::collections::BTreeSet;
    use sync::random::Random;

    /// Compares the ranges with a plain set of pages.
    #[test]
    fn ranges_are_what_was_put_in() {
        let (mut ranges, mut plain, mut random) = (Ranges::default(), BTreeSet::new(), Random::seeded(5));
        for _ in 0..5_000 {
            let first = random.below(100);
            let pages = Pages { first, end: first + 1 + random.below(20) };
            if random.below(2) == 0 {
                ranges.insert(pages);
                plain.extend(pages.first..pages.end);
            } else {
                ranges.remove(pages);
                plain.retain(|page| !(pages.first..pages.end).contains(page));
            }
            let all: Vec<u64> = ranges.ends.iter().flat_map(|(&first, &end)| first..end).collect();
            assert!(all.iter().copied().eq(plain.iter().copied()));
            assert!(ranges.ends.values().all(|end| !ranges.ends.contains_key(end)), "they adjoin");
            assert_eq!(ranges.by_len.len(), ranges.len());
            let longest = ranges.ends.iter().map(|(first, end)| end - first).max().unwrap_or(0);
            for count in 1..25 {
                let best = ranges.best(count);
                assert!(best.is_some() == (count <= longest) && best.is_none_or(|best| best.count() >= count));
            }
        }
    }
}
