//! The parts of page maps that are charged to a group: those that hold the page words of its
//! spaces.
//!
//! A part in which no page is in memory or in swap any more is *idle*. An idle part stays in
//! memory, and charged, until a thread needs the memory. So if a tenant unmaps pages and maps the
//! same pages again, Pagefold doesn't have to free parts and create them again. When the group is
//! at its limit, its idle parts are given back before any of its pages are evicted
//! (`manager::parts`). For this purpose the group has a list of its page maps, and a list of those
//! that may have idle parts.

use std::collections::BTreeSet;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::lock::Mutex;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The parts that are charged to the group.
    charged: AtomicU64,
    /// How many page maps may have idle parts. Seldom written, and only under the lock of `maps`.
    due: AtomicUsize,
    maps: Mutex<Maps>,
}

/// Page maps, by their first words.
#[derive(Debug, Default)]
struct Maps {
    all: BTreeSet<u64>,
    /// The page maps that may have idle parts. Each of these maps has a mark, which threads can
    /// read without the lock (P3 of `manager::parts`).
    due: BTreeSet<u64>,
}

impl Parts {
    /// Returns the number of charged parts.
    pub(crate) fn charged(&self) -> u64 {
        // Relaxed: `change` compares it.
        self.charged.load(Ordering::Relaxed)
    }

    /// Changes the number of charged parts from `from` to `to`. Returns false if the number isn't
    /// `from` any more.
    pub(crate) fn change(&self, from: u64, to: u64) -> bool {
        // AcqRel pairs with itself. A thread charges a page before it raises the number, and
        // uncharges a page after it has lowered the number. So no page is uncharged before it was
        // charged.
        self.charged.compare_exchange(from, to, Ordering::AcqRel, Ordering::Relaxed).is_ok()
    }

    /// Adds the page map with this first word, before it has a part.
    pub(crate) fn add_map(&self, first_word: u64) {
        self.maps.lock().all.insert(first_word);
    }

    /// Removes a page map that has no part any more.
    pub(crate) fn remove_map(&self, first_word: u64) {
        self.change_maps(|maps| {
            maps.all.remove(&first_word);
            maps.due.remove(&first_word);
        });
    }

    /// Notes that a page map may have idle parts, and calls `mark`. Does neither if the map doesn't
    /// belong to the group, for example because it was removed meanwhile.
    pub(crate) fn add_due(&self, first_word: u64, mark: impl FnOnce()) {
        self.change_maps(|maps| {
            if maps.all.contains(&first_word) {
                maps.due.insert(first_word);
                mark();
            }
        });
    }

    /// Takes the page map that is to be looked at next for idle parts, and calls `unmark` with it.
    pub(crate) fn take_due(&self, unmark: impl FnOnce(u64)) -> Option<u64> {
        if self.due.load(Ordering::Relaxed) == 0 {
            return None; // The usual case.
        }
        self.change_maps(|maps| maps.due.pop_first().inspect(|&word| unmark(word)))
    }

    /// Returns the first of the page maps whose first words are at least `from`.
    pub(crate) fn map_from(&self, from: u64) -> Option<u64> {
        self.maps.lock().all.range(from..).next().copied()
    }

    fn change_maps<T>(&self, change: impl FnOnce(&mut Maps) -> T) -> T {
        let mut maps = self.maps.lock();
        let result = change(&mut maps);
        // Relaxed, here and in `take_due`: the lock orders the changes. A thread that sees a change
        // late only evicts a page although an idle part was left.
        self.due.store(maps.due.len(), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::cell::RefCell;

    #[test]
    fn a_map_is_looked_at_once_each_time_that_it_may_have_idle_parts() {
        let (parts, marked) = (Parts::default(), RefCell::new(BTreeSet::new()));
        let add_due = |word| {
            parts.add_due(word, || {
                marked.borrow_mut().insert(word);
            });
        };
        let take_due = || parts.take_due(|word| assert!(marked.borrow_mut().remove(&word), "{word} has no mark"));
        [30, 10, 20].into_iter().for_each(|word| parts.add_map(word));
        assert_eq!(take_due(), None);
        [30, 20, 30].into_iter().for_each(add_due);
        assert_eq!([(); 3].map(|()| take_due()), [Some(20), Some(30), None]);
        [10, 30].into_iter().for_each(add_due);
        parts.remove_map(10);
        marked.borrow_mut().clear(); // The mark of 10 goes with the map; that of 30 is set again.
        [10, 30].into_iter().for_each(add_due);
        assert_eq!(*marked.borrow(), BTreeSet::from([30]), "a map of no group gets no mark");
        assert_eq!([(); 2].map(|()| take_due()), [Some(30), None]);
    }

    /// Regression: a look at all maps began again whenever another thread discarded pages.
    #[test]
    fn a_look_at_all_maps_ends_whatever_becomes_idle_meanwhile() {
        let parts = Parts::default();
        [30, 10, 20].into_iter().for_each(|word| parts.add_map(word));
        let next = |from| {
            [10, 20, 30].into_iter().for_each(|word| parts.add_due(word, || ()));
            parts.map_from(from)
        };
        let looks = std::iter::successors(next(0), |word| next(word + 1));
        assert_eq!(looks.take(9).collect::<Vec<_>>(), [10, 20, 30]);
    }
}
