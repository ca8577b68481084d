//! The numbers of page maps.

/// Where a number begins in a [`Table`](crate::Table), and a page map's in what leads to its table.
pub const NUMBER_SHIFT: u32 = 12;

/// Which page map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapNumber(pub(crate) usize);

impl MapNumber {
    /// For keeping it in a word.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0 as u64
    }

    /// From [`bits`](Self::bits).
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits as usize)
    }
}

/// A word that has a page map's number from the bit [`NUMBER_SHIFT`] on, among other things. Where
/// a mask leaves it, it needn't be shifted.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapInWord(pub u64);

impl MapInWord {
    /// Bits that a number takes, at most.
    pub const BITS: u32 = 22;

    /// The number.
    #[inline]
    #[must_use]
    pub fn number(self) -> MapNumber {
        MapNumber((self.0 >> NUMBER_SHIFT) as usize & ((1 << Self::BITS) - 1))
    }
}
