//! A page's rank is what the policy keeps in the record of the page's frame: the list, the origin,
//! the mean interval, and the time of the last known use.

use frames::{FrameId, Frames, IsolatedFrame};

use crate::lru::clock::{Left, Now, STAMP_BITS};
use crate::lru::interval::Interval;

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
    Window,
    Main,
    Beaten,
}

/// The number of lists of a stripe.
pub(crate) const KINDS: usize = 4;

impl Kind {
    pub(crate) const ALL: [Self; KINDS] = [Self::Young, Self::Window, Self::Main, Self::Beaten];

    pub(crate) fn index(self) -> usize {
        self as usize
    }
}

impl Place {
    /// Returns the list's number. It is unique among the lists of the first 2^22 groups: `SmpList`
    /// takes numbers modulo 2^30.
    pub(crate) fn list_number(self, group: u32) -> u32 {
        (group * STRIPES_MAX as u32 + u32::from(self.stripe)) << 3 | self.kind.index() as u32
    }

    /// Returns the place that the frame's record names. If the frame is isolated, this is the list
    /// that it is on, or was on before its isolation.
    pub(crate) fn of(frames: &Frames, frame: FrameId) -> Self {
        Rank::of(frames, frame).place()
    }
}

/// How a page entered memory. Kept until the page gets its place in main or in the window.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) enum Origin {
    /// The page is new, or was away for so long that it counts as new.
    #[default]
    New,
    /// The page came back.
    Back,
    /// The page came back soon after it had left the window.
    SoonToWindow,
    /// The page came back almost at once after it had left the window.
    AtOnceToWindow,
    /// The page came back soon after it had left main.
    SoonToMain,
}

impl Origin {
    const ALL: [Self; ORIGINS] = [Self::New, Self::Back, Self::SoonToWindow, Self::AtOnceToWindow, Self::SoonToMain];

    /// Returns whether the page came back so soon that a longer window would have kept it.
    pub(crate) fn is_soon_to_window(self) -> bool {
        matches!(self, Self::SoonToWindow | Self::AtOnceToWindow)
    }
}

/// The number of origins.
pub(crate) const ORIGINS: usize = 5;

/// What a frame's record keeps of its page.
///
/// | bits | |
/// |---|---|
/// | 0–1 | the number of a [`Kind`] |
/// | 2–4 | the number of an [`Origin`]; all of bits 0–4 are set for a page on no list |
/// | 5–9 | stripe |
/// | 10–17 | mean interval |
/// | 18–31 | the time of the last known use, in units (`clock`), truncated |
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Rank {
    bits: u32,
}

const KIND: u32 = 3;
const ORIGIN_SHIFT: u32 = 2;
const ORIGIN: u32 = 7 << ORIGIN_SHIFT;
const UNLISTED: u32 = KIND | ORIGIN;
const STRIPE_SHIFT: u32 = 5;
const STRIPE: u32 = (STRIPES_MAX as u32 - 1) << STRIPE_SHIFT;
const INTERVAL_SHIFT: u32 = 10;
const INTERVAL: u32 = ((1 << Interval::BITS) - 1) << INTERVAL_SHIFT;
const STAMP_SHIFT: u32 = INTERVAL_SHIFT + Interval::BITS;
const STAMP: u32 = ((1 << STAMP_BITS) - 1) << STAMP_SHIFT;

const _: () = assert!(STAMP_SHIFT + STAMP_BITS == u32::BITS, "the bits above are all there are");

impl Rank {
    /// The rank of a page that is being loaded. Its stripe and time follow when it is listed.
    pub(crate) fn young(origin: Origin, interval: Interval) -> Self {
        Self { bits: Kind::Young as u32 }.with_origin(origin).with_interval(interval)
    }

    /// The rank of a page that is on no list.
    pub(crate) fn unlisted() -> Self {
        Self { bits: UNLISTED }
    }

    pub(crate) fn is_unlisted(self) -> bool {
        self.bits & UNLISTED == UNLISTED
    }

    pub(crate) fn bits(self) -> u32 {
        self.bits
    }

    pub(crate) fn of(frames: &Frames, frame: FrameId) -> Self {
        Self { bits: frames.rank(frame) }
    }

    pub(crate) fn interval(self) -> Interval {
        Interval::from_bits(u64::from((self.bits & INTERVAL) >> INTERVAL_SHIFT))
    }

    fn with_stamp(self, stamp: u64) -> Self {
        Self { bits: self.bits & !STAMP | (stamp as u32) << STAMP_SHIFT }
    }

