//! The part of a page word that describes a swapped page: the page's slot, or the word that a
//! same-filled page repeats.
//!
//! A page that repeats one 64-bit word (its *fill*) uses no slot, and needs no I/O in either
//! direction, if the fill can be encoded in the bits that a page word has for it. Most such pages
//! are all zeros. Most of the others repeat a byte, a 32-bit number, a small integer of either
//! sign, or a round floating-point number.
//!
//! | bits | slot | same-filled |
//! |---|---|---|
//! | 0 | 0 | 1 |
//! | 1–60 | [`SlotId`] | 1–2: form, 3–60: 58 bits |
//!
//! | form | the word, from its lowest bit up |
//! |---|---|
//! | 0 | the 58 bits, then zeros: small numbers |
//! | 1 | zeros, then the 58 bits: round floating-point numbers |
//! | 2 | the 58 bits, then ones: small negative numbers |
//! | 3 | the lower 32 of the bits, twice: bytes, 32-bit numbers |

use sync::SharedBytes;

use crate::SlotId;

/// Bits that a page word has for an entry.
const BITS: u32 = 61;
const VALUE_BITS: u32 = 58;
const VALUE_MASK: u64 = (1 << VALUE_BITS) - 1;
const REST_BITS: u32 = 64 - VALUE_BITS;

const _: () = assert!(BITS == 1 + SlotId::BITS && BITS == 1 + 2 + VALUE_BITS);

/// The contents of a page that was swapped out. A page that was never used has no entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageEntry {
    /// The page is in a slot.
    Slot(SlotId),
    /// The page repeats this word.
    SameFilled(Fill),
}

/// A 64-bit word that fits into a page word.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Fill(u64);

impl PageEntry {
    /// Width in bits.
    pub const BITS: u32 = BITS;

    /// Returns the bits, for a page word.
    #[must_use]
    pub fn bits(self) -> u64 {
        match self {
            Self::Slot(slot) => slot.bits() << 1,
            Self::SameFilled(Fill(word)) => packed(word).unwrap_or(0) << 1 | 1,
        }
    }

    /// Returns the entry with these [`bits`](Self::bits); `None` if no entry has them.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        if bits >> BITS != 0 {
            return None;
        }
        let rest = bits >> 1;
        if bits & 1 == 0 {
            SlotId::from_bits(rest).map(Self::Slot)
        } else {
            Some(Self::SameFilled(Fill(unpacked(rest))))
        }
    }
}

impl Fill {
    /// Creates a fill from `word`; `None` if the word doesn't fit into a page word.
    #[must_use]
    pub fn new(word: u64) -> Option<Self> {
        packed(word).map(|_| Self(word))
    }

    /// Returns the word that `page` repeats; `None` if the page doesn't repeat one word, or the
    /// word doesn't fit into a page word. Stops at the first word that differs.
    #[must_use]
    pub fn of(page: SharedBytes<'_>) -> Option<Self> {
        let mut part = [0; 512];
        let first = word_at(page, 0)?;
        // Nearly all pages that aren't same-filled differ at the end, if not at the beginning.
        let fill = Self::new(first).filter(|_| word_at(page, page.len() - 8) == Some(first))?;
        for at in (0..page.len()).step_by(part.len()) {
            let part = &mut part[..(page.len() - at).min(512)];
            page.copy_to(at, part);
            if part.chunks(8).any(|word| word != first.to_ne_bytes()) {
                return None;
            }
        }
        Some(fill)
    }

    /// Returns the word.
    #[must_use]
    pub fn word(self) -> u64 {
        self.0
    }

    /// Copies the contents of a page that repeats the word, from byte `offset` on.
    pub fn copy_to(self, offset: usize, into: &mut [u8]) {
        let bytes = self.0.to_ne_bytes();
        into.iter_mut().zip(bytes.iter().cycle().skip(offset % bytes.len())).for_each(|(into, byte)| *into = *byte);
    }

