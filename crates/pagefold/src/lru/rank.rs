//! Rank: which list of its group a frame is on, and its page's level. Kept in the frame's record.

use frames::{FrameId, Frames, IsolatedFrame};

use crate::lru::shadow::Level;

/// The most stripes of a group.
pub(crate) const STRIPES_MAX: usize = 32;

/// Which list of its group a frame is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) stripe: u8,
    pub(crate) kind: Kind,
}

/// Which list of a stripe a frame is on.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Young,
    Cold,
    Main(Level),
}

/// The number of lists of a stripe.
pub(crate) const KINDS: usize = 2 + Level::COUNT;

impl Kind {
    pub(crate) fn index(self) -> usize {
        match self {
            Self::Young => 0,
            Self::Cold => 1,
            Self::Main(level) => 2 + level.index(),
        }
    }

    pub(crate) fn all() -> [Self; KINDS] {
        [Self::Young, Self::Cold, Self::Main(Level(0)), Self::Main(Level(1)), Self::Main(Level(2))]
    }
}

impl Place {
    /// Returns the list's number. It is unique among the lists of the first two million groups.
    pub(crate) fn list_number(self, group: u32) -> u32 {
        (group * STRIPES_MAX as u32 + u32::from(self.stripe)) << 3 | self.kind.index() as u32
    }

    /// Returns the place that the frame's record names: the list that an isolated frame is, or was,
    /// on.
    pub(crate) fn of(frames: &Frames, frame: FrameId) -> Self {
        Rank::of(frames, frame).place()
    }
}

/// A frame's list and level, in the format of the frame's record.
///
/// | bits | |
/// |---|---|
/// | 0–1 | 0 young, 1 cold, 2 main, 3 on no list |
/// | 2–3 | level |
/// | 4–8 | stripe |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    bits: u32,
}

const YOUNG: u32 = 0;
const COLD: u32 = 1;
const MAIN: u32 = 2;
const UNLISTED: u32 = 3;
const KIND_MASK: u32 = 3;
const LEVEL_SHIFT: u32 = 2;
const STRIPE_SHIFT: u32 = 4;

impl Rank {
    /// The rank of a page that is being loaded. Its stripe is chosen when the page is listed.
    pub(crate) fn young(level: Level) -> Self {
        Self { bits: YOUNG | u32::from(level.0) << LEVEL_SHIFT }
    }

    /// The rank of a page that is on no list.
    pub(crate) fn unlisted() -> Self {
        Self { bits: UNLISTED }
    }

    pub(crate) fn is_unlisted(self) -> bool {
        self.bits & KIND_MASK == UNLISTED
    }

    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    pub(crate) fn of(frames: &Frames, frame: FrameId) -> Self {
        Self { bits: frames.rank(frame) }
    }

    pub(crate) fn level(self) -> Level {
        Level((self.bits >> LEVEL_SHIFT & 3) as u8)
    }

    /// The rank in main with the given level, in the same stripe.
    pub(crate) fn main(self, level: Level) -> Self {
        self.with(MAIN, level)
    }

    /// The rank in cold with the same level and stripe.
    pub(crate) fn cold(self) -> Self {
        self.with(COLD, self.level())
    }

    /// The rank in cold of a page that was never used, in the same stripe.
    pub(crate) fn coldest(self) -> Self {
        self.with(COLD, Level::default())
    }

    fn with(self, kind: u32, level: Level) -> Self {
        Self { bits: self.bits >> STRIPE_SHIFT << STRIPE_SHIFT | u32::from(level.0) << LEVEL_SHIFT | kind }
    }

    pub(crate) fn in_stripe(self, stripe: usize) -> Self {
        Self { bits: self.bits & ((1 << STRIPE_SHIFT) - 1) | (stripe as u32) << STRIPE_SHIFT }
    }

    /// Returns the place of a listed page.
    pub(crate) fn place(self) -> Place {
        debug_assert!(!self.is_unlisted(), "a page on no list has no place");
        let kind = match self.bits & KIND_MASK {
            YOUNG => Kind::Young,
            COLD => Kind::Cold,
            _ => Kind::Main(self.level()),
        };
        Place { stripe: (self.bits >> STRIPE_SHIFT) as u8, kind }
    }

    /// Changes the rank of a frame that the caller has isolated.
    pub(crate) fn give(self, frames: &Frames, frame: &IsolatedFrame) {
        frames.set_rank(frame.id(), self.bits);
    }
}
