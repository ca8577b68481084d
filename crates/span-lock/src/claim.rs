//! A claim: a range that a thread holds or requests.

use crate::range::LockRange;

/// The mode of a claim: shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// A range, for reading or writing.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) range: LockRange,
    pub(crate) mode: Mode,
}

impl Claim {
    /// Returns whether the two claims can't be held at the same time.
    #[inline]
    pub(crate) fn excludes(self, other: Self) -> bool {
        (self.mode == Mode::Write || other.mode == Mode::Write) && self.range.overlaps(other.range)
    }

    /// Returns a claim of another range in the same mode.
    pub(crate) fn over(self, range: LockRange) -> Self {
        Self { range, ..self }
    }
}
