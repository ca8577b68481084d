//! The page word: where a page of an object is, in one atomic 64-bit value.
//!
//! | tag (bits 0–1) | state | the other bits |
//! |---|---|---|
//! | 0 | *vacant*: not in memory | 3–63: the shadow of the last eviction, 0 if there was none |
//! | 1 | *loading*: a thread is loading the page | 3: `WAITED`, a thread waits for it |
//! | 2 | *resident* in a frame | 2: `HOT` · 3: `WRITTEN` · 12–41: frame · 42–63 and 4–11: the frame's generation |
//! | 3 | *swapped*: in a swap slot, or needs none | 3–63: the entry: slot or content |
//!
//! Bit 2 is set only in resident words, so a hit tests this one bit to learn that the page is both
//! resident and hot. The frame's number starts at bit 12, so a mask yields the frame's
//! offset in bytes in an arena of pages of 4 KiB.
//!
//! The word of a page that was written to has `WRITTEN` set, and `HOT` clear. The hot
//! bit is in the frame's record instead, next to a version that readers check (`writing`). This
//! check makes reads of a file's written pages slower. So once the file has all bytes of such a
//! page, the page is *settled*: its word loses `WRITTEN` and gets the frame's next generation.
//!
//! Every change is a compare-and-swap, with two exceptions: the loader may swap a *loading* word,
//! which it owns, and a thread that settles a page stores the word while it has the frame frozen.
//! A word changes in these ways:
//! ```text
//!            begin_load                 publish
//!   vacant ─────────────▶ loading ─────────────────▶ resident
//!     ▲  ▲                   │                           │
//!     │  └───────────────────┘ load failed               │
//!     └──────────────────────────────────────────────────┘ evict (frame frozen), remove
//!
//!                swap_out (frame frozen)         begin_load
//!   resident ─────────────▶ swapped ─────────────▶ loading, and back if the load failed
//!                              └──▶ vacant         detach
//!
//!                begin_write (frame frozen)
//!   resident(f, g) ─────────────▶ resident(f, g, WRITTEN) ─────────────▶ resident(f, g + 1)
//!                                                     settle (frame frozen)
//! ```
//! **A resident word is never reused.** A frame's generation goes up each time the frame is freed
//! or its page is settled. A frame that has used up the 30 bits of its generation is retired for
//! good: its memory goes back to the system, and only its number is lost.
//!
//! So if a reader loads the same *resident* word twice, `HOT` aside, the page has been in this
//! frame all the time between the two loads (one *stay*), however long that time was. Generations
//! alone prevent ABA; no clock is needed.

use core::fmt;

use crate::frame_id::FrameId;

/// The value of a page word.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct PageWord(u64);

const TAG: u64 = 0b11;
const LOADING: u64 = 1;
const RESIDENT: u64 = 2;
const SWAPPED: u64 = 3;

/// In a *loading* word: the wait table has a waiter for the page.
const WAITED: u64 = 1 << 3;
/// Only in a *resident* word: the page was used several times since reclaim last looked
/// (`write_state::USES_MAX`).
const HOT: u64 = 1 << 2;
/// In a *resident* word: the frame's record has the page's version and hot bit.
const WRITTEN: u64 = 1 << 3;

const SHADOW_SHIFT: u32 = 3;
/// The number of bits of a frame's generation.
pub(crate) const GENERATION_BITS: u32 = 30;
/// Position of the generation's lower bits, above the flags.
const GENERATION_SHIFT: u32 = 4;
const GENERATION_LOW_BITS: u32 = FRAME_SHIFT - GENERATION_SHIFT;
const GENERATION_LOW: u32 = (1 << GENERATION_LOW_BITS) - 1;
/// Position of the generation's upper bits, above the frame.
const GENERATION_HIGH_SHIFT: u32 = FRAME_SHIFT + FRAME_BITS;
/// The number of bits of a frame's number: 4 TiB of 4 KiB frames.
pub(crate) const FRAME_BITS: u32 = 30;
const FRAME_SHIFT: u32 = SMALLEST_PAGE_SHIFT;
const FRAME: u64 = ((1 << FRAME_BITS) - 1) << FRAME_SHIFT;
/// Log2 of the smallest, and usual, page size: 4 KiB.
pub(crate) const SMALLEST_PAGE_SHIFT: u32 = 12;