    /// Fills a page with the word. No other thread may write to the page.
    pub fn fill(self, page: SharedBytes<'_>) {
        if self.0 == 0 {
            return page.zero_from(0);
        }
        let mut part = [0; 512];
        part.chunks_mut(8).for_each(|word| word.copy_from_slice(&self.0.to_ne_bytes()));
        for at in (0..page.len()).step_by(part.len()) {
            page.copy_from(at, &part[..(page.len() - at).min(512)]);
        }
    }
}

fn word_at(page: SharedBytes<'_>, at: usize) -> Option<u64> {
    let mut word = [0; 8];
    (page.len() >= at + 8).then(|| page.copy_to(at, &mut word))?;
    Some(u64::from_ne_bytes(word))
}

/// Returns form and value of a word; `None` if it has none of the forms.
fn packed(word: u64) -> Option<u64> {
    let (form, value) = if word >> VALUE_BITS == 0 {
        (0, word)
    } else if word.trailing_zeros() >= REST_BITS {
        (1, word >> REST_BITS)
    } else if word >> VALUE_BITS == u64::MAX >> VALUE_BITS {
        (2, word & VALUE_MASK)
    } else if word >> 32 == word & 0xffff_ffff {
        (3, word >> 32)
    } else {
        return None;
    };
    Some(value << 2 | form)
}

fn unpacked(packed: u64) -> u64 {
    let value = packed >> 2;
    match packed & 3 {
        0 => value,
        1 => value << REST_BITS,
        2 => value | !VALUE_MASK,
        _ => (value & 0xffff_ffff) << 32 | value & 0xffff_ffff,
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use sync::atomic::AtomicU64;

    fn page(word: u64) -> Vec<AtomicU64> {
        (0..512).map(|_| AtomicU64::new(word)).collect()
    }

    #[test]
    fn common_fills_take_no_slot_and_come_back() {
        let floats = [1.0_f64, -1.0, 0.5, 1e10, f64::NAN, f64::INFINITY].map(f64::to_bits);
        let numbers = [0, 1, 7, u64::MAX, -5_i64 as u64, 0xabab_abab_abab_abab, 0xdead_beef_dead_beef];
        for word in floats.into_iter().chain(numbers) {
            let from = page(word);
            let fill = Fill::of(SharedBytes::new(&from)).unwrap_or_else(|| panic!("{word:#x}"));
            let entry = PageEntry::from_bits(PageEntry::SameFilled(fill).bits());
            assert_eq!(entry, Some(PageEntry::SameFilled(fill)), "{word:#x}");
            let into = page(3);
            fill.fill(SharedBytes::new(&into));
            assert_eq!(Fill::of(SharedBytes::new(&into)).map(Fill::word), Some(word));
            let mut parts = [[0; 11]; 2];
            SharedBytes::new(&into).copy_to(4001, &mut parts[0]);
            fill.copy_to(4001, &mut parts[1]);
            assert_eq!(parts[0], parts[1]);
        }
        assert_eq!(Fill::new(0x8123_4567_89ab_cdef), None);
    }

    #[test]
    fn a_page_that_differs_in_one_byte_takes_a_slot() {
        for at in (0..4096).step_by(61).chain([4095]) {
            let words = page(0);
            SharedBytes::new(&words).copy_from(at, &[1]);
            assert_eq!(Fill::of(SharedBytes::new(&words)), None, "byte {at}");
        }
        assert_eq!(Fill::of(SharedBytes::new(&[])), None);
    }

    #[test]
    fn entries_of_slots_come_back_and_others_are_refused() {
        let slot = SlotId::new(31, (1 << 31) - 1, (1 << 24) - 1);
        assert_eq!(PageEntry::from_bits(PageEntry::Slot(slot).bits()), Some(PageEntry::Slot(slot)));
        assert_eq!(PageEntry::from_bits(1 << BITS), None);
    }
}
