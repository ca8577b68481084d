//! The time of the machine, real or virtual.

pub use std::time::Duration;

#[cfg(pagefold_manycore)]
pub use manycore::Instant;

/// A moment on a monotonic clock.
#[cfg(not(pagefold_manycore))]
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub struct Instant(u64);

#[cfg(not(pagefold_manycore))]
impl Instant {
    /// Returns the current moment. A model has no time, so all of its moments are equal.
    #[must_use]
    pub fn now() -> Self {
        #[cfg(pagefold_loom)]
        return Self(0);
        #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
        Self(real_ns())
    }

    /// Returns the time since `self`.
    #[must_use]
    pub fn elapsed(self) -> Duration {
        Duration::from_nanos(Self::now().0.saturating_sub(self.0))
    }
}

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
fn real_ns() -> u64 {
    // Counts from the clock's own start, not from the first call. To record the first call would
    // take a lock, which a forked child might find held by a thread of its parent.
    let mut now = libc::timespec { tv_sec: 0, tv_nsec: 0 };
    // SAFETY: `now` is a valid place for the time.
    unsafe { libc::clock_gettime(libc::CLOCK_MONOTONIC, &raw mut now) };
    now.tv_sec as u64 * 1_000_000_000 + now.tv_nsec as u64
}
