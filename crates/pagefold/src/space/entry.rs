//! What is mapped at a page, in one word. 0 is nothing.
//!
//! | bits | |
//! |---|---|
//! | 0 | mapped |
//! | 1, 2 | may be read, may be written |
//! | 3, 4 | accesses come in no order; from the front to the back |
//! | 5 | unused |
//! | 6–61 | the number of the mapped file, 0 for memory that is no file's |
//! | 62, 63 | the granule's own (`region`) |
//!
//! All pages of one mapping of a file have the same entry: which page of the file they are follows from the address
//! (`mapped`). The number of a mapping never comes back.

use super::address::Protection;
use crate::read_ahead::advice::Advice;

/// What is mapped at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

/// Bits of the number of a mapped file.
pub(super) const FILE_BITS: u32 = 56;
const FILE_SHIFT: u32 = 6;
const FILE: u64 = ((1 << FILE_BITS) - 1) << FILE_SHIFT;

impl Entry {
    pub(super) const NONE: Self = Self(0);
    const MAPPED: u64 = 1;
    const MAY_READ: u64 = 1 << 1;
    const MAY_WRITE: u64 = 1 << 2;
    const PROTECTION: u64 = Self::MAY_READ | Self::MAY_WRITE;
    const RANDOM: u64 = 1 << 3;
    const SEQUENTIAL: u64 = 1 << 4;
    const ADVICE: u64 = Self::RANDOM | Self::SEQUENTIAL;

    /// Memory that is no file's.
    pub(super) fn anonymous(protection: Protection) -> Self {
        Self(Self::MAPPED).with_protection(protection)
    }

    /// A part of the file with this number.
    pub(super) fn of_file(number: u64, protection: Protection) -> Self {
        Self(Self::anonymous(protection).0 | number << FILE_SHIFT)
    }

    pub(super) fn with_protection(self, protection: Protection) -> Self {
        let bits = match protection {
            Protection::None => 0,
            Protection::Read => Self::MAY_READ,
            Protection::ReadWrite => Self::PROTECTION,
        };
        Self(self.0 & !Self::PROTECTION | bits)
    }

    /// The same with other accesses to come; advice about the present changes nothing.
    pub(super) fn with_advice(self, advice: Advice) -> Self {
        let bits = match advice {
            Advice::Normal => 0,
            Advice::Random => Self::RANDOM,
            Advice::Sequential => Self::SEQUENTIAL,
            _ => return self,
        };
        Self(self.0 & !Self::ADVICE | bits)
    }

    /// The same part of another mapping of the file.
    pub(super) fn with_file(self, number: u64) -> Self {
        Self(self.0 & !FILE | number << FILE_SHIFT)
    }

    pub(super) fn may_read(self) -> bool {
        self.0 & Self::MAY_READ != 0
    }

    pub(super) fn may_write(self) -> bool {
        self.0 & Self::MAY_WRITE != 0
    }

    /// The number of the mapped file, if it is one.
    pub(super) fn file(self) -> Option<u64> {
        (self.0 & FILE != 0).then_some((self.0 & FILE) >> FILE_SHIFT)
    }

    /// Whether this is a space's own memory, to be written.
    pub(super) fn may_write_anonymous(self) -> bool {
        self.0 & (Self::MAY_WRITE | FILE) == Self::MAY_WRITE
    }

    /// The same, to be read.
    pub(super) fn may_read_anonymous(self) -> bool {
        self.0 & (Self::MAY_READ | FILE) == Self::MAY_READ
    }

    pub(super) fn advice(self) -> Advice {
        match self.0 & Self::ADVICE {
            Self::RANDOM => Advice::Random,
            Self::SEQUENTIAL => Advice::Sequential,
            _ => Advice::Normal,
        }
    }

    /// `None` if nothing is mapped.
    pub(super) fn protection(self) -> Option<Protection> {
        match self {
            Self::NONE => None,
            _ if self.may_write() => Some(Protection::ReadWrite),
            _ if self.may_read() => Some(Protection::Read),
            _ => Some(Protection::None),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_says_what_was_put_into_it() {
        let number = (1 << FILE_BITS) - 1;
        for protection in [Protection::None, Protection::Read, Protection::ReadWrite] {
            let entry = Entry::of_file(number, protection).with_advice(Advice::Random);
            assert_eq!((entry.file(), entry.protection()), (Some(number), Some(protection)));
            assert!(entry.advice() == Advice::Random && !entry.may_write_anonymous() && !entry.may_read_anonymous());
            assert_eq!(entry.0 >> 62, 0, "the granule's bits");
            let other = entry.with_protection(Protection::Read).with_file(7).with_advice(Advice::Sequential);
            assert_eq!((other.file(), other.protection()), (Some(7), Some(Protection::Read)));
            assert_eq!(other.with_advice(Advice::WillNeed).advice(), Advice::Sequential);
            let anonymous = Entry::anonymous(protection);
            assert_eq!((anonymous.file(), anonymous.protection()), (None, Some(protection)));
            assert_eq!(anonymous.may_write_anonymous(), protection == Protection::ReadWrite);
        }
        assert_eq!(Entry::NONE.protection(), None);
    }
}
