//! Tracks which segments of the page words are free, and which are open (`page_words`).
//!
//! A thread that opens a file takes a run of segments under one lock, which protects all segments.
//! So that the lock is never held for long, every operation takes at most logarithmic time.
//!
//! Segments take address space, which is limited, and a tenant may open sparse files of any length.
//! To keep one tenant from taking all segments, longer runs must leave more segments free
//! ([`leaves`]):
//! - A map of one segment may take the last free segment.
//! - Maps of up to [`MEDIUM`] segments, and single segments that are added to a map later
//!   (`far_words`), must leave a quarter of all segments free.
//! - Longer maps must leave half.
//! - Extra segments, which only let a file grow, must leave three quarters.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

/// The maximum length of a medium map in segments: 64 GiB of pages of 4 KiB.
const MEDIUM: usize = 64;

/// The free and the open segments; see the module head. All values are numbers of segments.
#[derive(Debug)]
pub(crate) struct Segments {
    /// Runs that belong to no map: start → length.
    runs: BTreeMap<usize, usize>,
    /// The same runs by length, then by start.
    by_len: BTreeSet<(usize, usize)>,
    free: usize,
    all: usize,
    open: BTreeSet<usize>,
    /// The segment at which the next sweep starts.
    hand: usize,
}

/// Returns how many of `all` segments must still be free after a map has taken `len`.
fn leaves(all: usize, len: usize) -> usize {
    match len {
        0..=1 => 0,
        2..=MEDIUM => all / 4,
        _ => all / 2,
    }
}

impl Segments {
    /// Creates the set with all segments free and closed.
    pub(crate) fn new(all: usize) -> Self {
        let mut segments =
            Self { runs: BTreeMap::new(), by_len: BTreeSet::new(), free: 0, all, open: BTreeSet::new(), hand: 0 };
        segments.insert(0, all);
        segments
    }

    /// Takes a run of `roomy` segments if three quarters of all segments stay free and such a run
    /// exists. Otherwise takes a run of `len` segments; returns `None` if no such run exists, or if
    /// too few segments would stay free ([`leaves`]). Takes the run from the shortest free run that
    /// is long enough.
    pub(crate) fn take(&mut self, len: usize, roomy: usize) -> Option<Range<usize>> {
        if roomy > len && self.free.saturating_sub(roomy) >= self.all / 4 * 3 {
            return self.take_run(roomy).or_else(|| self.take(len, len));
        }
        if self.free.saturating_sub(len) < leaves(self.all, len) {
            return None;
        }
        self.take_run(len)
    }

    /// Takes a segment for a part of an object beyond its map's first run (`far_words`). Returns
    /// `None` if less than a quarter of all segments would stay free.
    pub(crate) fn take_part(&mut self) -> Option<usize> {
        if self.free <= self.all / 4 {
            return None;
        }
        self.take_run(1).map(|run| run.start)
    }

    fn take_run(&mut self, wanted: usize) -> Option<Range<usize>> {
        let &(len, start) = self.by_len.range((wanted, 0)..).next()?;
        self.remove(start, len);
        if len > wanted {
            self.insert(start + wanted, len - wanted);
        }
        Some(start..start + wanted)
    }

    /// Frees a run and merges it with its free neighbours.
    pub(crate) fn give(&mut self, Range { mut start, mut end }: Range<usize>) {
        if let Some((&before, &len)) = self.runs.range(..start).next_back()
            && before + len == start
        {
            self.remove(before, len);
            start = before;
        }
        if let Some(&len) = self.runs.get(&end) {
            self.remove(end, len);
            end += len;
        }
        self.insert(start, end - start);
    }

    fn insert(&mut self, start: usize, len: usize) {
        self.runs.insert(start, len);
        self.by_len.insert((len, start));
        self.free += len;
    }

    fn remove(&mut self, start: usize, len: usize) {
        self.runs.remove(&start);
        self.by_len.remove(&(len, start));
        self.free -= len;
    }

    /// Records whether a segment is open.
    pub(crate) fn set_open(&mut self, segment: usize, open: bool) {
        if open {
            self.open.insert(segment);
        } else {
            self.open.remove(&segment);
        }
    }

    /// Returns the number of open segments.
    pub(crate) fn open_count(&self) -> usize {
        self.open.len()
    }

    /// Returns the next open segment of the sweep, round robin.
    pub(crate) fn next_open(&mut self) -> Option<usize> {
        let next = self.open.range(self.hand..).next().or_else(|| self.open.first()).copied()?;
        self.hand = next + 1;
        Some(next)
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn runs_grow_together_again() {
        let mut segments = Segments::new(64);
        let mut runs: Vec<_> = [1, 1, 2, 3, 1].into_iter().map(|len| segments.take(len, len).unwrap()).collect();
        assert_eq!(runs, [0..1, 1..2, 2..4, 4..7, 7..8]);
        // Runs behind, before, and between free runs.
        for run in [1, 3, 2] {
            segments.give(runs[run].clone());
        }
        assert_eq!(segments.runs, BTreeMap::from([(1, 6), (8, 56)]));
        assert_eq!(segments.take(6, 6), Some(1..7), "the shortest that will do");
        segments.give(1..7);
        segments.give(runs.remove(0));
        segments.give(runs.pop().unwrap());
        assert_eq!((segments.runs, segments.by_len), (BTreeMap::from([(0, 64)]), BTreeSet::from([(64, 0)])));
    }

    /// Regression: a tenant opened 2,048 files for writing. Each file got page words for 64 GiB, as
    /// room to grow, so the last file took the last page words. From then on, no tenant could open
    /// a file or make a space. Now room to grow leaves three quarters of all segments free.
    #[test]
    fn neither_room_to_grow_nor_large_maps_take_the_last_segments() {
        const ALL: usize = 1 << 12;
        let mut segments = Segments::new(ALL);
        let roomy = (0..ALL).take_while(|_| segments.take(1, 64).unwrap().len() == 64).count();
        assert_eq!(roomy, ALL / 4 / 64);
        let mut take_all = |len| {
            while segments.take(len, len).is_some() {}
            segments.free
        };
        assert!((ALL / 2..ALL / 2 + 100).contains(&take_all(100)));
        assert!((ALL / 4..ALL / 4 + 2).contains(&take_all(2)));
        assert_eq!(segments.take_part().is_some(), segments.free >= ALL / 4);
        while segments.take_part().is_some() {}
        assert_eq!(segments.free, ALL / 4);
        let mut take_all = |len| {
            while segments.take(len, len).is_some() {}
            segments.free
        };
        assert_eq!(take_all(1), 0);
    }

    #[test]
    fn a_sweep_comes_to_all_open_segments_in_turn() {
        let mut segments = Segments::new(100);
        assert_eq!(segments.next_open(), None);
        [7, 3, 99].into_iter().for_each(|segment| segments.set_open(segment, true));
        let turns: Vec<_> = std::iter::from_fn(|| segments.next_open()).take(4).collect();
        assert_eq!(turns, [3, 7, 99, 3]);
        segments.set_open(7, false);
        assert_eq!((segments.next_open(), segments.open_count()), (Some(99), 2));
    }
}
