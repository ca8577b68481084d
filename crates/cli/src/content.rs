//! Content that can be checked without a second copy: each 8-byte word of a file is a function of
//! its place and a seed.
//!
//! Word `i` of the 4 KiB block `b` is `mix(seed, b) + i × odd`, modulo 2^64, little endian. All
//! words of a block differ because the factor is odd.
//!
//! Two blocks share a run of words only if the difference of their first words is a small multiple
//! of the factor. For random first words, this happens about once in 2^54 pairs. So a check detects
//! bytes from another place, another file or another time. Writing or checking costs little more
//! than `memcpy`.

use sync::random::mix;

/// Bytes in a block, whatever the page size is.
const BLOCK: usize = 4096;

/// The factor: 2^64 divided by the golden ratio, which is odd.
const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The contents of a file made of `seed`.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Content {
    seed: u64,
}

/// A byte with a wrong value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Mismatch {
    /// Its offset in the file.
    pub(crate) offset: u64,
    /// The byte that the file should hold there.
    pub(crate) expected: u8,
    /// The byte that was read.
    pub(crate) found: u8,
}

impl Content {
    /// The content that belongs to `seed`.
    pub(crate) fn new(seed: u64) -> Self {
        Self { seed }
    }

    /// Returns the word at `offset`, a multiple of 8, of the file made of `seed`.
    pub(crate) fn word(seed: u64, offset: u64) -> u64 {
        let number = offset / BLOCK as u64;
        let word = offset % BLOCK as u64 / 8;
        u64::from_le(mix(seed ^ mix(number.wrapping_add(1))).wrapping_add(word.wrapping_mul(STEP)))
    }

    /// The seed.
    pub(crate) fn seed(self) -> u64 {
        self.seed
    }

    /// Fills `into` with block `number`.
    fn block(self, number: u64, into: &mut [u8; BLOCK]) {
        let mut word = mix(self.seed ^ mix(number.wrapping_add(1)));
        let (words, _) = into.as_chunks_mut::<8>();
        for bytes in words {
            *bytes = word.to_le_bytes();
            word = word.wrapping_add(STEP);
        }
    }

    /// Splits `offset..offset + len` at the boundaries of blocks. Calls `part` for each piece, with
    /// the place of the piece in the caller's bytes and with the contents that the file should have
    /// there. Stops at the first call that returns `Some`, and returns its result.
    fn each_part<T>(self, offset: u64, len: usize, mut part: impl FnMut(usize, &[u8]) -> Option<T>) -> Option<T> {
        let mut block = [0; BLOCK];
        let mut done = 0;
        while done < len {
            let at = offset.wrapping_add(done as u64);
            let within = (at % BLOCK as u64) as usize;
            let n = (BLOCK - within).min(len - done);
            self.block(at / BLOCK as u64, &mut block);
            let found = part(done, &block[within..within + n]);
            if found.is_some() {
                return found;
            }
            done += n;
        }
        None
    }

    /// Fills `into` with the file's contents from `offset` on.
    pub(crate) fn fill(self, offset: u64, into: &mut [u8]) {
        self.each_part(offset, into.len(), |at, bytes| {
            into[at..at + bytes.len()].copy_from_slice(bytes);
            None::<()>
        });
    }

    /// Returns the first byte of `read`, read at `offset`, that differs from the file's contents.
    pub(crate) fn check(self, offset: u64, read: &[u8]) -> Option<Mismatch> {
        self.each_part(offset, read.len(), |at, bytes| {
            first_difference(offset.wrapping_add(at as u64), bytes, &read[at..at + bytes.len()])
        })
    }
}

/// Returns the first place at which `found`, read at `offset`, differs from `expected`, which has
/// the same length.
pub(crate) fn first_difference(offset: u64, expected: &[u8], found: &[u8]) -> Option<Mismatch> {
    if expected == found {
        return None;
    }
    let at = expected.iter().zip(found).position(|(expected, found)| expected != found)?;
    Some(Mismatch { offset: offset.wrapping_add(at as u64), expected: expected[at], found: found[at] })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn any_range_agrees_with_the_whole() {
        let content = Content::new(7);
        let mut whole = vec![0; 5 * BLOCK];
        content.fill(0, &mut whole);
        for (offset, len) in [(0, 1), (1, 8), (4095, 2), (4096, 4096), (100, 9000), (20_479, 1), (8192, 0)] {
            let mut part = vec![0; len];
            content.fill(offset as u64, &mut part);
            assert_eq!(part, whole[offset..offset + len], "{offset} + {len}");
            assert_eq!(content.check(offset as u64, &part), None);
        }
    }

    #[test]
    fn words_agree_with_bytes() {
        let content = Content::new(7);
        let mut whole = vec![0; 3 * BLOCK];
        content.fill(0, &mut whole);
        for (at, bytes) in whole.chunks_exact(8).enumerate() {
            assert_eq!(Content::word(7, at as u64 * 8).to_ne_bytes(), bytes);
        }
    }

    #[test]
    fn a_wrong_byte_is_found_where_it_is() {
        let content = Content::new(7);
        let mut bytes = vec![0; 10_000];
        content.fill(1_000, &mut bytes);
        bytes[6_543] ^= 0x10;
        let mismatch = content.check(1_000, &bytes).unwrap();
        assert_eq!(mismatch.offset, 7_543);
        assert_eq!(mismatch.expected ^ mismatch.found, 0x10);
    }

    #[test]
    fn other_places_and_seeds_are_other_bytes() {
        let mut page = vec![0; BLOCK];
        Content::new(7).fill(0, &mut page);
        assert!(Content::new(8).check(0, &page).is_some());
        for block in 1..1_000 {
            assert!(Content::new(7).check(block * BLOCK as u64, &page).is_some(), "block {block}");
        }
        assert!(Content::new(7).check(8, &page).is_some(), "shifted by a word");
        assert!(Content::new(7).check(0, &vec![0; BLOCK]).is_some(), "zeros");
    }

    #[test]
    fn the_end_of_the_number_range_is_no_special_place() {
        let mut bytes = [0; 100];
        Content::new(7).fill(u64::MAX - 50, &mut bytes);
        assert_eq!(Content::new(7).check(u64::MAX - 50, &bytes), None);
    }
}
