//! A node's word. It contains one claim, or the number of readers of the full range, and flags. Two
//! flags tell whether the node's queue must be looked at. Two more, which only the root has, tell
//! at which levels ranges are locked.
//!
//! | bits | |
//! |---|---|
//! | 0–1 | `MODE`: no claim, one reader, one writer, or readers of the full range |
//! | 2 | `LISTED`: there are, or may be, claims in the queue's list |
//! | 3 | `WAITED`: the queue has waiters |
//! | 4 | `SPREAD`: small ranges are locked in the tables (root only) |
//! | 5 | `MIDDLE`: ranges of level 1 may be locked there (root only) |
//! | 6–15 | units in the one claim's range; 0 for the full range |
//! | 16–63 | its start in units, or the number of readers |

use crate::claim::{Claim, Mode};
use crate::range::LockRange;

/// The bits of a [`Node`](crate::node::Node)'s word.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct NodeWord(pub(crate) u64);

const MODE: u64 = 0b11;
const READER: u64 = 1;
const WRITER: u64 = 2;
const READERS: u64 = 3;

const LEN_SHIFT: u32 = 6;
const LEN_BITS: u32 = 10;
const START_SHIFT: u32 = LEN_SHIFT + LEN_BITS;
const START_BITS: u32 = u64::BITS - START_SHIFT;
/// One reader of the full range, in the bits that hold the number of readers.
const ONE: u64 = 1 << START_SHIFT;

/// A claim as the bits of a word. The bits are zero if the claim doesn't fit.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) struct Packed(pub(crate) u64);

impl Packed {
    /// The claim doesn't fit.
    pub(crate) const NONE: Self = Self(0);

    /// Packs a claim, without rounding, in units of 2^`unit` numbers. Returns [`NONE`](Self::NONE)
    /// if the range doesn't start and end at multiples of the unit, is too long, or starts too high
    /// for the word's bits. The full range always fits.
    #[inline(always)]
    pub(crate) fn new(range: LockRange, mode: Mode, unit: u32) -> Self {
        // The rotation moves the bits below a unit, which must be 0, to the top of the number.
        let start = range.start().rotate_right(unit);
        let len = (range.end() - range.start()).rotate_right(unit);
        let mode = if mode == Mode::Write { WRITER } else { READER };
        if start >> START_BITS.min(u64::BITS - unit) == 0 && len >> LEN_BITS == 0 {
            return Self(mode | len << LEN_SHIFT | start << START_SHIFT);
        }
        match mode {
            _ if range != LockRange::FULL => Self::NONE,
            WRITER => Self(WRITER),
            _ => Self(READERS | ONE),
        }
    }

    /// Unpacks the claim.
    #[inline]
    pub(crate) fn claim(self, unit: u32) -> Claim {
        let mode = if self.0 & MODE == WRITER { Mode::Write } else { Mode::Read };
        let (start, len) = (self.0 >> START_SHIFT, self.0 >> LEN_SHIFT & ((1 << LEN_BITS) - 1));
        let range = if len == 0 { LockRange::FULL } else { LockRange::of_units(start, len, unit) };
        Claim { range, mode }
    }

    #[inline]
    pub(crate) fn fits(self) -> bool {
        self != Self::NONE
    }
}

impl NodeWord {
    /// No claim and no flag.
    pub(crate) const FREE: Self = Self(0);
    pub(crate) const LISTED: u64 = 1 << 2;
    pub(crate) const WAITED: u64 = 1 << 3;
    pub(crate) const SPREAD: u64 = 1 << 4;
    pub(crate) const MIDDLE: u64 = 1 << 5;
    const FLAGS: u64 = Self::LISTED | Self::WAITED | Self::SPREAD | Self::MIDDLE;

    pub(crate) fn has(self, flag: u64) -> bool {
        self.0 & flag != 0
    }

    /// Returns whether the word has no claim, and no flag except `SPREAD` and possibly `MIDDLE`.
    #[inline]
    pub(crate) fn is_only_spread(self) -> bool {
        self.0 & !Self::MIDDLE == Self::SPREAD
    }

    /// Returns whether the word itself has no claim.
    pub(crate) fn is_empty(self) -> bool {
        self.0 & MODE == 0
    }

    /// Returns the word with `claim` in it. The word must have no claim.
    pub(crate) fn with(self, claim: Packed) -> Self {
        Self(self.0 | claim.0)
    }

