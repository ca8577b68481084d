//! A CPU's place in an area: the cluster that it allocates from, and where it looks for the next
//! one.
//!
//! The area is divided into as many *stretches* as there are CPUs. A CPU begins with its own, and
//! goes through it round and round. When it finds nothing there, it goes through the others, in an
//! order of its own; if it finds something in one whose CPU has never swapped, that stretch is its
//! own from then on. So a CPU that swaps more than others has more stretches; its slots stay
//! together; and CPUs can't fall into step, as no two have the same stretch or go the same way.

use std::ops::Range;

use sync::atomic::{AtomicU32, Ordering};
use sync::lock::{Mutex, MutexGuard};
use sync::random::mix;

/// Primes beyond any number of CPUs: steps of these come by all stretches.
const STEPS: [usize; 8] = [1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121];

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Hand {
    lock: Mutex<()>,
    /// The cluster, or [`NO_CLUSTER`](Self::NO_CLUSTER).
    cluster: AtomicU32,
    /// The stretch that it is in, by its place in the CPU's order.
    turn: AtomicU32,
    /// Where in that one it goes on.
    next: AtomicU32,
}

/// The right to change a hand. What only its owner looks at is `Relaxed`.
pub(crate) struct Turn<'a> {
    pub(crate) hand: &'a Hand,
    _lock: MutexGuard<'a, ()>,
}

/// The way of a CPU through an area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    /// Which hand has each stretch.
    pub(crate) owners: &'a [AtomicU32],
    /// The number of its hand.
    pub(crate) hand: usize,
    /// Clusters in the area.
    pub(crate) clusters: usize,
}

impl Hand {
    const NO_CLUSTER: u32 = u32::MAX;

    pub(crate) fn new() -> Self {
        Self {
            lock: Mutex::new(()),
            cluster: AtomicU32::new(Self::NO_CLUSTER),
            turn: AtomicU32::new(0),
            next: AtomicU32::new(0),
        }
    }

    pub(crate) fn lock(&self) -> Turn<'_> {
        Turn { hand: self, _lock: self.lock.lock() }
    }

    /// Whether there was ever a cluster in it.
    pub(crate) fn is_unused(&self) -> bool {
        self.cluster.load(Ordering::Relaxed) == Self::NO_CLUSTER
    }

    /// The cluster in it; a number that no cluster has if there is none.
    pub(crate) fn cluster(&self) -> usize {
        // Acquire pairs with the Release in `hold`.
        self.cluster.load(Ordering::Acquire) as usize
    }
}

impl Turn<'_> {
    /// Takes a cluster, whose lock the caller has, into the hand.
    pub(crate) fn hold(&self, cluster: usize) {
        // Release: a thread that sees the cluster leave its list sees it in the hand.
        self.hand.cluster.store(cluster as u32, Ordering::Release);
    }

    /// Where to look, with the number of the stretch in the CPU's order: what it has from its place
    /// on, the beginning of the stretch it is in, all others.
    pub(crate) fn ranges(&self, way: Way<'_>) -> impl Iterator<Item = (usize, Range<usize>)> + Clone {
        let turn = self.hand.turn.load(Ordering::Relaxed) as usize;
        let here = way.stretch(turn);
        let next = (self.hand.next.load(Ordering::Relaxed) as usize).clamp(here.start, here.end);
        let rest = (1..way.hands()).map(move |step| (turn + step) % way.hands());
        let own = rest.clone().filter(move |&number| way.has(number));
        let others = rest.filter(move |&number| !way.has(number));
        let whole = move |number| (number, way.stretch(number));
        let first = [(turn, next..here.end)].into_iter();
        first.chain(own.map(whole)).chain([(turn, here.start..next)]).chain(others.map(whole))
    }

    /// Remembers where a cluster was found.
    pub(crate) fn found(&self, stretch: usize, cluster: usize) {
        self.hand.turn.store(stretch as u32, Ordering::Relaxed);
        self.hand.next.store(cluster as u32 + 1, Ordering::Relaxed);
    }
}

impl Way<'_> {
    /// How many hands, and stretches, there are.
    pub(crate) fn hands(self) -> usize {
        self.owners.len()
    }

    /// Which of all stretches that is in the CPU's order; number 0 is its own.
    fn place(self, number: usize) -> usize {
        let step = STEPS[(mix(self.hand as u64) % STEPS.len() as u64) as usize];
        (self.hand + number * step) % self.hands()
    }

    /// The clusters of a stretch.
    fn stretch(self, number: usize) -> Range<usize> {
        let place = self.place(number);
        place * self.clusters / self.hands()..(place + 1) * self.clusters / self.hands()
    }

    /// Whether the CPU has that stretch.
    fn has(self, number: usize) -> bool {
        // Relaxed, as below: any answer will do.
        self.owners[self.place(number)].load(Ordering::Relaxed) as usize == self.hand
    }

    /// Has the CPU have a stretch, if the hand that has it never had a cluster.
    pub(crate) fn take_over(self, number: usize, is_unused: impl Fn(usize) -> bool) {
        let owner = &self.owners[self.place(number)];
        let has = owner.load(Ordering::Relaxed) as usize;
        if has != self.hand && is_unused(has) {
            owner.store(self.hand as u32, Ordering::Relaxed);
        }
    }

    /// The first cluster at the CPU's place, where its own stretch may be empty.
    pub(crate) fn start(self) -> usize {
        self.hand * self.clusters / self.hands()
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    fn owners(hands: usize) -> Vec<AtomicU32> {
        (0..hands as u32).map(AtomicU32::new).collect()
    }

    #[test]
    fn every_way_comes_by_every_cluster_once() {
        for (hands, clusters) in [(1, 1), (1, 9), (7, 3), (8, 1000), (88, 256), (96, 96), (2, 3)] {
            let owners = owners(hands);
            for hand in 0..hands {
                let way = Way { owners: &owners, hand, clusters };
                let hand = Hand::new();
                let mut seen: Vec<usize> = hand.lock().ranges(way).flat_map(|(_, range)| range).collect();
                seen.sort_unstable();
                assert_eq!(seen, (0..clusters).collect::<Vec<_>>());
            }
        }
    }

    #[test]
    fn a_hand_goes_round_through_what_it_has() {
        let (hand, owners) = (Hand::new(), owners(4));
        let way = Way { owners: &owners, hand: 2, clusters: 40 };
        let turn = hand.lock();
        let visited = |turn: &Turn<'_>| -> Vec<usize> { turn.ranges(way).flat_map(|(_, range)| range).collect() };
        assert_eq!(visited(&turn)[..10], (20..30).collect::<Vec<_>>());
        turn.found(0, 24);
        assert_eq!(visited(&turn)[..10], [25, 26, 27, 28, 29, 20, 21, 22, 23, 24]);
        let second = way.stretch(1);
        way.take_over(1, |_| false);
        assert!(!way.has(1), "its CPU swaps");
        way.take_over(1, |_| true);
        turn.found(1, second.start + 8);
        let then: Vec<usize> =
            [second.start + 9].into_iter().chain(20..30).chain(second.start..second.start + 9).collect();
        assert_eq!(visited(&turn)[..20], then);
    }
}
