//! The clock of a group: time is counted in loads.
//!
//! Loads are the only events that cost a group something. Counting hits would cost each hit a
//! write. So ages, intervals and distances are numbers of loads. Loads need no counter of their
//! own: each page that was loaded has either been evicted since, or is still charged to the group.
//! So loads = evictions + the group's size.
//!
//! Frames and shadows keep times in few bits: in *units* of 2^`shift` loads, modulo a power of two.
//! A unit is about 1/256 of the group's size. If the size becomes less than 16 units or more than
//! 1,023 units, the unit changes. A time that was recorded in the old unit is then misread once:
//! the page seems older or younger than it is. A time that lies further back than the range of its
//! bits is misread, too ([`Now::since`]).
//!
//! All of a group's CPUs write to the cache line of the clock's counters. So a CPU reads the
//! counters only once for each batch of pages. In a large group with several stripes, each stripe
//! collects several evictions before it adds them to the counters. Until then, passes over the
//! stripe use the time of the stripe's last batch ([`LastTime`]). So do pages that come back one by
//! one. In a group with one stripe, all threads read the counters themselves, because few CPUs
//! share their cache line.

use sync::CachePadded;
use sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The numbers of bits of three fields: the time of the last use in a frame, the same time in a
/// shadow, and the count of evictions in a shadow ([`Now::left`]).
pub(crate) const STAMP_BITS: u32 = 14;
pub(crate) const SHADOW_STAMP_BITS: u32 = 15;
pub(crate) const LEFT_BITS: u32 = 16;

/// A group's size is about this many units.
const UNITS: u64 = 256;
/// The least number of units in a group's size.
const UNITS_MIN: u64 = 16;
/// The largest number of units in a group's size.
pub(crate) const UNITS_MAX: u64 = 1023;
/// A group's time goes back by at most the group's size, which is seldom more than this many units.
const GOES_BACK: u64 = UNITS_MAX;
/// A stripe notes the time at most this many units late.
const LATE: u64 = 64;

/// The list that a page was evicted from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Left {
    Window,
    Main,
}

/// The counters, on a cache line of their own.
#[derive(Debug)]
pub(crate) struct Clock {
    counts: CachePadded<Counts>,
}

#[derive(Debug)]
struct Counts {
    /// Pages evicted from the window.
    window: AtomicU64,
    /// Pages evicted from main.
    main: AtomicU64,
    shift: AtomicU32,
}

impl Clock {
    /// Creates the clock of a group that may have up to `limit` pages.
    pub(crate) fn new(limit: u64) -> Self {
        let counts =
            Counts { window: AtomicU64::new(0), main: AtomicU64::new(0), shift: AtomicU32::new(shift_for(limit)) };
        Self { counts: CachePadded::new(counts) }
    }

    /// Returns the time of a group that has `size` pages now.
    pub(crate) fn now(&self, size: u64) -> Now {
        // Relaxed, in all of this file: only the policy depends on the time.
        let [window, main] = [&self.counts.window, &self.counts.main].map(|count| count.load(Ordering::Relaxed));
        Now { size: size.max(1), window, main, shift: self.counts.shift.load(Ordering::Relaxed) }
    }

    /// Counts evictions.
    pub(crate) fn evicted(&self, window: u64, main: u64) {
        for (count, pages) in [(&self.counts.window, window), (&self.counts.main, main)] {
            if pages > 0 {
                count.fetch_add(pages, Ordering::Relaxed);
            }
        }
    }

    /// Changes the unit if the group's size isn't what the unit was made for.
    pub(crate) fn fit(&self, size: u64) {
        let units = size >> self.counts.shift.load(Ordering::Relaxed);
        if !(UNITS_MIN..=UNITS_MAX).contains(&units) {
            self.counts.shift.store(shift_for(size), Ordering::Relaxed);
        }
    }
}

/// Returns log2 of the unit for a group of that size.
fn shift_for(size: u64) -> u32 {
    (size / UNITS).max(1).ilog2()
}

/// A moment in the life of a group.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Now {
    /// The group's pages, on its lists or not, at least 1.
    pub(crate) size: u64,
    window: u64,
    main: u64,
    shift: u32,
}

impl Now {
    /// Returns the number of pages evicted so far.
    pub(crate) fn evicted(self) -> u64 {
        self.window.wrapping_add(self.main)
    }

    /// Returns the time in units, to be kept in `STAMP_BITS` or `SHADOW_STAMP_BITS` bits.
    pub(crate) fn stamp(self) -> u64 {
        self.evicted().wrapping_add(self.size) >> self.shift
    }

    /// Returns the time `loads` loads before this moment, in units.
    pub(crate) fn stamp_before(self, loads: u64) -> u64 {
        self.stamp().wrapping_sub(loads >> self.shift)
    }

    /// Returns the number of loads since an earlier moment. `stamp` is what [`stamp`](Self::stamp)
    /// returned then, or its lowest `bits` bits.
    ///
    /// The group's time can go back, because pages also leave the group without being evicted. So a
    /// stamp may seem to lie in the future; the result is then 0. As stamps wrap, a stamp counts as
    /// future if its distance, modulo 2^`bits`, is among the last [`GOES_BACK`] of the range.
    ///
    /// For moments that lie further back than the range, the result is wrong: it is 0, or the
    /// remainder of the distance. A shadow also has a count of evictions, which shows most of these
    /// cases (`GroupState::history_of`).
    pub(crate) fn since(self, stamp: u64, bits: u32) -> u64 {
        let range = 1 << bits;
        let units = self.stamp().wrapping_sub(stamp) & (range - 1);
        if units >= range - GOES_BACK { 0 } else { units << self.shift }
    }