    /// Returns whether the word counts readers of the full range, and `claim` is such a reader.
    pub(crate) fn counts(self, claim: Packed) -> bool {
        self.0 & MODE == READERS && claim.0 & MODE == READERS
    }

    /// Returns the word with one more reader of the full range.
    pub(crate) fn plus_reader(self) -> Self {
        Self(self.0 + ONE)
    }

    /// Returns whether the word has a claim equal to `claim`. Equal claims are interchangeable.
    pub(crate) fn holds(self, claim: Packed) -> bool {
        claim.fits() && (self.counts(claim) || self.0 & !Self::FLAGS == claim.0)
    }

    /// Returns the word without `claim`, or with one reader less. The word must [hold](Self::holds)
    /// the claim.
    pub(crate) fn minus(self, claim: Packed) -> Self {
        if self.counts(claim) && self.0 >> START_SHIFT > 1 { Self(self.0 - ONE) } else { Self(self.0 & Self::FLAGS) }
    }

    /// Returns the claim in the word. All readers of the full range count as one claim.
    #[inline]
    pub(crate) fn claim(self, unit: u32) -> Option<Claim> {
        (!self.is_empty()).then(|| Packed(self.0).claim(unit))
    }

    /// Returns whether the claim in the word excludes `claim`.
    #[inline]
    pub(crate) fn excludes(self, claim: Claim, unit: u32) -> bool {
        self.claim(unit).is_some_and(|held| held.excludes(claim))
    }
}

const _: () = assert!(MODE & NodeWord::FLAGS == 0 && NodeWord::FLAGS < 1 << LEN_SHIFT);

#[cfg(test)]
mod tests {
    use super::*;

    fn pack(claim: Claim, unit: u32) -> Packed {
        Packed::new(claim.range, claim.mode, unit)
    }

    fn claim(start: u64, end: u64, mode: Mode) -> Claim {
        Claim { range: LockRange::new(start, end).unwrap(), mode }
    }

    #[test]
    fn what_fits_comes_out_again_and_nothing_else_fits() {
        for mode in [Mode::Read, Mode::Write] {
            for (start, end) in [(0, 4096), (4096, 1 << 21), ((1 << 60) - 4096, 1 << 60), (0, u64::MAX)] {
                let packed = pack(claim(start, end, mode), 12);
                assert!(packed.fits());
                let word = NodeWord(NodeWord::WAITED).with(packed);
                assert_eq!(word.claim(12), Some(claim(start, end, mode)));
                assert!(word.holds(packed) && word.minus(packed) == NodeWord(NodeWord::WAITED));
            }
            for (start, end) in [(1, 4096), (0, 4095), (0, 1 << 22), (1 << 60, (1 << 60) + 4096), (4096, u64::MAX)] {
                assert!(!pack(claim(start, end, mode), 12).fits(), "{start:#x}..{end:#x}");
            }
        }
    }

    #[test]
    fn large_units_are_as_exact_as_small_ones() {
        for unit in [21, 40, 49] {
            let one = 1 << unit;
            for (start, end) in [(0, one), (one, 3 * one)] {
                let packed = pack(claim(start, end, Mode::Write), unit);
                assert_eq!(NodeWord::FREE.with(packed).claim(unit), Some(claim(start, end, Mode::Write)));
            }
            for (start, end) in [(1, one + 1), (4096, one + 4096), (one / 2, one), (0, one + 1), (1, one)] {
                assert!(!pack(claim(start, end, Mode::Write), unit).fits(), "{start:#x}..{end:#x}, unit {unit}");
            }
        }
    }

    #[test]
    fn readers_of_the_full_range_are_counted() {
        let reader = pack(claim(0, u64::MAX, Mode::Read), 12);
        let one = NodeWord::FREE.with(reader);
        let two = one.plus_reader();
        assert!(two.holds(reader) && two.minus(reader) == one && one.minus(reader) == NodeWord::FREE);
        assert!(!one.holds(pack(claim(0, u64::MAX, Mode::Write), 12)));
    }

    #[test]
    fn a_word_knows_what_it_excludes() {
        let word = NodeWord::FREE.with(pack(claim(4096, 8192, Mode::Read), 12));
        assert!(word.excludes(claim(8191, 9000, Mode::Write), 12));
        assert!(!word.excludes(claim(8191, 9000, Mode::Read), 12));
        assert!(!word.excludes(claim(8192, 9000, Mode::Write), 12));
    }
}
