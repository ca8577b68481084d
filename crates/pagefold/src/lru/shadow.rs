//! The shadow that an eviction leaves in the page's word: the page's level, and how many pages the
//! group had evicted by then. If the page comes back, the shadow tells how many evictions ago the
//! page left, and how often it had been found used again.

use frames::PageWord;
use swap::Note;

/// How often a page was found used again: never, once, or more often.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Level(pub(crate) u8);

impl Level {
    /// Levels 0, 1 and 2. With one more level, history outweighs the present; with one less, a
    /// single refault makes a page hot.
    pub(crate) const COUNT: usize = 3;

    /// One level up, if there is one.
    pub(crate) fn up(self) -> Self {
        Self((self.0 + 1).min(Self::COUNT as u8 - 1))
    }

    /// One level down, if there is one.
    pub(crate) fn down(self) -> Self {
        Self(self.0.saturating_sub(1))
    }

    pub(crate) fn index(self) -> usize {
        usize::from(self.0)
    }
}

/// The shadow of an eviction.
///
/// | bits | |
/// |---|---|
/// | 0 | 1: there was an eviction |
/// | 1–2 | the page's level |
/// | 3–18 | the group that it was evicted from, truncated |
/// | 19–58 | how many pages that group had evicted by then, truncated |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    pub(crate) level: Level,
    group: u16,
    clock: u64,
}

const LEVEL_SHIFT: u32 = 1;
const GROUP_SHIFT: u32 = 3;
const CLOCK_SHIFT: u32 = 19;
const CLOCK_BITS: u32 = 40;
const CLOCK_MASK: u64 = (1 << CLOCK_BITS) - 1;

const NOTE_CLOCK_SHIFT: u32 = 2;
const NOTE_CLOCK_MASK: u64 = (1 << (Note::SHADOW_BITS - NOTE_CLOCK_SHIFT)) - 1;

const _: () = assert!(CLOCK_SHIFT + CLOCK_BITS <= PageWord::SHADOW_BITS);

impl Shadow {
    /// Creates the shadow of a page of `level` that `group` evicts after `clock` evictions.
    pub(crate) fn new(level: Level, group: u32, clock: u64) -> Self {
        Self { level, group: group as u16, clock: clock & CLOCK_MASK }
    }

    pub(crate) fn bits(self) -> u64 {
        1 | u64::from(self.level.0) << LEVEL_SHIFT | u64::from(self.group) << GROUP_SHIFT | self.clock << CLOCK_SHIFT
    }

    /// Returns `None` if the page was never evicted.
    pub(crate) fn from_bits(bits: u64) -> Option<Self> {
        (bits & 1 == 1).then(|| Self {
            level: Level(((bits >> LEVEL_SHIFT) & 3).min(Level::COUNT as u64 - 1) as u8),
            group: (bits >> GROUP_SHIFT) as u16,
            clock: (bits >> CLOCK_SHIFT) & CLOCK_MASK,
        })
    }

    /// Returns the part of the shadow that fits into a slot's note: the level, and the low 38 bits
    /// of the clock.
    pub(crate) fn to_note(self, group: u32) -> Note {
        Note::new(group, u64::from(self.level.0) | (self.clock & NOTE_CLOCK_MASK) << NOTE_CLOCK_SHIFT)
    }

    /// Returns the shadow that a note was made from. `now` is the group's clock. Correct if the
    /// clock hasn't wrapped around since.
    pub(crate) fn of_note(note: Note, now: u64) -> Self {
        let level = Level((note.shadow() & 3).min(Level::COUNT as u64 - 1) as u8);
        let distance = now.wrapping_sub(note.shadow() >> NOTE_CLOCK_SHIFT) & NOTE_CLOCK_MASK;
        Self::new(level, note.group(), now.wrapping_sub(distance))
    }

    /// Returns how many pages the group has evicted since, modulo 2^40. `None` for another group.
    pub(crate) fn distance(self, group: u32, clock: u64) -> Option<u64> {
        (self.group == group as u16).then(|| clock.wrapping_sub(self.clock) & CLOCK_MASK)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_shadow_survives_its_bits() {
        for level in 0..3 {
            for clock in [0, 1, CLOCK_MASK, CLOCK_MASK + 5] {
                let shadow = Shadow::new(Level(level), 70_000, clock);
                assert_eq!(Shadow::from_bits(shadow.bits()), Some(shadow));
                assert_eq!(shadow.distance(70_000, clock + 9), Some(9), "across the wrap");
                assert_eq!(shadow.distance(70_001, clock), None);
                assert!(shadow.bits() >> PageWord::SHADOW_BITS == 0);
            }
        }
        assert_eq!(Shadow::from_bits(0), None);
    }

    #[test]
    fn a_shadow_survives_a_note() {
        for (level, clock) in [(0, 0), (1, 5), (2, NOTE_CLOCK_MASK), (1, CLOCK_MASK)] {
            let shadow = Shadow::new(Level(level), 77, clock);
            assert_eq!(Shadow::of_note(shadow.to_note(77), clock.wrapping_add(1000)), shadow);
        }
    }
}
