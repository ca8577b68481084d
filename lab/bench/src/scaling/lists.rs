//! The part of a run that lists and their locks take: the sum over the source lines in their files.

use manycore::Report;

use super::parts::Part;

/// The files of the list that Pagefold's pages are on, with its lock, and of the older designs'
/// lists and spinlock. (The older designs' free pages are on the same kind of list, under the same
/// kind of spinlock, and so are included.)
pub(crate) const LISTS: Part = Part {
    files: &[
        "crates/smp-list/src/",
        "experiments/older/lru_lists.rs",
        "experiments/older/ring.rs",
        "experiments/older/spin_lock.rs",
    ],
    regions: &[],
};

/// Figures of lists.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct ListShare {
    /// Percent of all CPU time that is lost there: waiting, and moving lines.
    pub(crate) lost: f64,
    /// Accesses to what is shared there, for each operation; spinning is many.
    pub(crate) accesses: f64,
    /// Those of them that write to a line which another CPU touched last.
    pub(crate) shared_writes: f64,
}

impl ListShare {
    /// Of a run.
    pub(crate) fn of(report: &Report) -> Self {
        let operations = report.operations.max(1) as f64;
        LISTS.lines(report).fold(Self::default(), |sum, line| Self {
            lost: sum.lost + line.shares.lost(),
            accesses: sum.accesses + line.events as f64 / operations,
            shared_writes: sum.shared_writes + line.shared_writes as f64 / operations,
        })
    }
}
