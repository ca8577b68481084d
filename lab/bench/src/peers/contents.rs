//! The contents of a test file's pages. They are known, so whatever a subject returns can be
//! checked.

use crate::random::mix;

/// Bytes in a page, everywhere in this crate.
pub(crate) const PAGE: usize = 4096;

/// A page of bytes.
pub(crate) type Page = [u8; PAGE];

/// Where page `page` starts in its file.
pub(crate) fn offset_of(page: u32) -> u64 {
    u64::from(page) * PAGE as u64
}

/// What a file holds.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Contents {
    /// Every 8-byte word is different, and follows from its page and place.
    Pattern,
    /// Holes: reading costs, storing doesn't.
    Zeros,
}

impl Contents {
    /// All of page `page`.
    pub(crate) fn page(self, page: u32) -> Box<Page> {
        let mut bytes = Box::new([0; PAGE]);
        if self == Self::Pattern {
            let (words, _) = bytes.as_chunks_mut::<8>();
            for (index, word) in words.iter_mut().enumerate() {
                let place = u64::from(page) * (PAGE as u64 / 8) + index as u64;
                *word = mix(place + 1).to_le_bytes();
            }
        }
        bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pages_differ_and_holes_are_zero() {
        assert_ne!(Contents::Pattern.page(0), Contents::Pattern.page(1));
        assert_eq!(Contents::Zeros.page(9), Box::new([0; PAGE]));
        assert_ne!(Contents::Pattern.page(0)[..8], [0; 8]);
    }
}
