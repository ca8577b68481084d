//! Entries: what is mapped at a page, in one word. 0 means that nothing is mapped.
//!
//! | bits | |
//! |---|---|
//! | 0 | own memory (anonymous memory: no file's) that may be read |
//! | 1 | a part of a file that may be read |
//! | 2 | may be written; without bits 0 and 1: own memory that may not be accessed |
//! | 3, 4 | advice: random accesses; sequential accesses |
//! | 5, 62 | the old protection, while a change of it is in progress: see below |
//! | 6–61 | the number of the mapping |
//! | 63 | 0: this isn't a link (`tree`) |
//!
//! All pages of one mapping of a file have the same entry, apart from protection and advice. Their
//! page numbers in the file follow from their addresses (`mapped`).
//!
//! - ENTRY-1. A page of own memory never has the same mapping number again after it was unmapped or
//!   moved: own memory gets a new number whenever it is mapped, grown or moved. So if a thread
//!   finds the same entry of own memory twice, the page was neither unmapped nor moved in between.
//!   An address at which a file was mapped may get the same number again, if the mapping grows over
//!   the address again. It then shows the same page of the same file as before.
//!
//! **Changes that may fail** keep the old protection in the entry until they are complete. Bits 62
//! and 5 together are a field of two bits. The field is 0 if no old protection is kept. Otherwise
//! it has the old protection: 1 for no access, 2 for reading, 3 for reading and writing.
//!
//! While the change is in progress, the other bits have the new protection, which is already in
//! force. If the pages are being unmapped or moved, the new protection permits no access. If the
//! old protection permits an access and the new one doesn't, the access waits until the change is
//! complete (`change`).

use crate::protection::Protection;
use crate::read_ahead::advice::Advice;

/// An entry: what is mapped at a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Entry(pub(super) u64);

/// Bits of the number of a mapping.
pub(super) const FILE_BITS: u32 = 56;
const FILE_SHIFT: u32 = 6;
const FILE: u64 = ((1 << FILE_BITS) - 1) << FILE_SHIFT;

impl Entry {
    pub(super) const NONE: Self = Self(0);
    /// One bit for each kind of memory, so a hit tests a single bit.
    const READ_OWN: u64 = 1;
    const READ_FILE: u64 = 1 << 1;
    const READ: u64 = Self::READ_OWN | Self::READ_FILE;
    const WRITE: u64 = 1 << 2;
    const UNUSED_OWN: u64 = Self::WRITE;
    const PROTECTION: u64 = Self::READ | Self::WRITE;
    const RANDOM: u64 = 1 << 3;
    const SEQUENTIAL: u64 = 1 << 4;
    const ADVICE: u64 = Self::RANDOM | Self::SEQUENTIAL;
    const KEPT_LOW: u64 = 1 << 5;
    const KEPT_HIGH: u64 = 1 << 62;
    const KEPT: u64 = Self::KEPT_LOW | Self::KEPT_HIGH;

    /// Creates an entry for own memory, of the mapping with this number.
    pub(super) fn own(number: u64, protection: Protection) -> Self {
        Self(Self::UNUSED_OWN | number << FILE_SHIFT).with_protection(protection)
    }

    /// Creates an entry for a part of a file, of the mapping with this number.
    pub(super) fn of_file(number: u64, protection: Protection) -> Self {
        Self(number << FILE_SHIFT).with_protection(protection)
    }

    pub(super) fn with_protection(self, protection: Protection) -> Self {
        let (none, read) = if self.is_own() { (Self::UNUSED_OWN, Self::READ_OWN) } else { (0, Self::READ_FILE) };
        let bits = match protection {
            Protection::None => none,
            Protection::Read => read,
            Protection::ReadWrite => read | Self::WRITE,
        };
        Self(self.0 & !Self::PROTECTION | bits)
    }

    /// Returns this entry with other advice about accesses to come. Advice that takes effect only
    /// once, when it is given, doesn't change the entry.
    pub(super) fn with_advice(self, advice: Advice) -> Self {
        let bits = match advice {
            Advice::Normal => 0,
            Advice::Random => Self::RANDOM,
            Advice::Sequential => Self::SEQUENTIAL,
            _ => return self,
        };
        Self(self.0 & !Self::ADVICE | bits)
    }

    /// Returns this entry with the number of another mapping.
    pub(super) fn with_number(self, number: u64) -> Self {
        Self(self.0 & !FILE | number << FILE_SHIFT)
    }

    #[inline]
    pub(super) fn may_read(self) -> bool {
        self.0 & Self::READ != 0
    }

