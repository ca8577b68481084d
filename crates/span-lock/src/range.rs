//! Ranges that can be locked.

use std::fmt;
use std::ops::Range;

/// The numbers from `start` up to, but not including, `end`. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockRange {
    start: u64,
    end: u64,
}

/// Why a range is invalid.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// The range is empty.
    #[error("the range {start:#x}..{end:#x} is empty")]
    Empty {
        /// Its first number.
        start: u64,
        /// The number after its last.
        end: u64,
    },
    /// The end of the range doesn't fit into 64 bits.
    #[error("a range of {len:#x} from {start:#x} ends beyond 64 bits")]
    Wraps {
        /// Its first number.
        start: u64,
        /// The requested length.
        len: u64,
    },
}

impl LockRange {
    /// All numbers that can be locked: all except `u64::MAX`, because a range can't end after it.
    pub const FULL: Self = Self { start: 0, end: u64::MAX };

    /// Creates the range `start..end`.
    ///
    /// # Errors
    /// [`BadRange::Empty`] unless `start < end`.
    pub const fn new(start: u64, end: u64) -> Result<Self, BadRange> {
        if start < end { Ok(Self { start, end }) } else { Err(BadRange::Empty { start, end }) }
    }

    /// Creates the range of `len` numbers from `start` on.
    ///
    /// # Errors
    /// [`BadRange::Empty`] if `len` is 0, [`BadRange::Wraps`] if `start + len` isn't a `u64`.
    pub const fn at(start: u64, len: u64) -> Result<Self, BadRange> {
        match start.checked_add(len) {
            Some(end) => Self::new(start, end),
            None => Err(BadRange::Wraps { start, len }),
        }
    }

    /// Returns the first number.
    #[inline]
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// Returns the number after the last.
    #[inline]
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Returns whether the ranges have a number in common.
    #[inline]
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// Creates the range of `len` units of 2^`unit` numbers from unit `start` on. It must be valid.
    pub(crate) const fn of_units(start: u64, len: u64, unit: u32) -> Self {
        Self { start: start << unit, end: (start + len) << unit }
    }

    /// Cuts the range into the part before `at` and the part from `at` on. `at` must be in the
    /// range.
    pub(crate) const fn cut(self, at: u64) -> (Self, Self) {
        (Self { start: self.start, end: at }, Self { start: at, end: self.end })
    }
}

impl TryFrom<Range<u64>> for LockRange {
    type Error = BadRange;

    fn try_from(range: Range<u64>) -> Result<Self, BadRange> {
        Self::new(range.start, range.end)
    }
}

impl fmt::Debug for LockRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(formatter, "{:#x}..{:#x}", self.start, self.end)
    }
}

impl fmt::Display for LockRange {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(self, formatter)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ranges_are_checked() {
        assert_eq!(LockRange::new(5, 5), Err(BadRange::Empty { start: 5, end: 5 }));
        assert_eq!(LockRange::new(6, 5), Err(BadRange::Empty { start: 6, end: 5 }));
        assert_eq!(LockRange::at(7, 0), Err(BadRange::Empty { start: 7, end: 7 }));
        assert_eq!(LockRange::at(u64::MAX, 1), Err(BadRange::Wraps { start: u64::MAX, len: 1 }));
        assert_eq!(LockRange::at(0, u64::MAX), Ok(LockRange::FULL));
        assert_eq!(LockRange::try_from(1..3), LockRange::new(1, 3));
        assert!(LockRange::at(1 << 63, 1 << 63).unwrap_err().to_string().contains("beyond 64 bits"));
    }

    #[test]
    fn neighbours_dont_overlap() {
        let range = |start, end| LockRange::new(start, end).unwrap();
        assert!(!range(0, 5).overlaps(range(5, 9)) && !range(5, 9).overlaps(range(0, 5)));
        assert!(range(0, 6).overlaps(range(5, 9)) && range(2, 3).overlaps(LockRange::FULL));
    }
}
