//! Specifies which calls fail, and how.

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
    /// A read or write moves at most this many bytes. Other calls are unaffected, and so are reads
    /// and writes that wouldn't move more bytes anyway.
    Short(usize),
    /// A read or write moves at most this many bytes, and the backend's next call of the same kind
    /// fails with this error number.
    ShortThenErrno(usize, i32),
}

/// What happened to a call, for counting.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FaultKind {
    /// It failed with an error number other than the two below.
    Errno,
    /// It failed with `EINTR`.
    Interrupted,
    /// It failed with `EAGAIN`.
    Again,
    /// It moved fewer bytes than it could have.
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
    /// This call.
    Once(u64, Fault),
    /// This call and all later ones.
    From(u64, Fault),
    /// `times` consecutive calls, starting with this one.
    InARow {
        /// The first call.
        from: u64,
        /// The number of calls.
        times: u64,
        /// How they fail.
        fault: Fault,
    },
    /// One call in `n` on average; none if `n` is 0. The seed and the call's number alone determine
    /// whether the call fails, and with which of the faults.
    OneIn {
        /// The average number of calls per fault.
        n: u64,
        /// Determines which calls fail.
        seed: u64,
        /// The faults to choose from.
        faults: Vec<Fault>,
    },
}

/// The number of consecutive interruptions in a lasting schedule.
const INTERRUPTIONS: u64 = 100;

impl Schedule {
    /// Creates a schedule in which call number `from` and all later ones fail. If the fault is an
    /// interruption, only 100 calls fail: an interrupted call is retried until it isn't
    /// interrupted, so if all calls failed, the retries would never end.
    #[must_use]
    pub fn lasting(from: u64, fault: Fault) -> Self {
        match fault {
            Fault::Interrupted => Self::InARow { from, times: INTERRUPTIONS, fault },
            _ => Self::From(from, fault),
        }
    }

    /// Returns the fault of call number `call`, if it has one.
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
