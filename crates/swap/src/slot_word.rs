//! The slot word, which is the state of a slot in one atomic 64-bit value, and the number that
//! identifies the slot elsewhere.
//!
//! | tag (bits 0–2) | state | bits 27–63 |
//! |---|---|---|
//! | 0 | *free* | |
//! | 1 | *taken*: allocated, and nothing in it yet | |
//! | 2 | *cached*: its page is in memory as well | 27–56: the frame |
//! | 3 | *swapped*: its page is nowhere else | 27–63: the owner |
//! | 4 | *freed*: in a CPU's batch or in the reserve, and not available yet | |
//!
//! Bits 3–26 are the slot's generation in every state.
//!
//! Why these sizes:
//! - The *owner* is the number of the page's page word. `frames` has at most 2^37 page words, and
//!   numbers them across all objects. So the removal of an area finds the page of a slot directly,
//!   whichever object the page belongs to.
//! - A *frame* has 30 bits, as in `frames`' page word.
//! - A [`SlotId`] must fit into a page word of 64 bits. The page word itself needs 3 of these bits:
//!   2 for its tag, and one that is set only while the page is resident. One more bit distinguishes
//!   a slot from a same-filled page ([`PageEntry`](crate::PageEntry)). The other 60 bits are 5 for
//!   the area, 31 for the slot in the area (8 TiB of 4 KiB pages) and 24 for the generation.
//! - The *generation* is incremented each time the slot becomes free, and wraps after 2^24 uses. It
//!   only serves to detect bugs, because a slot that isn't free has one owner (`slot_table`), and
//!   this owner has the only copy of the slot's number. A stale number or a misdirected write is
//!   detected, unless the slot has been reused exactly a multiple of 2^24 times since.
//!
//! The rest of a page's metadata is stored beside the word: the *note* (64 bits: 24 for the charged
//! group, 40 for the eviction's shadow) and the checksum (32 bits). Together with its word, a slot
//! takes 20 bytes, 0.5 % of a 4 KiB page.

use arrayvec::ArrayVec;
use core::fmt;

/// The maximum number of slots in one allocation.
pub const BATCH_MAX: usize = 64;

/// Slots just allocated; consecutive slots are in ascending order.
pub type SlotBatch = ArrayVec<SlotId, BATCH_MAX>;

/// Bits of a generation.
pub(crate) const GENERATION_BITS: u32 = 24;
const GENERATION_MASK: u32 = (1 << GENERATION_BITS) - 1;
/// Bits of a slot's number in its area.
pub(crate) const NUMBER_BITS: u32 = 31;
/// Bits of an area's number.
pub(crate) const AREA_BITS: u32 = 5;

const TAG_BITS: u32 = 3;
const PAYLOAD_SHIFT: u32 = TAG_BITS + GENERATION_BITS;
const FRAME_BITS: u32 = 30;

const _: () = assert!(PAYLOAD_SHIFT + Owner::BITS <= 64 && FRAME_BITS <= Owner::BITS);

/// The number of a page, unique among the pages of all objects.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(u64);

impl Owner {
    /// Width in bits.
    pub const BITS: u32 = 37;

    /// Creates the owner with that number; `None` if the number has more than [`BITS`](Self::BITS)
    /// bits.
    #[must_use]
    pub fn new(number: u64) -> Option<Self> {
        (number >> Self::BITS == 0).then_some(Self(number))
    }

    /// Returns the number.
    #[must_use]
    pub fn number(self) -> u64 {
        self.0
    }
}

/// Identifies one use of one slot of one area, in 60 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SlotId(u64);

impl SlotId {
    /// Width in bits.
    pub const BITS: u32 = AREA_BITS + NUMBER_BITS + GENERATION_BITS;

    pub(crate) fn new(area: u32, number: u32, generation: u32) -> Self {
        debug_assert!(area >> AREA_BITS == 0 && number >> NUMBER_BITS == 0 && generation >> GENERATION_BITS == 0);
        let slot = u64::from(area) << NUMBER_BITS | u64::from(number);
        Self(slot << GENERATION_BITS | u64::from(generation))
    }

    /// Returns the bits, for a page word.
    #[must_use]
    pub fn bits(self) -> u64 {
        self.0
    }

    /// Creates the slot from its bits; `None` if more than [`BITS`](Self::BITS) bits are used.
    #[must_use]
    pub fn from_bits(bits: u64) -> Option<Self> {
        (bits >> Self::BITS == 0).then_some(Self(bits))
    }

    /// Returns the number of its area.
    #[must_use]
    pub fn area(self) -> u32 {
        (self.0 >> (GENERATION_BITS + NUMBER_BITS)) as u32
    }

    /// Returns the slot's number in the area: its offset in pages.
    #[must_use]
    pub fn number(self) -> u32 {
        (self.0 >> GENERATION_BITS) as u32 & ((1 << NUMBER_BITS) - 1)
    }

    /// Returns how many times the slot had been used before, modulo 2^24.
    #[must_use]
    pub fn generation(self) -> u32 {
        self.0 as u32 & GENERATION_MASK
    }
}

impl fmt::Debug for SlotId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "SlotId(area {}, slot {}, use {})", self.area(), self.number(), self.generation())
    }
}