    #[inline]
    pub(super) fn may_write(self) -> bool {
        self.0 & Self::WRITE != 0 && self.may_read()
    }

    /// Returns the number of the mapping if this is a file's page.
    #[inline]
    pub(super) fn file(self) -> Option<u64> {
        (!self.is_own() && self.0 & FILE != 0).then_some(self.number())
    }

    /// Returns the number of the mapping if this is a file's page that may be read.
    #[inline]
    pub(super) fn file_to_read(self) -> Option<u64> {
        (self.0 & Self::READ_FILE != 0).then_some(self.number())
    }

    #[inline]
    fn number(self) -> u64 {
        (self.0 & FILE) >> FILE_SHIFT
    }

    /// Returns whether this is the space's own memory.
    #[inline]
    pub(super) fn is_own(self) -> bool {
        self.0 & Self::READ_FILE == 0 && self.0 & Self::PROTECTION != 0
    }

    /// Returns whether this is own memory that may be written.
    #[inline]
    pub(super) fn may_write_own(self) -> bool {
        self.0 & (Self::WRITE | Self::READ_OWN) == Self::WRITE | Self::READ_OWN
    }

    /// Returns whether this is own memory that may be read.
    #[inline]
    pub(super) fn may_read_own(self) -> bool {
        self.0 & Self::READ_OWN != 0
    }

    /// Returns whether both entries are the same apart from their numbers.
    pub(super) fn is_like(self, other: Self) -> bool {
        (self.0 ^ other.0) & !FILE == 0
    }

    /// Returns this entry with a new protection for now, and the present protection kept.
    pub(super) fn changing(self, protection: Protection) -> Self {
        let kept = 1 + u32::from(self.may_read()) + u32::from(self.may_write());
        let low = if kept & 1 != 0 { Self::KEPT_LOW } else { 0 };
        let high = if kept & 2 != 0 { Self::KEPT_HIGH } else { 0 };
        Self(self.with_protection(protection).0 & !Self::KEPT | low | high)
    }

    /// Returns the protection from before the change that is in progress, if one is.
    pub(super) fn kept(self) -> Option<Protection> {
        match (self.0 & Self::KEPT_HIGH != 0, self.0 & Self::KEPT_LOW != 0) {
            (false, false) => None,
            (false, true) => Some(Protection::None),
            (true, false) => Some(Protection::Read),
            (true, true) => Some(Protection::ReadWrite),
        }
    }

    /// Returns the entry as it was before the change that is in progress.
    pub(super) fn restored(self) -> Self {
        self.kept().map_or(self, |kept| self.settled().with_protection(kept))
    }

    /// Returns the entry as it is once the change is complete.
    pub(super) fn settled(self) -> Self {
        Self(self.0 & !Self::KEPT)
    }

    pub(super) fn advice(self) -> Advice {
        match self.0 & Self::ADVICE {
            Self::RANDOM => Advice::Random,
            Self::SEQUENTIAL => Advice::Sequential,
            _ => Advice::Normal,
        }
    }

    /// Returns the protection, or `None` if nothing is mapped.
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
            assert!(entry.advice() == Advice::Random && !entry.may_write_own() && !entry.may_read_own());
            assert_eq!(entry.0 >> 62, 0, "the link's bit, and a kept protection");
            let other = entry.with_protection(Protection::Read).with_number(7).with_advice(Advice::Sequential);
            assert_eq!((other.file(), other.protection()), (Some(7), Some(Protection::Read)));
            assert_eq!(other.with_advice(Advice::WillNeed).advice(), Advice::Sequential);
            let own = Entry::own(number, protection);
            assert_eq!((own.file(), own.file_to_read(), own.protection()), (None, None, Some(protection)));
            assert!(own.is_own() && !entry.is_own() && own.with_protection(Protection::None).is_own());
            assert_eq!(own.may_read_own(), protection != Protection::None);
            assert_eq!(entry.file_to_read(), entry.file().filter(|_| entry.may_read()));
            assert_eq!(own.may_write_own(), protection == Protection::ReadWrite);
            for to in [Protection::None, Protection::Read, Protection::ReadWrite] {
                for entry in [entry, own] {
                    let changing = entry.changing(to);
                    assert_eq!(
                        (changing.protection(), changing.kept(), entry.kept()),
                        (Some(to), Some(protection), None)
                    );
                    assert_eq!((changing.restored(), changing.settled()), (entry, entry.with_protection(to)));
                    assert_eq!((changing.is_own(), changing.0 >> 63), (entry.is_own(), 0), "the link's bit");
                }
            }
        }
        assert_eq!(Entry::NONE.protection(), None);
    }
}