const _: () =
    assert!(GENERATION_HIGH_SHIFT + GENERATION_BITS - GENERATION_LOW_BITS == 64, "the words above are all there is");

/// The content of a page word, decoded.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PageState {
    /// Not in memory. The word holds the shadow of the page's last eviction, or 0 if there is none.
    Vacant {
        /// At most [`SHADOW_BITS`](PageWord::SHADOW_BITS) bits; only the policy interprets them.
        shadow: u64,
    },
    /// A thread is loading the page.
    Loading,
    /// In a frame.
    Resident {
        /// The frame.
        frame: FrameId,
    },
    /// Swapped out. The page belongs to no file; its bytes are in a swap slot, or follow from the
    /// entry.
    Swapped {
        /// The slot, or the content of a page that needs no slot: at most
        /// [`SHADOW_BITS`](PageWord::SHADOW_BITS) bits; only the policy interprets them.
        entry: u64,
    },
}

impl PageWord {
    /// The number of bits that a shadow or an entry may have.
    pub const SHADOW_BITS: u32 = 64 - SHADOW_SHIFT;

    /// The word of a page that was never in memory.
    pub const NEVER: Self = Self(0);

    pub(crate) fn from_bits(bits: u64) -> Self {
        Self(bits)
    }

    pub(crate) fn bits(self) -> u64 {
        self.0
    }

    pub(crate) fn vacant(shadow: u64) -> Self {
        debug_assert!(shadow >> Self::SHADOW_BITS == 0, "shadow {shadow:#x} is too wide");
        Self(shadow << SHADOW_SHIFT)
    }

    pub(crate) fn swapped(entry: u64) -> Self {
        debug_assert!(entry >> Self::SHADOW_BITS == 0, "entry {entry:#x} is too wide");
        Self(entry << SHADOW_SHIFT | SWAPPED)
    }

    pub(crate) fn loading() -> Self {
        Self(LOADING)
    }

    pub(crate) fn resident(frame: FrameId, generation: u32) -> Self {
        debug_assert!(generation >> GENERATION_BITS == 0 && frame.index() >> FRAME_BITS == 0);
        let low = u64::from(generation & GENERATION_LOW) << GENERATION_SHIFT;
        let high = u64::from(generation >> GENERATION_LOW_BITS) << GENERATION_HIGH_SHIFT;
        Self(RESIDENT | (frame.index() as u64) << FRAME_SHIFT | low | high)
    }

    /// Decodes the word.
    #[must_use]
    pub fn state(self) -> PageState {
        match self.0 & TAG {
            LOADING => PageState::Loading,
            RESIDENT => PageState::Resident { frame: self.frame_bits() },
            SWAPPED => PageState::Swapped { entry: self.0 >> SHADOW_SHIFT },
            _ => PageState::Vacant { shadow: self.0 >> SHADOW_SHIFT },
        }
    }

    /// Returns the frame if the page is resident. A faster alternative to [`state`](Self::state)
    /// for the hit path.
    #[inline]
    pub(crate) fn frame(self) -> Option<FrameId> {
        (self.0 & TAG == RESIDENT).then(|| self.frame_bits())
    }

    #[inline]
    fn frame_bits(self) -> FrameId {
        FrameId::new(self.frame_number() as u32)
    }

    /// Returns the number of a resident page's frame.
    #[inline]
    pub(crate) fn frame_number(self) -> usize {
        ((self.0 & FRAME) >> FRAME_SHIFT) as usize
    }

