//! A CPU's *hand* in an area: the cluster that the CPU allocates from, and where it searches for
//! the next one.
//!
//! The area is divided into as many *stretches* as there are CPUs. At first each CPU owns one
//! stretch. A CPU searches its own stretches, round and round. If it finds no cluster there, it
//! searches the other CPUs' stretches, in an order that depends on its number. If it finds a
//! cluster in a stretch whose owner has never allocated, it becomes the owner of this stretch. So a
//! CPU that swaps more owns more stretches, and its slots stay close together.
//!
//! Two CPUs seldom search the same stretch at the same time. Each CPU starts in a different
//! stretch, and moves through the others with one of 8 step sizes, which depends on its number.

use std::ops::Range;

use sync::atomic::{AtomicU32, Ordering};
use sync::lock::{Mutex, MutexGuard};
use sync::random::mix;

/// Primes larger than any number of CPUs. Steps of such a size visit every stretch.
const STEPS: [usize; 8] = [1_000_003, 1_000_033, 1_000_037, 1_000_039, 1_000_081, 1_000_099, 1_000_117, 1_000_121];

/// See the module's head.
#[derive(Debug)]
pub(crate) struct Hand {
    lock: Mutex<()>,
    /// The cluster that the CPU allocates from, or [`NO_CLUSTER`](Self::NO_CLUSTER).
    cluster: AtomicU32,
    /// The stretch in which the CPU last claimed a cluster, by its position in the CPU's order.
    turn: AtomicU32,
    /// The cluster in that stretch at which the search continues.
    next: AtomicU32,
}

/// The right to change a hand. Accesses to `turn` and `next` are Relaxed, because only a thread
/// with this right uses these fields.
pub(crate) struct Turn<'a> {
    pub(crate) hand: &'a Hand,
    _lock: MutexGuard<'a, ()>,
}

/// A CPU's search order through an area.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Way<'a> {
    /// The number of the hand that owns each stretch.
    pub(crate) owners: &'a [AtomicU32],
    /// The number of the CPU's hand.
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

    /// Returns whether the hand never had a cluster.
    pub(crate) fn is_unused(&self) -> bool {
        self.cluster.load(Ordering::Relaxed) == Self::NO_CLUSTER
    }

    /// Returns the cluster in the hand, or a number that no cluster has.
    pub(crate) fn cluster(&self) -> usize {
        // Acquire pairs with the Release in `hold`.
        self.cluster.load(Ordering::Acquire) as usize
    }
}

impl Turn<'_> {
    /// Takes a cluster into the hand. The caller holds the cluster's lock.
    pub(crate) fn hold(&self, cluster: usize) {
        // Release: a thread that sees that the cluster left its list sees the cluster in the hand.
        self.hand.cluster.store(cluster as u32, Ordering::Release);
    }

    /// Returns the ranges of clusters to search, each with the position of its stretch in the CPU's
    /// order. First comes the rest of the current stretch, then the CPU's other stretches, then the
    /// beginning of the current stretch, and finally the stretches of other CPUs.
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

    /// Records where a cluster was found.
    pub(crate) fn found(&self, stretch: usize, cluster: usize) {
        self.hand.turn.store(stretch as u32, Ordering::Relaxed);
        self.hand.next.store(cluster as u32 + 1, Ordering::Relaxed);
    }
}

impl Way<'_> {
    /// Returns the number of hands, which is also the number of stretches.
    pub(crate) fn hands(self) -> usize {
        self.owners.len()
    }

    /// Converts a position in the CPU's order to a stretch. Position 0 is the CPU's own stretch.
    fn place(self, number: usize) -> usize {
        let step = STEPS[(mix(self.hand as u64) % STEPS.len() as u64) as usize];
        (self.hand + number * step) % self.hands()
    }

    /// Returns the clusters of the stretch at a position.
    fn stretch(self, number: usize) -> Range<usize> {
        let place = self.place(number);
        place * self.clusters / self.hands()..(place + 1) * self.clusters / self.hands()
    }

    /// Returns whether the CPU owns the stretch at a position.
    fn has(self, number: usize) -> bool {
        // Relaxed, like the accesses below: a stale answer does no harm.
        self.owners[self.place(number)].load(Ordering::Relaxed) as usize == self.hand
    }

    /// Takes over a stretch for the CPU, if the hand that owns the stretch never had a cluster.
    pub(crate) fn take_over(self, number: usize, is_unused: impl Fn(usize) -> bool) {
        let owner = &self.owners[self.place(number)];
        let has = owner.load(Ordering::Relaxed) as usize;
        if has != self.hand && is_unused(has) {
            owner.store(self.hand as u32, Ordering::Relaxed);
        }
    }

    /// Returns the first cluster of the CPU's own stretch. The stretch may be empty.
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