/// The state of a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SlotState {
    /// Available for allocation.
    Free,
    /// Allocated, without a page yet.
    Taken,
    /// A page that is in this frame as well: the page is being written, or unchanged since it was
    /// written.
    Cached {
        /// The frame's number.
        frame: u32,
    },
    /// A page that is nowhere else.
    Swapped {
        /// The page's number.
        owner: Owner,
    },
    /// Released by its owner, and waiting in a CPU's batch or in the reserve.
    Freed,
}

/// The value of a slot word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) struct SlotWord(u64);

const FREE: u64 = 0;
const TAKEN: u64 = 1;
const CACHED: u64 = 2;
const SWAPPED: u64 = 3;
const FREED: u64 = 4;

impl SlotWord {
    pub(crate) fn new(state: SlotState, generation: u32) -> Self {
        let (tag, payload) = match state {
            SlotState::Free => (FREE, 0),
            SlotState::Taken => (TAKEN, 0),
            SlotState::Cached { frame } => (CACHED, u64::from(frame)),
            SlotState::Swapped { owner } => (SWAPPED, owner.0),
            SlotState::Freed => (FREED, 0),
        };
        debug_assert!(tag != CACHED || payload >> FRAME_BITS == 0);
        Self(payload << PAYLOAD_SHIFT | u64::from(generation & GENERATION_MASK) << TAG_BITS | tag)
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn state(self) -> SlotState {
        let payload = self.0 >> PAYLOAD_SHIFT;
        match self.0 & ((1 << TAG_BITS) - 1) {
            FREE => SlotState::Free,
            TAKEN => SlotState::Taken,
            CACHED => SlotState::Cached { frame: payload as u32 },
            SWAPPED => SlotState::Swapped { owner: Owner(payload) },
            _ => SlotState::Freed,
        }
    }

    pub(crate) fn generation(self) -> u32 {
        (self.0 >> TAG_BITS) as u32 & GENERATION_MASK
    }

    /// Returns the word for the slot when it becomes free again.
    pub(crate) fn next_use(self) -> Self {
        Self::new(SlotState::Free, self.generation().wrapping_add(1))
    }
}

/// Metadata of a swapped page that is stored beside its slot's word: the group it was charged to,
/// and the shadow of its eviction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Note {
    group: u32,
    shadow: u64,
}

impl Note {
    /// Bits of a group's number.
    pub const GROUP_BITS: u32 = 24;
    /// Bits of a shadow.
    pub const SHADOW_BITS: u32 = 40;

    /// Creates a note. Cuts off bits beyond the widths above, which is harmless: a group's number
    /// only tells groups apart, and a shadow only serves an estimate.
    #[must_use]
    pub fn new(group: u32, shadow: u64) -> Self {
        Self { group: group & ((1 << Self::GROUP_BITS) - 1), shadow: shadow & ((1 << Self::SHADOW_BITS) - 1) }
    }

    /// Returns the group that the page was charged to.
    #[must_use]
    pub fn group(self) -> u32 {
        self.group
    }

    /// Returns the shadow, which the policy evaluates when the page is swapped in.
    #[must_use]
    pub fn shadow(self) -> u64 {
        self.shadow
    }

    pub(crate) fn bits(self) -> u64 {
        u64::from(self.group) << Self::SHADOW_BITS | self.shadow
    }

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self::new((bits >> Self::SHADOW_BITS) as u32, bits)
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn every_part_survives_packing() {
        let widest = Owner::new((1 << Owner::BITS) - 1).unwrap();
        let frame = (1 << FRAME_BITS) - 1;
        for generation in [0, 1, GENERATION_MASK] {
            for state in [
                SlotState::Free,
                SlotState::Taken,
                SlotState::Freed,
                SlotState::Cached { frame },
                SlotState::Cached { frame: 0 },
                SlotState::Swapped { owner: widest },
                SlotState::Swapped { owner: Owner(0) },
            ] {
                let word = SlotWord::from_bits(SlotWord::new(state, generation).bits());
                assert_eq!((word.state(), word.generation()), (state, generation));
                let next = word.next_use();
                assert_eq!((next.state(), next.generation()), (SlotState::Free, (generation + 1) & GENERATION_MASK));
            }
        }
        assert_eq!(SlotWord::from_bits(0).state(), SlotState::Free, "zeroed memory is free slots");
        assert!(Owner::new(1 << Owner::BITS).is_none());
    }

    #[test]
    fn ids_and_notes_survive_packing() {
        let (area, number, generation) = ((1 << AREA_BITS) - 1, (1 << NUMBER_BITS) - 1, GENERATION_MASK);
        for (area, number, generation) in [(area, 0, 0), (0, number, 0), (0, 0, generation), (area, number, generation)]
        {
            let id = SlotId::from_bits(SlotId::new(area, number, generation).bits()).unwrap();
            assert_eq!((id.area(), id.number(), id.generation()), (area, number, generation));
        }
        assert!(SlotId::from_bits(1 << SlotId::BITS).is_none());
        let note = Note::new(u32::MAX, u64::MAX);
        assert_eq!((note.group(), note.shadow()), ((1 << 24) - 1, (1 << 40) - 1));
        assert_eq!(Note::from_bits(Note::new(7, 9).bits()), Note::new(7, 9));
    }
}
