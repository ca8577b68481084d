//! The reads of one thread, one after the other, from a trace or a generator.

use sync::Arc;

use crate::generate::Generator;
use crate::trace::Request;

/// One read to be done.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Access {
    /// First byte.
    pub(crate) offset: u64,
    /// Number of bytes, which may reach past the end of the file.
    pub(crate) len: u64,
    /// Number of the group.
    pub(crate) group: usize,
}

/// Where a thread's reads come from. Clones start where the original is.
#[derive(Clone, Debug)]
pub(crate) enum Accesses {
    /// For ever, for each group in turn.
    Generated { generators: Vec<(usize, Generator)>, turn: usize, read_bytes: u64, file_bytes: u64 },
    /// Until the trace ends, or over and over.
    Trace { requests: Arc<Vec<Request>>, at: usize, looped: bool, groups: TraceGroups },
}

/// Which group a request of a trace is for.
#[derive(Clone, Debug)]
pub(crate) enum TraceGroups {
    /// The one that it names; the table translates the trace's numbers into ours.
    Named(Arc<Vec<usize>>),
    /// Each of these in turn.
    InTurn { groups: Vec<usize>, turn: usize },
}

impl Accesses {
    /// Reads from generators, one for each group that the thread serves.
    pub(crate) fn generated(generators: Vec<(usize, Generator)>, read_bytes: u64, file_bytes: u64) -> Self {
        Self::Generated { generators, turn: 0, read_bytes, file_bytes }
    }

    /// Reads from a trace.
    pub(crate) fn trace(requests: Vec<Request>, looped: bool, groups: TraceGroups) -> Self {
        Self::Trace { requests: Arc::new(requests), at: 0, looped, groups }
    }

    /// The next read; `None` when the trace has ended.
    pub(crate) fn next(&mut self) -> Option<Access> {
        match self {
            Self::Generated { generators, turn, read_bytes, file_bytes } => {
                let (group, generator) = take_turn(generators, turn)?;
                let offset = generator.next().checked_mul(*read_bytes)?;
                let len = (*read_bytes).min(file_bytes.saturating_sub(offset));
                Some(Access { offset, len, group: *group })
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
                Some(Access { offset: request.offset(), len: request.len(), group })
            }
        }
    }
}

/// The item whose turn it is.
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
        let mut accesses = Accesses::generated(vec![(5, generator)], 100, 250);
        let next: Vec<_> = (0..4).map(|_| accesses.next().unwrap()).map(|a| (a.offset, a.len, a.group)).collect();
        assert_eq!(next, [(0, 100, 5), (100, 100, 5), (200, 50, 5), (0, 100, 5)]);
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
