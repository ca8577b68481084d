//! Learns how long *runs* are. A run is a series of accesses of one reader, in sequence or with a
//! stride. Its length is counted in blocks: in pages if the reader is in sequence, otherwise in
//! accesses.
//!
//! A window is requested while the window before it is in use. So when a run ends, the rest of its
//! last windows is wasted. Each window is twice as large as the one before, so short runs would
//! waste up to two thirds of the blocks that are read. But runs often end at the same few lengths,
//! for example at the size of a record or an extent. So a block is read ahead for a run only if, of
//! the earlier runs that got as far as this run, most got to that block.
//!
//! Only runs that have ended are counted, because a run that goes on doesn't show where runs end.
//! The end of a run can't be seen directly. A run is assumed to have ended when its stream is given
//! up: another stream takes its place, its reader skips the pages that are read ahead, or its
//! reader changes from a stride to a sequence. If the assumption was wrong, `paused` finds out.

/// Lengths below `EXACT` are counted exactly, longer ones in `PER_OCTAVE` steps for each doubling.
const EXACT: u64 = 64;
const PER_OCTAVE: u64 = 16;
/// All runs of at least this many blocks are counted as equally long.
const LONGEST: u64 = 4096;
const COUNTS: usize = (EXACT + PER_OCTAVE * (LONGEST.ilog2() - EXACT.ilog2()) as u64) as usize + 1;

/// This many endless runs are assumed beside those that ended.
const ASSUMED: u32 = 2;
/// A block is read ahead if at least `WORTH.0` of `WORTH.1` runs got to it.
const WORTH: (u32, u32) = (7, 8);

/// The number of runs that got to each length, of those that ended lately.
#[derive(Debug)]
pub(super) struct Runs {
    /// Never increases with the length. All are halved when the first one is full.
    reached: [u8; COUNTS],
}

impl Default for Runs {
    fn default() -> Self {
        Self { reached: [0; COUNTS] }
    }
}

impl Runs {
    /// Notes that a run of `length` blocks has ended.
    pub(super) fn ended(&mut self, length: u64) {
        if self.reached[0] == u8::MAX {
            self.forget();
        }
        self.reached[..=place(length)].iter_mut().for_each(|count| *count += 1);
    }

    /// Halves all counts.
    pub(super) fn forget(&mut self) {
        self.reached.iter_mut().for_each(|count| *count /= 2);
    }

    /// Notes that a run of `length` blocks that was counted goes on.
    pub(super) fn goes_on(&mut self, length: u64) {
        self.reached[..=place(length)].iter_mut().for_each(|count| *count = count.saturating_sub(1));
    }

    /// Returns how many more blocks are worth reading ahead, at most `wanted`. The run has `length`
    /// blocks so far, and the next `ahead` blocks were read ahead already.
    pub(super) fn worth(&self, length: u64, ahead: u64, wanted: u64) -> u64 {
        let runs = |place: usize| u32::from(self.reached[place]) + ASSUMED;
        let enough = (runs(place(length)) * WORTH.0).div_ceil(WORTH.1);
        let (from, so_far) = (place(length + ahead + 1), length + ahead);
        let more = self.reached[from..].partition_point(|&count| u32::from(count) + ASSUMED >= enough);
        first(from + more).map_or(wanted, |end| wanted.min((end - 1).saturating_sub(so_far)))
    }
}

/// Returns the place in `Runs::reached` of runs of that length.
fn place(length: u64) -> usize {
    let length = length.min(LONGEST);
    if length < EXACT {
        return length as usize;
    }
    let octave = length.ilog2();
    let step = (length >> (octave - PER_OCTAVE.ilog2())) - PER_OCTAVE;
    (EXACT + u64::from(octave - EXACT.ilog2()) * PER_OCTAVE + step) as usize
}

/// Returns the shortest length that has this place; `None` if no length has.
fn first(place: usize) -> Option<u64> {
    let is_place = place < COUNTS;
    let place = place as u64;
    let (octave, step) = (place.saturating_sub(EXACT) / PER_OCTAVE, place % PER_OCTAVE);
    let length = if place < EXACT { place } else { (PER_OCTAVE + step) << octave << (EXACT / PER_OCTAVE).ilog2() };
    is_place.then_some(length)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_length_has_a_place() {
        assert_eq!((place(u64::MAX), first(COUNTS)), (COUNTS - 1, None));
        for length in 0..2 * LONGEST {
            let start = first(place(length)).unwrap();
            assert!(start <= length && place(start) == place(length), "{length}");
            assert!(length >= LONGEST || (length - start) * PER_OCTAVE < length.max(1), "{length}: from {start}");
            assert!(place(length + 1) - place(length) <= 1);
        }
    }

    #[test]
    fn what_is_worth_reading_ahead_follows_from_the_runs_that_ended() {
        let mut runs = Runs::default();
        assert_eq!(runs.worth(3, 0, 100), 100, "runs are endless until one has ended");
        (0..20).for_each(|_| runs.ended(8));
        let worth = [(3, 0), (3, 2), (8, 0), (9, 0)].map(|(length, ahead)| runs.worth(length, ahead, 100));
        assert_eq!(worth, [5, 3, 0, 100]);
        assert_eq!((runs.worth(3, 0, 4), runs.worth(3, 9, 100)), (4, 0), "no more than wanted");
        // Of the runs that got beyond 8 pages, all got to 1,000.
        (0..20).for_each(|_| runs.ended(1_000));
        assert_eq!([3, 8, 9].map(|length| runs.worth(length, 0, 2_000)), [5, 0, 991 + 23]);
        (0..1_000).for_each(|_| runs.ended(LONGEST));
        assert_eq!(runs.worth(3, 0, 2_000), 2_000, "runs of long ago hardly count");
    }
}