    pub(crate) fn with_interval(self, interval: Interval) -> Self {
        Self { bits: self.bits & !INTERVAL | (interval.bits() as u32) << INTERVAL_SHIFT }
    }

    pub(crate) fn origin(self) -> Origin {
        Origin::ALL.get(((self.bits & ORIGIN) >> ORIGIN_SHIFT) as usize).copied().unwrap_or_default()
    }

    fn with_origin(self, origin: Origin) -> Self {
        Self { bits: self.bits & !ORIGIN | (origin as u32) << ORIGIN_SHIFT }
    }

    /// The rank in another list of the same stripe.
    pub(crate) fn on(self, kind: Kind) -> Self {
        Self { bits: self.bits & !KIND | kind as u32 }
    }

    /// Returns the rank of a page that gets its place, in main or in the window. Its origin doesn't
    /// matter any more.
    pub(crate) fn settled(self, kind: Kind) -> Self {
        self.on(kind).with_origin(Origin::New)
    }

    /// The rank that makes a page the coldest one: in the window of the same stripe, without
    /// history. Its last known use counts as having been as many loads ago as the group has pages.
    pub(crate) fn coldest(self, now: Now) -> Self {
        self.settled(Kind::Window).with_interval(Interval::UNKNOWN).with_stamp(now.stamp_before(now.size))
    }

    pub(crate) fn in_stripe(self, stripe: usize) -> Self {
        Self { bits: self.bits & !STRIPE | (stripe as u32) << STRIPE_SHIFT & STRIPE }
    }

    /// The rank of a page whose last known use is now.
    pub(crate) fn used_at(self, now: Now) -> Self {
        self.with_stamp(now.stamp())
    }

    /// Returns the loads since the page's last known use.
    pub(crate) fn age(self, now: Now) -> u64 {
        now.since(u64::from(self.bits >> STAMP_SHIFT), STAMP_BITS)
    }

    /// The rank of a page that reclaim found used `uses` times since its last known use.
    pub(crate) fn seen(self, uses: u32, now: Now, frame: FrameId) -> Self {
        let chance = now.chance(u64::from(frame.number()));
        self.with_interval(self.interval().after_uses(self.age(now), uses, chance)).used_at(now)
    }

    /// Returns the list that the page would leave if it were evicted.
    pub(crate) fn leaves(self) -> Left {
        let is_of_main = [Kind::Main, Kind::Beaten].iter().any(|&kind| self.bits & KIND == kind as u32);
        if is_of_main && !self.is_unlisted() { Left::Main } else { Left::Window }
    }

    /// Returns the place of a listed page.
    pub(crate) fn place(self) -> Place {
        debug_assert!(!self.is_unlisted(), "a page on no list has no place");
        let kind = Kind::ALL[(self.bits & KIND) as usize % KINDS];
        Place { stripe: ((self.bits & STRIPE) >> STRIPE_SHIFT) as u8, kind }
    }

    /// Changes the rank of a frame that the caller has isolated.
    pub(crate) fn give(self, frames: &Frames, frame: &IsolatedFrame) {
        frames.set_rank(frame.id(), self.bits);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::clock::Clock;

    #[test]
    fn a_rank_keeps_its_parts_apart() {
        let clock = Clock::new(1 << 20);
        clock.evicted(70 << 20, 3);
        let now = clock.now(1 << 20);
        for origin in Origin::ALL {
            for interval in [Interval::UNKNOWN, Interval::rounded(u64::MAX, 0)] {
                let rank = Rank::young(origin, interval).in_stripe(STRIPES_MAX - 1).used_at(now);
                for kind in Kind::ALL {
                    let rank = rank.on(kind);
                    assert_eq!(rank.place(), Place { stripe: STRIPES_MAX as u8 - 1, kind });
                    assert_eq!((rank.origin(), rank.interval(), rank.age(now)), (origin, interval, 0));
                    assert_eq!((rank.settled(kind).origin(), rank.settled(kind).place()), (Origin::New, rank.place()));
                    assert_eq!(rank.leaves() == Left::Main, matches!(kind, Kind::Main | Kind::Beaten));
                }
                let coldest = rank.coldest(now);
                assert_eq!((coldest.interval(), coldest.place().kind), (Interval::UNKNOWN, Kind::Window));
                assert_eq!(coldest.age(now), 1 << 20);
            }
        }
        assert_eq!(Rank::unlisted().leaves(), Left::Window);
        assert!(Rank::unlisted().is_unlisted() && !Rank::young(Origin::New, Interval::UNKNOWN).is_unlisted());
    }
}
