//! The *seal* of a page: a checksum that verifies that a read from a slot returns the bytes that
//! were written.
//!
//! The seal covers the page's bytes and their identity: the slot with its generation, the owner,
//! and the charged group. The seal stays in memory, beside the slot's word, so the device never has
//! it. If the device returns an older page, another slot's page, or a flipped bit, the bytes don't
//! match the seal. CRC-32 finds every single flipped bit and every burst of up to 32 bits; it
//! misses any other change with probability 2^-32.

use crc32fast::Hasher;
use sync::SharedBytes;

use crate::{Owner, SlotId};

/// Returns the seal of a page. If another thread changes the page meanwhile, the seal may match no
/// version of the page.
pub(crate) fn seal(contents: SharedBytes<'_>, slot: SlotId, owner: Owner, group: u32) -> u32 {
    let mut hasher = Hasher::new();
    for part in [slot.bits(), owner.number(), u64::from(group)] {
        hasher.update(&part.to_le_bytes());
    }
    // Hashes a copy, because no `&[u8]` of shared bytes may exist here. The copy is small enough
    // for the first-level cache.
    let mut part = [0; 2048];
    for at in (0..contents.len()).step_by(part.len()) {
        let part = &mut part[..(contents.len() - at).min(2048)];
        contents.copy_to(at, part);
        hasher.update(part);
    }
    hasher.finalize()
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use sync::atomic::AtomicU64;

    #[test]
    fn all_that_is_sealed_matters() {
        let words: Vec<_> = (0..512).map(AtomicU64::new).collect();
        let page = SharedBytes::new(&words);
        let [owner, other] = [5, 6].map(|number| Owner::new(number).unwrap());
        let slot = SlotId::new(1, 2, 3);
        let sealed = seal(page, slot, owner, 7);
        assert_eq!(sealed, seal(page, slot, owner, 7));
        for another in [SlotId::new(0, 2, 3), SlotId::new(1, 4, 3), SlotId::new(1, 2, 4)] {
            assert_ne!(sealed, seal(page, another, owner, 7));
        }
        assert_ne!(sealed, seal(page, slot, other, 7));
        assert_ne!(sealed, seal(page, slot, owner, 8));
        for bit in (0..4096 * 8).step_by(97) {
            let mut byte = [0];
            page.copy_to(bit / 8, &mut byte);
            page.copy_from(bit / 8, &[byte[0] ^ 1 << (bit % 8)]);
            assert_ne!(sealed, seal(page, slot, owner, 7), "bit {bit}");
            page.copy_from(bit / 8, &byte);
        }
    }
}
