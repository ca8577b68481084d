//! Addresses of a space, in bytes and in pages, and which of them are valid.

use std::ops::Range;

use super::SpaceState;
use crate::error::Error;

/// Bits of an address.
pub(super) const ADDRESS_BITS: u32 = 47;

/// Pages from `first` up to, but not including, `end`, by their numbers in the space. At least one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) first: u64,
    pub(super) end: u64,
}

impl Pages {
    pub(super) fn count(self) -> u64 {
        self.end - self.first
    }

    /// Returns these pages moved up by `by`, modulo 2^64. So if `by` is 2^64 - n, they are moved
    /// down by n.
    pub(super) fn moved(self, by: u64) -> Self {
        Self { first: self.first.wrapping_add(by), end: self.end.wrapping_add(by) }
    }
}

impl SpaceState {
    /// Returns how many pages `len` bytes take.
    pub(super) fn count(&self, len: u64) -> Result<u64, Error> {
        let bad = |why| Error::BadAddress { address: 0, len, why };
        match len {
            0 => Err(bad("no bytes")),
            _ if len > 1 << ADDRESS_BITS => Err(bad("more than a space has")),
            _ => Ok(len.div_ceil(1 << self.page_shift)),
        }
    }

    /// Returns the pages of a range of bytes, which must be whole pages.
    pub(super) fn pages(&self, range: &Range<u64>) -> Result<Pages, Error> {
        let bad = |why| {
            let len = range.end.saturating_sub(range.start);
            Err(Error::BadAddress { address: range.start, len, why })
        };
        if range.start >= range.end {
            return bad("no bytes, or the end before the start");
        }
        if range.end > 1 << ADDRESS_BITS {
            return bad("past the end of the space");
        }
        if (range.start | range.end) & ((1 << self.page_shift) - 1) != 0 {
            return bad("not whole pages");
        }
        Ok(Pages { first: range.start >> self.page_shift, end: range.end >> self.page_shift })
    }

    pub(super) fn bytes(&self, pages: Pages) -> Range<u64> {
        pages.first << self.page_shift..pages.end << self.page_shift
    }
}
