//! Numbers that identify page maps.

/// The position of the lowest bit of a table's number in a [`Table`](crate::Table), and of a page
/// map's number in a [`MapInWord`].
pub const NUMBER_SHIFT: u32 = 12;

/// Identifies a page map while the map lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapNumber(pub(crate) usize);

impl MapNumber {
    /// Returns the number as bits that can be stored in a word.
    #[inline]
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0 as u64
    }

    /// Creates the number from [`bits`](Self::bits).
    #[inline]
    #[must_use]
    pub fn from_bits(bits: u64) -> Self {
        Self(bits as usize)
    }
}

/// A word that contains a page map's number from bit [`NUMBER_SHIFT`] on, among other things. A
/// table has `1 << NUMBER_SHIFT` bytes. So masking the word yields the offset of the map's table in
/// bytes, without a shift.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapInWord(pub u64);

impl MapInWord {
    /// The maximum number of bits in a number.
    pub const BITS: u32 = 22;

    /// Returns the number.
    #[inline]
    #[must_use]
    pub fn number(self) -> MapNumber {
        MapNumber((self.0 >> NUMBER_SHIFT) as usize & ((1 << Self::BITS) - 1))
    }
}
