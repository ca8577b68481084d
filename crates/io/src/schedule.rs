//! Which calls fail, and how.

use sync::random::{Random, mix};

/// How a call fails.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fault {
    /// With this error number.
    Errno(i32),
    /// With `EINTR`.
    Interrupted,
    /// With `EAGAIN`.
    Again,
    /// A read or write moves at most so many bytes. Nothing happens to another call, or to one that
    /// would move no more anyway.
    Short(usize),
    /// A read or write moves at most so many bytes, and the backend's next one of the same kind
    /// fails with this error number.
    ShortThenErrno(usize, i32),
}

/// What happened to a call, to count by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It failed with an error number other than the two below.
    Errno,
    /// It failed with `EINTR`.
    Interrupted,
    /// It failed with `EAGAIN`.
    Again,
    /// It moved fewer bytes than there were.
    Short,
}

impl FaultKind {
    /// All of them, in the order of their numbers.
    pub const ALL: [Self; 4] = [Self::Errno, Self::Interrupted, Self::Again, Self::Short];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

/// Which calls of a [`FaultyBackend`](crate::FaultyBackend) fail, and how. Calls are numbered
/// from 1.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub enum Schedule {
    /// None.
    #[default]
    Never,
    /// This one.
    Once(u64, Fault),
    /// This one and all that follow.
    From(u64, Fault),
    /// This one and the calls that follow it, `times` in all.
    InARow {
        /// The first one.
        from: u64,
        /// So many.
        times: u64,
        /// How they fail.
        fault: Fault,
    },
    /// One in `n` on average; none if `n` is 0. Which ones depends on the seed and their numbers
    /// alone, and so does which of the faults it is.
    OneIn {
        /// So many calls for one fault.
        n: u64,
        /// Other seeds have other calls fail.
        seed: u64,
        /// What to choose from.
        faults: Vec<Fault>,
    },
}

/// Interruptions in a row that stand for any number of them.
const INTERRUPTIONS: u64 = 100;

impl Schedule {
    /// This call and all that follow, or a hundred if the fault is an interruption: a call is made
    /// again until it isn't interrupted.
    #[must_use]
    pub fn lasting(from: u64, fault: Fault) -> Self {
        match fault {
            Fault::Interrupted => Self::InARow { from, times: INTERRUPTIONS, fault },
            _ => Self::From(from, fault),
        }
    }

    /// What is to happen to call number `call`.
    pub(crate) fn fault(&self, call: u64) -> Option<Fault> {
        match self {
            Self::Never => None,
            Self::Once(at, fault) => (call == *at).then_some(*fault),
            Self::From(at, fault) => (call >= *at).then_some(*fault),
            Self::InARow { from, times, fault } => {
                (*from..from.saturating_add(*times)).contains(&call).then_some(*fault)
            }
            Self::OneIn { n, seed, faults } => {
                let mut random = Random::seeded(mix(*seed) ^ mix(call));
                let hit = random.one_in(*n);
                let which = random.below(faults.len() as u64);
                faults.get(usize::try_from(which).unwrap_or(0)).copied().filter(|_| hit)
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn hits(schedule: &Schedule, calls: u64) -> Vec<u64> {
        (1..=calls).filter(|&call| schedule.fault(call).is_some()).collect()
    }

    #[test]
    fn once_from_and_in_a_row() {
        assert_eq!(hits(&Schedule::Never, 9), []);
        assert_eq!(hits(&Schedule::Once(3, Fault::Again), 9), [3]);
        assert_eq!(hits(&Schedule::From(7, Fault::Again), 9), [7, 8, 9]);
        assert_eq!(hits(&Schedule::InARow { from: 3, times: 2, fault: Fault::Again }, 9), [3, 4]);
    }

    #[test]
    fn random_faults_are_as_frequent_as_asked_and_can_be_repeated() {
        let schedule = |n, seed| Schedule::OneIn { n, seed, faults: vec![Fault::Again, Fault::Interrupted] };
        let some = hits(&schedule(32, 1), 32_000);
        assert!((800..1200).contains(&some.len()), "{}", some.len());
        assert_eq!(some, hits(&schedule(32, 1), 32_000));
        assert_ne!(some, hits(&schedule(32, 2), 32_000));
        let again = some.iter().filter(|&&call| schedule(32, 1).fault(call) == Some(Fault::Again)).count();
        assert!((some.len() / 3..some.len() * 2 / 3).contains(&again), "{again}");
        assert_eq!(hits(&schedule(0, 1), 1000), []);
        assert_eq!(hits(&Schedule::OneIn { n: 1, seed: 1, faults: vec![] }, 1000), []);
    }
}
