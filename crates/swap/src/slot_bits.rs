//! Tracks which slots of a cluster are in use, with one bit per slot, and finds runs of free slots.

use sync::atomic::{AtomicU64, Ordering};

const WORDS: usize = SLOTS.div_ceil(64);

/// Slots in a cluster.
pub(crate) const SLOTS: usize = if cfg!(pagefold_loom) { 2 } else { 512 };

/// One bit per slot, changed only under the cluster's lock. One cache line.
#[derive(Debug, Default)]
#[repr(align(64))]
pub(crate) struct SlotBits([AtomicU64; WORDS]);

impl SlotBits {
    /// Returns a copy of the bits. The caller holds the cluster's lock.
    pub(crate) fn get(&self) -> UsedSlots {
        // Relaxed, like all accesses here: under the lock.
        UsedSlots(std::array::from_fn(|at| self.0[at].load(Ordering::Relaxed)))
    }

    /// Marks `slot` as used or free. The caller holds the cluster's lock.
    pub(crate) fn set(&self, slot: usize, used: bool) {
        let word = &self.0[slot / 64];
        let (old, bit) = (word.load(Ordering::Relaxed), 1 << (slot % 64));
        word.store(if used { old | bit } else { old & !bit }, Ordering::Relaxed);
    }
}

/// A copy of the bits.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UsedSlots([u64; WORDS]);

impl UsedSlots {
    /// Returns the first slot at or after `from` that is used (if `used` is true) or free (if it is
    /// false). Returns [`SLOTS`] if there is none.
    fn next(&self, from: usize, used: bool) -> usize {
        let mut at = from;
        while at < SLOTS {
            let word = if used { self.0[at / 64] } else { !self.0[at / 64] };
            let rest = word >> (at % 64);
            if rest != 0 {
                return (at + rest.trailing_zeros() as usize).min(SLOTS);
            }
            at = (at / 64 + 1) * 64;
        }
        SLOTS
    }

    /// Returns the start of a run of `len` free slots: the first at or after `from`, otherwise the
    /// first anywhere.
    pub(crate) fn run(&self, from: usize, len: usize) -> Option<usize> {
        let mut at = from;
        let mut wrapped = false;
        loop {
            let start = self.next(at, false);
            if start < SLOTS {
                let end = self.next(start, true);
                if end - start >= len {
                    return Some(start);
                }
                at = end;
            } else if wrapped {
                return None;
            } else {
                (at, wrapped) = (0, true);
            }
        }
    }

    /// Iterates over the free slots: those at or after `from` first, then those before, both in
    /// ascending order.
    pub(crate) fn free_from(&self, from: usize) -> impl Iterator<Item = usize> {
        let free = move |start: usize, end: usize| {
            std::iter::successors(Some(self.next(start, false)), |&slot| Some(self.next(slot + 1, false)))
                .take_while(move |&slot| slot < end)
        };
        free(from, SLOTS).chain(free(0, from))
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use sync::random::Random;

    #[test]
    fn runs_are_found_where_a_plain_search_finds_them() {
        let mut random = Random::seeded(1);
        for _ in 0..2000 {
            let density = random.below(40) + 1;
            let bits = SlotBits::default();
            let used: Vec<bool> = (0..SLOTS).map(|_| !random.one_in(density) || density == 1).collect();
            let used: Vec<bool> = if random.one_in(2) { used.iter().map(|used| !used).collect() } else { used };
            used.iter().enumerate().filter(|(_, used)| **used).for_each(|(slot, _)| bits.set(slot, true));
            let (from, len) = (random.below(SLOTS as u64) as usize, random.below(40) as usize + 1);
            let fits = |start: usize| start + len <= SLOTS && used[start..start + len].iter().all(|used| !used);
            let expected = (from..SLOTS).chain(0..SLOTS).find(|&start| fits(start));
            assert_eq!(bits.get().run(from, len), expected, "from {from}, {len} of them, {used:?}");
            let free: Vec<usize> = (from..SLOTS).chain(0..from).filter(|&slot| !used[slot]).collect();
            assert_eq!(bits.get().free_from(from).collect::<Vec<_>>(), free);
        }
    }

    #[test]
    fn full_and_empty_clusters() {
        let bits = SlotBits::default();
        assert_eq!(bits.get().run(7, SLOTS), Some(0));
        (0..SLOTS).for_each(|slot| bits.set(slot, true));
        assert_eq!((bits.get().run(7, 1), bits.get().free_from(3).count()), (None, 0));
        bits.set(5, false);
        assert_eq!((bits.get().run(7, 1), bits.get().run(5, 1), bits.get().run(0, 2)), (Some(5), Some(5), None));
    }
}
