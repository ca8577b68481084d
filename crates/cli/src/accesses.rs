//! The operations of one thread, one after the other, from a trace or a generator.

use sync::Arc;

use sync::random::Random;

use crate::generate::Generator;
use crate::trace::Request;
use crate::trace_request::Op;

/// One operation to execute.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// The kind of operation.
    pub(crate) op: Op,
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes. The range may end past the end of the file. For a sync, 0 means the whole
    /// file.
    pub(crate) len: u64,
    /// Number of the group.
    pub(crate) group: usize,
}

/// The source of a thread's operations. A clone starts where the original is.
#[derive(Clone, Debug)]
pub(crate) enum Accesses {
    /// Endless, for each group in turn.
    Generated { generators: Vec<(usize, Generator)>, turn: usize, mix: Mix, op_bytes: u64, file_bytes: u64 },
    /// Until the trace ends, or repeated.
    Trace { requests: Arc<Vec<Request>>, at: usize, looped: bool, groups: TraceGroups },
}

/// The share of reads among generated operations; the others are writes.
#[derive(Clone, Debug)]
pub(crate) struct Mix {
    reads_percent: u64,
    random: Random,
}

impl Mix {
    /// Creates a mix in which `reads_percent` of a hundred operations are reads, on average.
    pub(crate) fn new(reads_percent: u64, seed: u64) -> Self {
        Self { reads_percent, random: Random::seeded(seed) }
    }

    fn next(&mut self) -> Op {
        if self.random.below(100) < self.reads_percent { Op::Read } else { Op::Write }
    }
}

/// Which group a request of a trace is for.
#[derive(Clone, Debug)]
pub(crate) enum TraceGroups {
    /// The group that the request names. The table maps the trace's group numbers to the run's.
    Named(Arc<Vec<usize>>),
    /// These groups in turn.
    InTurn { groups: Vec<usize>, turn: usize },
}

impl Accesses {
    /// Creates operations from generators, one for each group that the thread serves.
    pub(crate) fn generated(generators: Vec<(usize, Generator)>, mix: Mix, op_bytes: u64, file_bytes: u64) -> Self {
        Self::Generated { generators, turn: 0, mix, op_bytes, file_bytes }
    }

    /// Creates operations from a trace.
    pub(crate) fn trace(requests: Vec<Request>, looped: bool, groups: TraceGroups) -> Self {
        Self::Trace { requests: Arc::new(requests), at: 0, looped, groups }
    }

    /// Returns the next operation; `None` when the trace has ended.
    pub(crate) fn next(&mut self) -> Option<Access> {
        match self {
            Self::Generated { generators, turn, mix, op_bytes, file_bytes } => {
                let (group, generator) = take_turn(generators, turn)?;
                let offset = generator.next().checked_mul(*op_bytes)?;
                let len = (*op_bytes).min(file_bytes.saturating_sub(offset));
                Some(Access { op: mix.next(), offset, len, group: *group })
            }
            Self::Trace { requests, at, looped, groups } => {
                if *at == requests.len() && *looped {
                    *at = 0;
                }
                let request = requests.get(*at)?;
                *at += 1;
                let group = match groups {
                    TraceGroups::Named(table) => *table.get(request.group())?,
                    TraceGroups::InTurn { groups, turn } => *take_turn(groups, turn)?,
                };
                Some(Access { op: request.op(), offset: request.offset(), len: request.len(), group })
            }
        }
    }
}

/// Returns the next item in round-robin order.
fn take_turn<'a, T>(items: &'a mut [T], turn: &mut usize) -> Option<&'a mut T> {
    let now = *turn;
    *turn = if now + 1 >= items.len() { 0 } else { now + 1 };
    items.get_mut(now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::generate::{Pattern, Stream};

    #[test]
    fn the_last_read_of_a_file_is_as_long_as_the_rest() {
        let stream = Stream { seed: 1, group: 0, thread: 0, threads: 1 };
        let generator = Generator::new(Pattern::Seq, 3, stream);
        let mut accesses = Accesses::generated(vec![(5, generator)], Mix::new(100, 1), 100, 250);
        let next: Vec<_> = (0..4).map(|_| accesses.next().unwrap()).map(|a| (a.offset, a.len, a.group)).collect();
        assert_eq!(next, [(0, 100, 5), (100, 100, 5), (200, 50, 5), (0, 100, 5)]);
    }

    #[test]
    fn the_mix_is_what_was_asked_for() {
        let reads = |percent| {
            let mut mix = Mix::new(percent, 7);
            (0..10_000).filter(|_| mix.next() == Op::Read).count()
        };
        assert_eq!((reads(100), reads(0)), (10_000, 0));
        assert!((7_800..8_200).contains(&reads(80)), "{}", reads(80));
    }

    #[test]
    fn groups_take_turns() {
        let mut items = ['a', 'b', 'c'];
        let mut turn = 0;
        let taken: String = (0..7).map(|_| *take_turn(&mut items, &mut turn).unwrap()).collect();
        assert_eq!(taken, "abcabca");
        assert!(take_turn::<char>(&mut [], &mut turn).is_none());
    }
}
