//! Ranges that can be locked.

use std::fmt;
use std::ops::Range;

/// Numbers from `start` up to, and without, `end`. Never empty.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct LockRange {
    start: u64,
    end: u64,
}

/// Why there is no such range.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum BadRange {
    /// It has nothing in it.
    #[error("the range {start:#x}..{end:#x} is empty")]
    Empty {
        /// Its first number.
        start: u64,
        /// The one after its last.
        end: u64,
    },
    /// Its end isn't a number of 64 bits.
    #[error("a range of {len:#x} from {start:#x} ends beyond 64 bits")]
    Wraps {
        /// Its first number.
        start: u64,
        /// How many there were to be.
        len: u64,
    },
}

impl LockRange {
    /// Everything that can be locked: all but `u64::MAX` itself, which no range of this kind ends
    /// after.
    pub const FULL: Self = Self { start: 0, end: u64::MAX };

    /// The range `start..end`.
    ///
    /// # Errors
    /// [`BadRange::Empty`] unless `start < end`.
    pub const fn new(start: u64, end: u64) -> Result<Self, BadRange> {
        if start < end { Ok(Self { start, end }) } else { Err(BadRange::Empty { start, end }) }
    }

    /// `len` numbers from `start` on.
    ///
    /// # Errors
    /// [`BadRange::Empty`] if `len` is 0, [`BadRange::Wraps`] if `start + len` isn't a `u64`.
    pub const fn at(start: u64, len: u64) -> Result<Self, BadRange> {
        match start.checked_add(len) {
            Some(end) => Self::new(start, end),
            None => Err(BadRange::Wraps { start, len }),
        }
    }

    /// The first number.
    #[inline]
    #[must_use]
    pub const fn start(self) -> u64 {
        self.start
    }

    /// The one after the last.
    #[inline]
    #[must_use]
    pub const fn end(self) -> u64 {
        self.end
    }

    /// Whether some number is in both.
    #[inline]
    #[must_use]
    pub const fn overlaps(self, other: Self) -> bool {
        self.start < other.end && other.start < self.end
    }

    /// `len` units of 2^`unit` numbers, of a range that was valid.
    pub(crate) const fn of_units(start: u64, len: u64, unit: u32) -> Self {
        Self { start: start << unit, end: (start + len) << unit }
    }

    /// The part before `at`, and the part from there on; `at` is within.
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