    /// Returns a great age, in loads: half of the range of a shadow's stamp. So it takes long until
    /// the stamp of a shadow with this age wraps.
    pub(crate) fn long_ago(self) -> u64 {
        1 << (SHADOW_STAMP_BITS - 1) << self.shift
    }

    /// Returns how many pages have left `list` up to this moment, in units. Callers keep the lowest
    /// `LEFT_BITS` bits.
    pub(crate) fn left(self, list: Left) -> u64 {
        self.pages_left(list) >> self.shift
    }

    /// Returns how many pages have left `list` since an earlier moment. `then` is what
    /// [`left`](Self::left) returned at that moment, or its lowest `LEFT_BITS` bits. The moment may
    /// seem to lie in the future, because stripes note the time at different moments; the result is
    /// then 0.
    pub(crate) fn left_since(self, list: Left, then: u64) -> u64 {
        let units = self.left(list).wrapping_sub(then) & ((1 << LEFT_BITS) - 1);
        if units >= (1 << LEFT_BITS) - LATE { 0 } else { units << self.shift }
    }

    fn pages_left(self, list: Left) -> u64 {
        match list {
            Left::Window => self.window,
            Left::Main => self.main,
        }
    }

    /// Returns a number whose lower bits are evenly distributed, for a page with number `page`.
    pub(crate) fn chance(self, page: u64) -> u64 {
        (self.evicted() ^ page << 20).wrapping_mul(0x9e37_79b9_7f4a_7c15).rotate_left(32)
    }
}

/// A moment that was noted some time ago, on a cache line that few CPUs write to. If two threads
/// note a moment at the same time, the stored moment may mix parts of both.
#[derive(Debug)]
pub(crate) struct LastTime(CachePadded<Parts>);

#[derive(Debug, Default)]
struct Parts {
    size: AtomicU64,
    window: AtomicU64,
    main: AtomicU64,
    shift: AtomicU32,
}

impl Default for LastTime {
    fn default() -> Self {
        Self(CachePadded::new(Parts::default()))
    }
}

impl LastTime {
    pub(crate) fn set(&self, now: Now) {
        self.0.size.store(now.size, Ordering::Relaxed);
        self.0.window.store(now.window, Ordering::Relaxed);
        self.0.main.store(now.main, Ordering::Relaxed);
        self.0.shift.store(now.shift, Ordering::Relaxed);
    }

    /// Returns the moment; its size is 0 if none was noted.
    pub(crate) fn get(&self) -> Now {
        let [size, window, main] = [&self.0.size, &self.0.window, &self.0.main].map(|it| it.load(Ordering::Relaxed));
        Now { size, window, main, shift: self.0.shift.load(Ordering::Relaxed) }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn time_is_loads() {
        let clock = Clock::new(1000);
        let before = clock.now(400);
        assert_eq!((before.since(before.stamp(), STAMP_BITS), before.evicted()), (0, 0));
        clock.evicted(30, 20);
        let after = clock.now(450);
        assert_eq!((after.since(before.stamp(), STAMP_BITS), after.evicted()), (100, 50), "within a unit of two");
        assert_eq!(after.left_since(Left::Window, before.left(Left::Window)), 30);
        assert_eq!(after.left_since(Left::Main, before.left(Left::Main)), 20);
        assert_eq!(before.since(after.stamp(), STAMP_BITS), 0, "a moment to come");
        let kept = after.stamp() & ((1 << STAMP_BITS) - 1);
        clock.evicted(1 << 20, 0);
        assert!(clock.now(450).since(kept, STAMP_BITS) < 2 << STAMP_BITS, "stamps wrap");
    }

    /// A regression: the last eighth of the range counted as the future. So a moment long ago
    /// seemed to be now.
    #[test]
    fn only_a_near_future_counts_as_now() {
        let clock = Clock::new(100);
        let then = clock.now(500).stamp();
        assert_eq!(clock.now(1).since(then, STAMP_BITS), 0, "all pages but one were dropped");
        for bits in [STAMP_BITS, SHADOW_STAMP_BITS] {
            let clock = Clock::new(100);
            let then = clock.now(100).stamp();
            let loads = (1 << bits) - GOES_BACK - 1;
            clock.evicted(loads, 0);
            assert_eq!(clock.now(100).since(then, bits), loads);
        }
    }

    /// A regression: a page came back at once, to a CPU whose stripe had noted an earlier time. The
    /// page seemed to have been away for very long.
    #[test]
    fn a_page_that_left_after_the_noted_time_left_now() {
        let clock = Clock::new(1_000);
        let (noted, left) = (clock.now(1_000), clock.now(1_000).left(Left::Window) + 1);
        assert_eq!(noted.left_since(Left::Window, left), 0);
    }

    #[test]
    fn the_unit_fits_the_size() {
        let clock = Clock::new(1 << 20);
        assert_eq!(clock.now(1).shift, 12);
        clock.fit(1 << 17);
        assert_eq!(clock.now(1).shift, 12, "a few times less does no harm");
        clock.fit(1000);
        assert_eq!(clock.now(1).shift, 1);
        clock.fit(0);
        assert_eq!(clock.now(0).shift, 0);
        clock.fit(u64::MAX);
        assert_eq!(clock.now(u64::MAX).shift, 55);
    }

    #[test]
    fn a_noted_moment_stays_as_it_was() {
        let (clock, last) = (Clock::new(1 << 20), LastTime::default());
        assert_eq!(last.get().size, 0, "none was noted");
        clock.evicted(3, 5);
        let now = clock.now(7_000);
        last.set(now);
        clock.evicted(1 << 20, 1 << 20);
        assert_eq!(last.get().since(now.stamp(), STAMP_BITS), 0);
        let left = [Left::Window, Left::Main].map(|list| last.get().pages_left(list));
        assert_eq!((last.get().size, left), (7_000, [3, 5]));
    }
}
