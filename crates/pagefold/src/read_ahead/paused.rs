//! Remembers runs whose streams were given up. Usually such a run has ended (`runs`). But if there
//! are more readers than streams that can be followed, streams of readers that go on are given up,
//! too. So the last runs are remembered. If a reader goes on where such a run stopped, the run
//! doesn't count as ended any more, and its stream is followed again.
//!
//! If many runs go on like this, runs whose streams are given up don't count as ended.

use super::runs::Runs;

/// The number of runs that are remembered.
const REMEMBERED: usize = 64;

/// How a run advances.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Direction {
    Forwards,
    Backwards,
    Strided,
}

/// A run.
#[derive(Clone, Copy, Debug)]
pub(super) struct Run {
    /// In blocks.
    pub(super) length: u64,
    pub(super) direction: Direction,
    /// The page at which the reader would next miss.
    pub(super) next: u64,
    /// The number of blocks before `next` that were read ahead, and not used yet.
    pub(super) ahead: u64,
}

/// The runs whose streams were given up last.
#[derive(Debug)]
pub(super) struct Paused {
    /// `Run::next`; `NONE` if the place is free.
    next: [u64; REMEMBERED],
    /// The run's length times 4, and its direction.
    runs: [u32; REMEMBERED],
    ahead: [u16; REMEMBERED],
    /// The place of the oldest run.
    oldest: u8,
    /// How seldom runs go on, from 0 to `SELDOM_MAX`.
    seldom: u8,
}

const NONE: u64 = u64::MAX;
/// A run whose stream is given up adds 1 to `Paused::seldom`; a run that goes on subtracts `OFTEN`.
/// Runs count as ended while `seldom` is at least `SELDOM`.
const SELDOM_MAX: u8 = 64;
const SELDOM: u8 = 32;
const OFTEN: u8 = 3;

impl Default for Paused {
    fn default() -> Self {
        Self { next: [NONE; REMEMBERED], runs: [0; REMEMBERED], ahead: [0; REMEMBERED], oldest: 0, seldom: SELDOM_MAX }
    }
}

impl Paused {
    /// Remembers a run, and counts it as ended, unless many runs go on.
    pub(super) fn add(&mut self, run: Run, ends: &mut [Runs; 2]) {
        let place = usize::from(self.oldest);
        let length = u32::try_from(run.length).unwrap_or(u32::MAX).min(u32::MAX >> 2);
        self.next[place] = run.next;
        self.runs[place] = length << 2 | run.direction as u32;
        self.ahead[place] = u16::try_from(run.ahead).unwrap_or(u16::MAX);
        self.oldest = ((place + 1) % REMEMBERED) as u8;
        if self.seldom >= SELDOM {
            ends[run.kind()].ended(u64::from(length));
        }
        self.seldom = (self.seldom + 1).min(SELDOM_MAX);
    }

    /// Removes the run that a miss of the pages from `start` to `end` continues, if there is one,
    /// and returns it.
    pub(super) fn take_missed(&mut self, start: u64, end: u64, ends: &mut [Runs; 2]) -> Option<Run> {
        // Most often neither page is that of any run.
        if !self.next.iter().any(|&next| next == start || next == end - 1) {
            return None;
        }
        let goes_on = |run: Run| run.next == if run.direction == Direction::Backwards { end - 1 } else { start };
        self.take(goes_on, ends)
    }

    /// Removes the run in sequence for which `page` was read ahead, if there is one, and returns
    /// it.
    pub(super) fn take_reached(&mut self, page: u64, ends: &mut [Runs; 2]) -> Option<Run> {
        self.take(
            |run| run.direction == Direction::Forwards && (1..=run.ahead).contains(&run.next.wrapping_sub(page)),
            ends,
        )
    }

    fn take(&mut self, goes_on: impl Fn(Run) -> bool, ends: &mut [Runs; 2]) -> Option<Run> {
        let place = (0..REMEMBERED).find(|&place| self.next[place] != NONE && goes_on(self.run(place)))?;
        let run = self.run(place);
        self.next[place] = NONE;
        self.seldom = self.seldom.saturating_sub(OFTEN);
        if self.seldom >= SELDOM {
            ends[run.kind()].goes_on(run.length);
        } else {
            ends[run.kind()].forget();
        }
        Some(run)
    }

    fn run(&self, place: usize) -> Run {
        let direction = match self.runs[place] & 3 {
            0 => Direction::Forwards,
            1 => Direction::Backwards,
            _ => Direction::Strided,
        };
        let (length, ahead) = (u64::from(self.runs[place] >> 2), u64::from(self.ahead[place]));
        Run { length, direction, next: self.next[place], ahead }
    }
}

impl Run {
    /// Returns the index in [`Streams::ends`](super::Streams).
    fn kind(self) -> usize {
        usize::from(self.direction == Direction::Strided)
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    fn run(next: u64) -> Run {
        Run { length: 8, direction: Direction::Forwards, next, ahead: 4 }
    }

    #[test]
    fn a_run_counts_unless_it_goes_on() {
        let (mut paused, mut ends) = (Paused::default(), <[Runs; 2]>::default());
        let worth = |ends: &[Runs; 2]| ends[0].worth(3, 0, 100);
        (1..=20).for_each(|number| paused.add(run(1_000 * number), &mut ends));
        assert_eq!(worth(&ends), 5);
        assert!(paused.take_missed(999, 1_000, &mut ends).is_none() && paused.take_reached(1_000, &mut ends).is_none());
        let back = paused.take_missed(1_000, 1_001, &mut ends).unwrap();
        assert_eq!((back.length, back.direction), (8, Direction::Forwards));
        assert!(paused.take_missed(1_000, 1_001, &mut ends).is_none(), "it isn't remembered any more");
        assert!(paused.take_reached(1_996, &mut ends).is_some(), "read ahead for the second run");
        for start in (3..=20).map(|number| 1_000 * number) {
            assert!(paused.take_missed(start, start + 9, &mut ends).is_some());
        }
        assert_eq!(worth(&ends), 100, "no run has ended");
    }

    #[test]
    fn no_run_counts_while_most_go_on() {
        let (mut paused, mut ends) = (Paused::default(), <[Runs; 2]>::default());
        for number in 1..200 {
            paused.add(run(1_000 * number), &mut ends);
            if number > 40 {
                paused.take_missed(1_000 * (number - 40), 1_000 * (number - 40) + 1, &mut ends).unwrap();
            }
        }
        assert_eq!(ends[0].worth(3, 0, 100), 100);
        // The next ones stay away.
        (1_000..1_100).for_each(|number| paused.add(run(1_000 * number), &mut ends));
        assert_eq!(ends[0].worth(3, 0, 100), 5);
    }
}
