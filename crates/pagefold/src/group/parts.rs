//! The parts of page maps that are charged to a group: those with the words of its spaces' pages.
//!
//! A part in which no page is in memory or in swap any more is *idle*. It stays in memory, and
//! charged, until a thread needs the memory, because unmapping and mapping the same pages again
//! shouldn't give parts back and make them again. Before pages are evicted because the group is at
//! its limit, its idle parts are given back (`manager::parts`). So the group has a list of its page
//! maps, and a list of those that may have idle parts.

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
    /// Those that may have idle parts.
    due: BTreeSet<u64>,
}

impl Parts {
    /// Returns the number of charged parts.
    pub(crate) fn charged(&self) -> u64 {
        // Relaxed: `change` compares it.
        self.charged.load(Ordering::Relaxed)
    }

    /// Changes the number of charged parts, unless another thread was faster.
    pub(crate) fn change(&self, from: u64, to: u64) -> bool {
        // AcqRel pairs with itself: a thread that lowers the number, and then uncharges a page,
        // does so after the thread that raised the number has charged that page.
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

    /// Notes that a page map may have idle parts, unless the map was removed meanwhile.
    pub(crate) fn add_due(&self, first_word: u64) {
        self.change_maps(|maps| maps.all.contains(&first_word) && maps.due.insert(first_word));
    }

    /// Takes the page map that is to be looked at next for idle parts.
    pub(crate) fn take_due(&self) -> Option<u64> {
        if self.due.load(Ordering::Relaxed) == 0 {
            return None; // The usual case.
        }
        self.change_maps(|maps| maps.due.pop_first())
    }

    /// Returns the first of the page maps whose first words are at least `from`.
    pub(crate) fn map_from(&self, from: u64) -> Option<u64> {
        self.maps.lock().all.range(from..).next().copied()
    }

    fn change_maps<T>(&self, change: impl FnOnce(&mut Maps) -> T) -> T {
        let mut maps = self.maps.lock();
        let result = change(&mut maps);
        // Relaxed, here and in `take_due`: the lock orders the changes, and a thread that sees one
        // late evicts a page in the meantime.
        self.due.store(maps.due.len(), Ordering::Relaxed);
        result
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_map_is_looked_at_once_each_time_that_it_may_have_idle_parts() {
        let parts = Parts::default();
        [30, 10, 20].into_iter().for_each(|word| parts.add_map(word));
        assert_eq!(parts.take_due(), None);
        [30, 20, 30].into_iter().for_each(|word| parts.add_due(word));
        assert_eq!([(); 3].map(|()| parts.take_due()), [Some(20), Some(30), None]);
        [10, 30].into_iter().for_each(|word| parts.add_due(word));
        parts.remove_map(10);
        parts.add_due(10);
        assert_eq!([(); 2].map(|()| parts.take_due()), [Some(30), None]);
    }

    /// Regression: a look at all maps began again whenever another thread discarded pages.
    #[test]
    fn a_look_at_all_maps_ends_whatever_becomes_idle_meanwhile() {
        let parts = Parts::default();
        [30, 10, 20].into_iter().for_each(|word| parts.add_map(word));
        let next = |from| {
            [10, 20, 30].into_iter().for_each(|word| parts.add_due(word));
            parts.map_from(from)
        };
        let looks = std::iter::successors(next(0), |word| next(word + 1));
        assert_eq!(looks.take(9).collect::<Vec<_>>(), [10, 20, 30]);
    }
}
