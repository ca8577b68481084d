//! What a thread holds, or wants to hold.

use crate::range::LockRange;

/// Shared or exclusive.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Mode {
    Read,
    Write,
}

/// A range, to read or to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Claim {
    pub(crate) range: LockRange,
    pub(crate) mode: Mode,
}

impl Claim {
    /// Whether both can't be held at once.
    #[inline]
    pub(crate) fn excludes(self, other: Self) -> bool {
        (self.mode == Mode::Write || other.mode == Mode::Write) && self.range.overlaps(other.range)
    }

    /// The same claim of another range.
    pub(crate) fn over(self, range: LockRange) -> Self {
        Self { range, ..self }
    }
}