    /// Returns whether the page is resident and was used several times since reclaim last looked.
    /// Then a hit has nothing to record.
    #[inline]
    pub(crate) fn is_hot(self) -> bool {
        self.0 & HOT != 0
    }

    /// Returns the offset of a resident page's frame in an arena of pages of 2^`page_shift` bytes.
    #[cfg_attr(pagefold_loom, allow(dead_code, reason = "a model's arena is a vector"))]
    #[inline]
    pub(crate) fn frame_offset(self, page_shift: u32) -> usize {
        self.frame_number() << page_shift
    }

    /// Returns whether two resident words belong to the same stay of a page in memory: equal except
    /// for the hot bit.
    #[inline]
    pub(crate) fn same_stay(self, other: Self) -> bool {
        (self.0 ^ other.0) & !HOT == 0
    }

    pub(crate) fn with_hot(self, hot: bool) -> Self {
        debug_assert!(self.0 & TAG == RESIDENT && self.0 & WRITTEN == 0);
        if hot { Self(self.0 | HOT) } else { Self(self.0 & !HOT) }
    }

    /// Returns whether the page was written to, and not settled since.
    #[inline]
    pub(crate) fn is_written(self) -> bool {
        self.0 & (TAG | WRITTEN) == RESIDENT | WRITTEN
    }

    /// Returns the word of the same stay, marked as written.
    pub(crate) fn with_written(self) -> Self {
        debug_assert!(self.0 & TAG == RESIDENT);
        Self(self.0 & !HOT | WRITTEN)
    }

    pub(crate) fn is_loading(self) -> bool {
        self.0 & TAG == LOADING
    }

    pub(crate) fn is_waited(self) -> bool {
        debug_assert!(self.is_loading());
        self.0 & WAITED != 0
    }

    pub(crate) fn with_waited(self) -> Self {
        debug_assert!(self.is_loading());
        Self(self.0 | WAITED)
    }
}

impl fmt::Debug for PageWord {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "PageWord({:?}, {:#x})", self.state(), self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_part_survives_packing() {
        for frame in [0, 1, 7, (1 << FRAME_BITS) - 1] {
            for generation in [0, 1, GENERATION_LOW, GENERATION_LOW + 1, (1 << GENERATION_BITS) - 1] {
                let word = PageWord::resident(FrameId::new(frame), generation);
                assert_eq!(word.state(), PageState::Resident { frame: FrameId::new(frame) });
                assert!(word.same_stay(word.with_hot(true)));
                assert!(word.with_hot(true).is_hot() && !word.is_hot());
                assert_eq!(word.frame_offset(14), (frame as usize) << 14);
                assert_eq!(word.frame_offset(12), (frame as usize) << 12);
                let written = word.with_hot(true).with_written();
                assert!(written.is_written() && !written.is_hot() && !written.same_stay(word));
                assert_eq!(written.state(), word.state());
                for bit in 0..GENERATION_BITS {
                    assert!(!word.same_stay(PageWord::resident(FrameId::new(frame), generation ^ 1 << bit)));
                }
                assert!(!word.same_stay(PageWord::resident(FrameId::new(frame ^ 1), generation)));
            }
        }
        let widest = (1 << PageWord::SHADOW_BITS) - 1;
        assert_eq!(PageWord::vacant(widest).state(), PageState::Vacant { shadow: widest });
        let swapped = PageWord::swapped(widest);
        assert_eq!(swapped.state(), PageState::Swapped { entry: widest });
        assert!(!swapped.is_hot() && !swapped.is_written() && swapped.frame().is_none());
        assert_eq!(PageWord::NEVER.state(), PageState::Vacant { shadow: 0 });
        assert!(PageWord::loading().with_waited().is_waited() && !PageWord::loading().is_waited());
        assert!(!PageWord::loading().with_waited().is_written() && !PageWord::vacant(widest).is_written());
    }
}
