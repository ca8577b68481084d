//! The contents of pages: each word says where it belongs, and has a few bits that writers change.

use super::PAGE;
use crate::random::mix;

/// Bits of a word that writers change.
const VERSION_BITS: u32 = 16;
/// Words of a compressible page that look random.
const STAMPED: u64 = PAGE / 8 * 3 / 8;

/// What pages consist of.
#[derive(Clone, Copy, Debug)]
pub(super) enum Contents {
    /// Each word of each page is another one, that looks random.
    Incompressible,
    /// The first three eighths of each page are incompressible; the rest repeats one word, which
    /// differs from page to page.
    Compressible,
    /// Each page repeats a word of its own.
    SameFilled,
    /// Zeros.
    Zeros,
}

impl Contents {
    /// A word of a page, in some version.
    pub(super) fn word(self, page: u64, word: u64, version: u16) -> u64 {
        match self {
            Self::Incompressible => stamp(page, word) | u64::from(version),
            Self::Compressible if word < STAMPED => stamp(page, word) | u64::from(version),
            Self::Compressible => stamp(page, STAMPED),
            Self::SameFilled => page + 1,
            Self::Zeros => 0,
        }
    }

    /// Whether `found` is that word of that page, in any version.
    pub(super) fn is(self, page: u64, word: u64, found: u64) -> bool {
        match self {
            Self::Incompressible => found >> VERSION_BITS == stamp(page, word) >> VERSION_BITS,
            Self::Compressible if word < STAMPED => Self::Incompressible.is(page, word, found),
            Self::Compressible | Self::SameFilled | Self::Zeros => found == self.word(page, word, 0),
        }
    }

    /// All of a page.
    pub(super) fn page(self, page: u64) -> [u8; PAGE as usize] {
        let mut bytes = [0; PAGE as usize];
        for (word, bytes) in (0..).zip(bytes.chunks_mut(8)) {
            let version = mix(page + word) as u16;
            bytes.copy_from_slice(&self.word(page, word, version).to_ne_bytes());
        }
        bytes
    }
}

/// What a word says of its place.
fn stamp(page: u64, word: u64) -> u64 {
    mix(page << 9 | word) >> VERSION_BITS << VERSION_BITS
}
