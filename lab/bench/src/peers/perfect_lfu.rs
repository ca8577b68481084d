//! Simulates the policy that counts every access exactly, and keeps the pages with the highest
//! counts. It shows how good a policy can be that knows the whole past but not the future. (Real
//! policies can't afford a count for every page that isn't in memory.)
//!
//! Resident pages with equal counts form a doubly linked list, in the order of their last use.
//! Every step takes constant time.

/// No page.
const NONE: u32 = u32::MAX;

/// Pages that are resident, and counts of all pages.
#[derive(Debug)]
pub(crate) struct PerfectLfu {
    /// One for each page.
    nodes: Vec<Node>,
    /// One for each count so far.
    buckets: Vec<Bucket>,
    /// No resident page has a smaller count.
    least: u32,
    /// Pages that may still come without another one going.
    room: u32,
}

#[derive(Clone, Copy, Debug)]
struct Node {
    count: u32,
    resident: bool,
    previous: u32,
    next: u32,
}

/// Ends of a list.
#[derive(Clone, Copy, Debug)]
struct Bucket {
    first: u32,
    last: u32,
}

impl PerfectLfu {
    /// Nothing resident yet, up to `budget` of `pages` later.
    pub(crate) fn new(pages: u32, budget: u32) -> Self {
        let node = Node { count: 0, resident: false, previous: NONE, next: NONE };
        Self { nodes: vec![node; pages as usize], buckets: Vec::new(), least: 0, room: budget }
    }

    /// Accesses pages in turn; how many were absent.
    pub(crate) fn misses(&mut self, accesses: &[u32]) -> u64 {
        accesses.iter().map(|&page| u64::from(!self.access(page))).sum()
    }

    /// Whether `page` was resident.
    fn access(&mut self, page: u32) -> bool {
        let hit = self.nodes[page as usize].resident;
        if hit {
            self.unlink(page);
        }
        self.nodes[page as usize].count += 1;
        if hit || self.make_room(self.nodes[page as usize].count) {
            self.append(page);
        }
        hit
    }

    /// Makes room for a page with this count: evicts the page with the least count, unless that is
    /// greater than `count`. Returns whether there is room.
    fn make_room(&mut self, count: u32) -> bool {
        if self.room > 0 {
            self.room -= 1;
            self.least = self.least.min(count);
            return true;
        }
        while self.buckets.get(self.least as usize).is_some_and(|bucket| bucket.first == NONE) {
            self.least += 1;
        }
        let Some(&Bucket { first, .. }) = self.buckets.get(self.least as usize) else { return false };
        if self.least > count {
            return false;
        }
        self.unlink(first);
        self.nodes[first as usize].resident = false;
        true
    }

    /// Puts `page` behind all others of its count.
    fn append(&mut self, page: u32) {
        let count = self.nodes[page as usize].count as usize;
        if self.buckets.len() <= count {
            self.buckets.resize(count + 1, Bucket { first: NONE, last: NONE });
        }
        let last = self.buckets[count].last;
        match last {
            NONE => self.buckets[count].first = page,
            last => self.nodes[last as usize].next = page,
        }
        self.buckets[count].last = page;
        let node = &mut self.nodes[page as usize];
        *node = Node { resident: true, previous: last, next: NONE, ..*node };
    }

    fn unlink(&mut self, page: u32) {
        let Node { count, previous, next, .. } = self.nodes[page as usize];
        match previous {
            NONE => self.buckets[count as usize].first = next,
            previous => self.nodes[previous as usize].next = next,
        }
        match next {
            NONE => self.buckets[count as usize].last = previous,
            next => self.nodes[next as usize].previous = previous,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::popularity::{Distribution, Popularity};

    /// The definition of the policy: the `budget` pages with the greatest counts; of pages with
    /// equal counts, those accessed last.
    fn resident(history: &[u32], pages: u32, budget: usize) -> Vec<u32> {
        let rank = |page: u32| {
            let times = || history.iter().enumerate().filter(move |&(_, &other)| other == page).map(|(time, _)| time);
            (times().count(), times().next_back())
        };
        let mut seen: Vec<u32> = (0..pages).filter(|page| history.contains(page)).collect();
        seen.sort_by_key(|&page| std::cmp::Reverse(rank(page)));
        seen.truncate(budget);
        seen
    }

    #[test]
    fn the_pages_with_the_highest_counts_are_resident() {
        for (distribution, budget) in
            [(Distribution::Uniform, 5), (Distribution::Zipf(0.99), 8), (Distribution::Uniform, 1)]
        {
            let accesses = Popularity::new(distribution, 20).accesses(400, 1);
            let mut lfu = PerfectLfu::new(20, budget);
            for (number, &page) in accesses.iter().enumerate() {
                let expected = resident(&accesses[..number], 20, budget as usize).contains(&page);
                assert_eq!(lfu.access(page), expected, "access {number} with a budget of {budget}");
            }
        }
    }
}
