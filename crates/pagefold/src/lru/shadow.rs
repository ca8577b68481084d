//! The shadow that an eviction leaves in the page's word. If the page comes back, the shadow tells
//! how long the page was unused, and how often it was used before.

use frames::PageWord;
use swap::Note;

use crate::lru::clock::{LEFT_BITS, Left, Now, SHADOW_STAMP_BITS};
use crate::lru::interval::Interval;

/// What is known of a page that was evicted.
///
/// | bits | |
/// |---|---|
/// | 0–7 | its mean interval |
/// | 8 | 1: it was evicted from main |
/// | 9–23 | the time of its last known use, in units, truncated |
/// | 24–39 | how many pages had left the list that it was evicted from, in units, truncated |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Shadow {
    pub(crate) interval: Interval,
    pub(crate) from: Left,
    stamp: u64,
    left: u64,
}

const MAIN_SHIFT: u32 = Interval::BITS;
const STAMP_SHIFT: u32 = MAIN_SHIFT + 1;
const LEFT_SHIFT: u32 = STAMP_SHIFT + SHADOW_STAMP_BITS;
const BITS: u32 = LEFT_SHIFT + LEFT_BITS;
/// Two pages left together if at most max(size / `TOGETHER`, `TOGETHER_MIN`) pages left the list
/// between them, where size is the group's number of pages.
const TOGETHER: u64 = 4;
const TOGETHER_MIN: u64 = 64;
/// In a page word, below the shadow: 1, and the group that the page was evicted from, truncated.
const GROUP_SHIFT: u32 = 1;
const GROUP_BITS: u32 = 16;
const SHADOW_SHIFT: u32 = GROUP_SHIFT + GROUP_BITS;

const _: () = assert!(SHADOW_SHIFT + BITS <= PageWord::SHADOW_BITS && BITS <= Note::SHADOW_BITS);

impl Shadow {
    /// Creates the shadow of a page that is evicted now, `age` loads after its last known use.
    pub(crate) fn new(interval: Interval, from: Left, age: u64, now: Now) -> Self {
        Self {
            interval,
            from,
            stamp: now.stamp_before(age) & ones(SHADOW_STAMP_BITS),
            left: now.left(from) & ones(LEFT_BITS),
        }
    }

    fn bits(self) -> u64 {
        let main = u64::from(self.from == Left::Main) << MAIN_SHIFT;
        self.interval.bits() | main | self.stamp << STAMP_SHIFT | self.left << LEFT_SHIFT
    }

    fn from_bits(bits: u64) -> Self {
        Self {
            interval: Interval::from_bits(bits),
            from: if bits >> MAIN_SHIFT & 1 == 1 { Left::Main } else { Left::Window },
            stamp: bits >> STAMP_SHIFT & ones(SHADOW_STAMP_BITS),
            left: bits >> LEFT_SHIFT & ones(LEFT_BITS),
        }
    }

    /// Returns the shadow in the format of a page word.
    pub(crate) fn to_word(self, group: u32) -> u64 {
        1 | u64::from(group as u16) << GROUP_SHIFT | self.bits() << SHADOW_SHIFT
    }

    /// Returns the shadow that a page word contains: `None` if the page was never evicted. The
    /// inner result is `None` if the page was evicted from another group than `group`.
    pub(crate) fn of_word(bits: u64, group: u32) -> Option<Option<Self>> {
        let is_ours = (bits >> GROUP_SHIFT) as u16 == group as u16;
        (bits & 1 == 1).then(|| is_ours.then(|| Self::from_bits(bits >> SHADOW_SHIFT)))
    }

    /// Returns the shadow in the format of a swap slot's note.
    pub(crate) fn to_note(self, group: u32) -> Note {
        Note::new(group, self.bits())
    }

    pub(crate) fn of_note(note: Note) -> Self {
        Self::from_bits(note.shadow())
    }

    /// Returns the loads since the page's last known use.
    pub(crate) fn age(self, now: Now) -> u64 {
        now.since(self.stamp, SHADOW_STAMP_BITS)
    }

    /// Returns the number of pages that have left the same list after this page.
    pub(crate) fn left_since(self, now: Now) -> u64 {
        now.left_since(self.from, self.left)
    }

    /// Returns whether two pages of a group left the same list at about the same time. If so, they
    /// will probably be used together again.
    pub(crate) fn left_with(self, other: Self, now: Now) -> bool {
        let between = || self.left_since(now).abs_diff(other.left_since(now));
        self.from == other.from && between() <= (now.size / TOGETHER).max(TOGETHER_MIN)
    }
}

fn ones(bits: u32) -> u64 {
    (1 << bits) - 1
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::clock::Clock;

    #[test]
    fn a_shadow_survives_a_word_and_a_note() {
        let clock = Clock::new(4096);
        clock.evicted(70_000, 300_000);
        for from in [Left::Window, Left::Main] {
            for (interval, age) in [(Interval::UNKNOWN, 0), (Interval::rounded(700, 0), 5_000)] {
                let shadow = Shadow::new(interval, from, age, clock.now(4_000));
                let word = shadow.to_word(70_000);
                assert!(word >> PageWord::SHADOW_BITS == 0);
                assert_eq!(Shadow::of_word(word, 70_000), Some(Some(shadow)));
                assert_eq!(Shadow::of_word(word, 70_001), Some(None));
                assert_eq!(Shadow::of_note(shadow.to_note(77)), shadow);
                clock.evicted(160, 320);
                let now = clock.now(4_000);
                assert!(shadow.age(now).abs_diff(age + 480) <= 32, "within two units");
                let left = if from == Left::Main { 320 } else { 160 };
                assert!(shadow.left_since(now).abs_diff(left) <= 16);
                assert_eq!((shadow.interval, shadow.from), (interval, from));
            }
        }
        assert_eq!(Shadow::of_word(0, 0), None);
    }

    #[test]
    fn pages_leave_together() {
        let clock = Clock::new(4096);
        let shadow = |from| Shadow::new(Interval::UNKNOWN, from, 0, clock.now(4_000));
        let one = shadow(Left::Window);
        clock.evicted(500, 0);
        let [soon, of_main] = [Left::Window, Left::Main].map(shadow);
        clock.evicted(1_000, 0);
        let late = shadow(Left::Window);
        let together = [soon, of_main, late].map(|other| one.left_with(other, clock.now(4_000)));
        assert_eq!(together, [true, false, false]);
        assert!(late.left_with(soon, clock.now(4_000)), "in any order");
    }
}
