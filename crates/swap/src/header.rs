//! The header in slot 0 of an area. It identifies the area, so that no other file is mistaken for
//! an area and overwritten.
//!
//! | bytes | |
//! |---|---|
//! | 0–7 | `PGFDSWAP` |
//! | 8–11 | version of the layout, 1 |
//! | 12–15 | bytes in a page |
//! | 16–23 | slots, this one included |
//! | 24–31 | a number that tells this area from others |
//! | 32–35 | CRC-32 of the bytes before |
//!
//! All numbers are little-endian, and the rest of the page is zeros. The pages in an area are lost
//! when the area's process ends. So a process that finds another process's area reads only its
//! header.

const MAGIC: [u8; 8] = *b"PGFDSWAP";
const VERSION: u32 = 1;
const CHECKED: usize = 32;

/// Bytes of a header.
pub(crate) const LEN: usize = CHECKED + 4;

/// The contents of slot 0.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Header {
    pub(crate) page_size: u32,
    pub(crate) slots: u64,
    pub(crate) id: u64,
}

/// Why a file or device doesn't have the header of an area.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
pub enum HeaderError {
    /// It doesn't begin with the magic bytes.
    #[error("it isn't one of Pagefold's swap areas")]
    NotSwap,
    /// It begins with the magic bytes, and the checksum is wrong.
    #[error("its header is damaged")]
    Damaged,
    /// The version of the layout is unknown to this program.
    #[error("its header is of version {found}, and this program knows version {VERSION} alone")]
    Version {
        /// The version in the header.
        found: u32,
    },
}

impl Header {
    pub(crate) fn encode(&self) -> [u8; LEN] {
        let mut bytes = [0; LEN];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..12].copy_from_slice(&VERSION.to_le_bytes());
        bytes[12..16].copy_from_slice(&self.page_size.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.slots.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.id.to_le_bytes());
        let checksum = crc32fast::hash(&bytes[..CHECKED]);
        bytes[CHECKED..].copy_from_slice(&checksum.to_le_bytes());
        bytes
    }

    pub(crate) fn decode(bytes: &[u8; LEN]) -> Result<Self, HeaderError> {
        let u32_at = |at: usize| u32::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        let u64_at = |at: usize| u64::from_le_bytes(std::array::from_fn(|byte| bytes[at + byte]));
        if bytes[..8] != MAGIC {
            return Err(HeaderError::NotSwap);
        }
        if u32_at(CHECKED) != crc32fast::hash(&bytes[..CHECKED]) {
            return Err(HeaderError::Damaged);
        }
        match u32_at(8) {
            VERSION => Ok(Self { page_size: u32_at(12), slots: u64_at(16), id: u64_at(24) }),
            found => Err(HeaderError::Version { found }),
        }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use sync::random::Random;

    const HEADER: Header = Header { page_size: 4096, slots: 1 << 21, id: 0x1234_5678_9abc_def0 };

    #[test]
    fn a_header_comes_back_and_any_flipped_bit_is_noticed() {
        let bytes = HEADER.encode();
        assert_eq!(Header::decode(&bytes), Ok(HEADER));
        for bit in 0..LEN * 8 {
            let mut flipped = bytes;
            flipped[bit / 8] ^= 1 << (bit % 8);
            let expected = if bit < 64 { HeaderError::NotSwap } else { HeaderError::Damaged };
            assert_eq!(Header::decode(&flipped), Err(expected), "bit {bit}");
        }
    }

    #[test]
    fn other_versions_are_named() {
        let mut bytes = HEADER.encode();
        bytes[8] = 9;
        let checksum = crc32fast::hash(&bytes[..CHECKED]);
        bytes[CHECKED..].copy_from_slice(&checksum.to_le_bytes());
        assert_eq!(Header::decode(&bytes), Err(HeaderError::Version { found: 9 }));
    }

    #[test]
    fn rubbish_is_refused() {
        let mut random = Random::seeded(1);
        for round in 0..10_000 {
            let mut bytes = [0; LEN];
            bytes.fill_with(|| random.next_u64() as u8);
            if round % 2 == 0 {
                bytes[..8].copy_from_slice(&MAGIC);
            }
            assert!(Header::decode(&bytes).is_err(), "{bytes:?}");
        }
    }
}
