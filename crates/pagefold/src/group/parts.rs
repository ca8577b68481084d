//! The parts of page maps that are charged to a group: those with the words of its spaces' pages.
//!
//! A part in which no page is in memory or in swap any more is *idle*. It stays in memory, and
//! charged, until a thread needs the memory, because unmapping and mapping the same pages again
//! shouldn't give parts back and make them again. Before pages of the group are evicted, its idle
//! parts are given back (`manager::parts`). So the group keeps a list of its page maps, and notes
//! when they may have idle parts.

use std::collections::BTreeSet;

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::lock::Mutex;

/// All page maps are due.
const ALL: usize = usize::MAX;

/// See the module's head.
#[derive(Debug, Default)]
pub(crate) struct Parts {
    /// The parts that are charged to the group.
    charged: AtomicU64,
    /// How many page maps are to be looked at for idle parts. Seldom written.
    due: AtomicUsize,
    maps: Mutex<Maps>,
}

#[derive(Debug, Default)]
struct Maps {
    /// The first words of the page maps.
    words: BTreeSet<u64>,
    /// Where the next look begins.
    hand: u64,
}

impl Parts {
    /// Returns the number of charged parts. All accesses to it are Relaxed: it is only a number.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Changes the number of charged parts, unless another thread was faster.
    pub(crate) fn change(&self, from: u64, to: u64) -> bool {
        self.charged.compare_exchange(from, to, Ordering::Relaxed, Ordering::Relaxed).is_ok()
    }

    /// Adds the page map with this first word, before it has a part.
    pub(crate) fn add_map(&self, first_word: u64) {
        self.maps.lock().words.insert(first_word);
    }

    /// Removes a page map that has no part any more.
    pub(crate) fn remove_map(&self, first_word: u64) {
        self.maps.lock().words.remove(&first_word);
    }

    /// Notes that parts may have become idle.
    pub(crate) fn may_be_idle(&self) {
        // Relaxed, here and in `next_due`: a hint. Usually only read, because all CPUs do this.
        if self.due.load(Ordering::Relaxed) != ALL {
            self.due.store(ALL, Ordering::Relaxed);
        }
    }

    /// Returns the first word of the page map that is to be looked at next for idle parts. Returns
    /// `None` if all were looked at since parts last may have become idle.
    pub(crate) fn next_due(&self) -> Option<u64> {
        if self.due.load(Ordering::Relaxed) == 0 {
            return None; // The usual case.
        }
        let mut maps = self.maps.lock();
        let left = self.due.load(Ordering::Relaxed).min(maps.words.len());
        self.due.store(left.saturating_sub(1), Ordering::Relaxed);
        let next = maps.words.range(maps.hand..).next().or_else(|| maps.words.first()).copied();
        maps.hand = next.map_or(0, |word| word + 1);
        next.filter(|_| left > 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_map_is_looked_at_once_after_parts_may_have_become_idle() {
        let parts = Parts::default();
        parts.may_be_idle();
        assert_eq!(parts.next_due(), None, "there are none");
        [30, 10, 20].into_iter().for_each(|word| parts.add_map(word));
        assert_eq!(parts.next_due(), None);
        parts.may_be_idle();
        assert_eq!([(); 4].map(|()| parts.next_due()), [Some(10), Some(20), Some(30), None]);
        parts.may_be_idle();
        assert_eq!([(); 2].map(|()| parts.next_due()), [Some(10), Some(20)]);
        parts.may_be_idle();
        parts.remove_map(30);
        assert_eq!([(); 3].map(|()| parts.next_due()), [Some(10), Some(20), None]);
    }
}
