//! The pages that are in memory, in no order: an open-addressed table, over which the clock hand
//! moves.

use std::sync::atomic::{AtomicU64, Ordering};

use crate::random::mix;

/// A set of page numbers. A thread that inserts or removes a page must hold the page's lock, so no
/// two threads do this for one page at the same time.
pub(super) struct ResidentSet {
    slots: Box<[AtomicU64]>,
    hand: AtomicU64,
}

const EMPTY: u64 = u64::MAX;
const REMOVED: u64 = u64::MAX - 1;

// Relaxed in the whole file: a slot is only a hint for the clock, which checks the page's own word
// before it acts.
impl ResidentSet {
    /// For up to `pages` pages.
    pub(super) fn new(pages: u32) -> Self {
        let len = (pages as usize * 3 / 2).next_power_of_two();
        Self { slots: (0..len).map(|_| AtomicU64::new(EMPTY)).collect(), hand: AtomicU64::new(0) }
    }

    pub(super) fn insert(&self, page: u32) {
        for slot in self.probe(page) {
            let held = slot.load(Ordering::Relaxed);
            let free = held == EMPTY || held == REMOVED;
            let page = u64::from(page);
            if free && slot.compare_exchange(held, page, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                return;
            }
        }
        unreachable!("the table is larger than the budget");
    }

    pub(super) fn remove(&self, page: u32) {
        let slot = self.probe(page).find(|slot| slot.load(Ordering::Relaxed) == u64::from(page));
        slot.expect("a resident page is in the set").store(REMOVED, Ordering::Relaxed);
    }

    /// Moves the hand by `batch` slots and hands out the pages it passed.
    pub(super) fn advance(&self, batch: usize) -> impl Iterator<Item = u32> {
        let batch = batch as u64;
        let from = self.hand.fetch_add(batch, Ordering::Relaxed);
        (from..from + batch).filter_map(|position| u32::try_from(self.slot(position).load(Ordering::Relaxed)).ok())
    }

    /// Slots of one round of the hand.
    pub(super) fn slots(&self) -> usize {
        self.slots.len()
    }

    fn probe(&self, page: u32) -> impl Iterator<Item = &AtomicU64> {
        let start = mix(u64::from(page) + 1);
        (0..self.slots.len() as u64).map(move |step| self.slot(start.wrapping_add(step)))
    }

    fn slot(&self, position: u64) -> &AtomicU64 {
        &self.slots[position as usize & (self.slots.len() - 1)]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_hand_passes_every_page_that_is_in() {
        let set = ResidentSet::new(100);
        (0..100).for_each(|page| set.insert(page));
        (0..50).for_each(|page| set.remove(page));
        (200..220).for_each(|page| set.insert(page));
        let mut passed: Vec<u32> = set.advance(set.slots()).collect();
        passed.sort_unstable();
        assert_eq!(passed, (50..100).chain(200..220).collect::<Vec<_>>());
    }
}
