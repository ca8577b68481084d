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
    use once_cell::sync::Lazy;
    static START: Lazy<std::time::Instant> = Lazy::new(std::time::Instant::now);
    u64::try_from(START.elapsed().as_nanos()).unwrap_or(u64::MAX)
}
