//! Virtual time.

use crate::task::here;
use crate::ticks::{NS, Ticks};
use crate::world;
use std::ops::{Add, Sub};
pub use std::time::Duration;

/// A moment. Inside a machine, it is read from the CPU's own clock, which starts at 0 with the
/// machine; outside, from the host's clock.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Instant(Duration);

/// Converts a duration to ticks. Longer durations than two hours become two hours: a clock has 56
/// bits of picoseconds, which is twenty hours.
pub(crate) fn ticks_of(duration: Duration) -> Ticks {
    const MOST: u64 = 2 * 3600 * 1_000_000_000;
    u64::try_from(duration.as_nanos()).unwrap_or(MOST).min(MOST) * NS
}

impl Instant {
    /// Returns the current time. Inside a machine, reading the clock costs time.
    #[must_use]
    #[track_caller]
    pub fn now() -> Self {
        let Some(world) = world::current() else { return Self(since_start()) };
        world.arrive(here());
        let mut state = world.state.borrow_mut();
        let cost = state.times.clock_read;
        state.work(cost);
        state.current().watched_time = true;
        Self(Duration::from_nanos(state.clock() / NS))
    }

    /// Returns the time since `self`.
    #[must_use]
    #[track_caller]
    pub fn elapsed(self) -> Duration {
        Self::now().duration_since(self)
    }

    /// Returns the time from `earlier` to `self`; zero if `earlier` is later.
    #[must_use]
    pub fn duration_since(self, earlier: Self) -> Duration {
        self.0.saturating_sub(earlier.0)
    }

    /// Returns the current time free of charge, without an event.
    pub(crate) fn now_free() -> Self {
        world::current().map_or_else(Self::now, |world| Self::from_ticks(world.state.borrow().clock()))
    }

    pub(crate) fn from_ticks(ticks: Ticks) -> Self {
        Self(Duration::from_nanos(ticks / NS))
    }

    pub(crate) fn ticks(self) -> Ticks {
        ticks_of(self.0)
    }
}

impl Add<Duration> for Instant {
    type Output = Self;

    fn add(self, time: Duration) -> Self {
        Self(self.0.saturating_add(time))
    }
}

impl Sub for Instant {
    type Output = Duration;

    fn sub(self, earlier: Self) -> Duration {
        self.duration_since(earlier)
    }
}

fn since_start() -> Duration {
    use std::sync::OnceLock;
    use std::time::Instant;
    static START: OnceLock<Instant> = OnceLock::new();
    START.get_or_init(Instant::now).elapsed()
}
