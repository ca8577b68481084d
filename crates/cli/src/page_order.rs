//! The pages that a run has touched, in order. They aren't recorded during the run. Instead, the
//! operations of each thread are planned once more, up to the last one that the thread executed.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

use anyhow::anyhow;
use policies::{Accesses, TooMany};

use crate::accesses::Access;
use crate::failure::Failure;
use crate::plan::Plan;
use crate::trace_request::Op;
use crate::worker::Extent;

/// The number of operations between two calls of `progress`.
const STEP: u64 = 1 << 16;

/// How far a run came.
#[derive(Clone, Debug)]
pub(crate) struct Done {
    /// The number of operations of each thread.
    pub(crate) ops: Vec<u64>,
    pub(crate) extent: Extent,
    /// The file's length at the beginning.
    pub(crate) len: u64,
}

/// Returns the pages that the run touched, in order. How the threads interleaved isn't known, so
/// each thread's operations are assumed to be evenly spread over the run. `progress` gets the
/// number of operations so far.
///
/// # Errors
/// More accesses than can be counted; errors of `progress`.
pub(crate) fn pages(
    plan: &Plan,
    done: &Done,
    page_bytes: u64,
    mut progress: impl FnMut(u64) -> Result<(), Failure>,
) -> Result<Accesses, Failure> {
    let (mut pages, mut end) = (Accesses::default(), FileEnd { extent: done.extent, len: done.len });
    let mut threads: Vec<_> = plan.workers.iter().map(|worker| worker.accesses.clone()).collect();
    let mut turns = Turns::new(&done.ops);
    let mut ops = 0;
    while let Some(thread) = turns.next() {
        let Some(access) = threads[thread].next() else { continue };
        touched(end.wanted(access), page_bytes).try_for_each(|page| pages.push(page)).map_err(too_many)?;
        ops += 1;
        if ops % STEP == 0 {
            progress(ops)?;
        }
    }
    Ok(pages)
}

fn too_many(error: TooMany) -> Failure {
    anyhow!("--policy-report: the run has {error}").into()
}

/// Returns the pages of a range.
fn touched(range: std::ops::Range<u64>, page_bytes: u64) -> std::ops::Range<u64> {
    if range.is_empty() { 0..0 } else { range.start / page_bytes..range.end.div_ceil(page_bytes) }
}

/// Where the file ends.
struct FileEnd {
    extent: Extent,
    /// The file's length.
    len: u64,
}

impl FileEnd {
    /// Returns the part of an operation's range that the file has. The file grows by writes.
    fn wanted(&mut self, access: Access) -> std::ops::Range<u64> {
        let end = match access.op {
            Op::Sync => return 0..0,
            Op::Write if self.extent.grows => u64::MAX,
            Op::Read if self.extent.grows => self.len.max(self.extent.size),
            Op::Read | Op::Write => self.extent.size,
        };
        let range = access.offset..access.offset.saturating_add(access.len).min(end);
        if access.op == Op::Write && !range.is_empty() {
            self.len = self.len.max(range.end);
        }
        range
    }
}

/// The numbers of the threads in the order of their operations.
struct Turns {
    totals: Vec<u64>,
    /// An entry `(when, thread, had)` for each thread that has operations left. `had` is the number
    /// of operations that the thread has had. `when` is the point of the run, from 0 to 1, at which
    /// its next operation comes: `(had + 0.5) / total`. It is kept as the bits of an `f64`, which
    /// sort like the number.
    next: BinaryHeap<Reverse<(u64, usize, u64)>>,
}

impl Turns {
    fn new(ops: &[u64]) -> Self {
        let mut turns = Self { totals: ops.to_vec(), next: BinaryHeap::new() };
        (0..ops.len()).for_each(|thread| turns.add(thread, 0));
        turns
    }

    fn add(&mut self, thread: usize, had: u64) {
        let total = self.totals[thread];
        if had < total {
            // The bits of positive numbers have the order of the numbers.
            let part = (had as f64 + 0.5) / total as f64;
            self.next.push(Reverse((part.to_bits(), thread, had)));
        }
    }

    fn next(&mut self) -> Option<usize> {
        let Reverse((_, thread, had)) = self.next.pop()?;
        self.add(thread, had + 1);
        Some(thread)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn threads_take_turns_as_often_as_they_have_operations() {
        let order = |ops: &[u64]| {
            let mut turns = Turns::new(ops);
            std::iter::from_fn(|| turns.next()).collect::<Vec<_>>()
        };
        assert_eq!(order(&[2, 2, 1]), [0, 1, 2, 0, 1], "a trace that is dealt to three threads");
        assert_eq!(order(&[4, 0, 2]), [0, 2, 0, 0, 2, 0]);
        assert!(order(&[]).is_empty());
    }

    #[test]
    fn ranges_are_cut_where_the_file_ends() {
        let access = |op, offset, len| Access { op, offset, len, group: 0 };
        let mut fixed = FileEnd { extent: Extent { size: 10_000, grows: false }, len: 20_000 };
        assert_eq!(touched(fixed.wanted(access(Op::Read, 4095, 2)), 4096), 0..2);
        assert_eq!(touched(fixed.wanted(access(Op::Read, 8192, 9999)), 4096), 2..3);
        for (op, offset, len) in [(Op::Read, 10_000, 1), (Op::Read, 5, 0), (Op::Sync, 0, 0), (Op::Write, 1 << 40, 1)] {
            assert!(touched(fixed.wanted(access(op, offset, len)), 4096).is_empty());
        }
        let mut growing = FileEnd { extent: Extent { size: 10_000, grows: true }, len: 10_000 };
        assert!(growing.wanted(access(Op::Read, 12_288, 1)).is_empty());
        assert_eq!(touched(growing.wanted(access(Op::Write, 20_480, 4096)), 4096), 5..6);
        assert_eq!(touched(growing.wanted(access(Op::Read, 12_288, 1)), 4096), 3..4);
    }
}
