//! How many pages of a limit are kept free, so that a thread that needs a page doesn't have to
//! reclaim first (`reclaim::reserve`).

/// How far a reserve is below its target.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// The reserve is full.
    None,
    /// Below the target: of the threads that take a page, one at a time frees a few pages.
    Slight,
    /// Below half of the target: each thread that takes a page frees a few. If that isn't enough,
    /// the background thread frees this many pages.
    Deep(usize),
}

/// The reserve's part of the limit, as a right shift. The part is small, because free frames hold
/// no page: a reserve of one percent of the limit costs about 0.1 % more misses on a zipf trace.
const SHARE_SHIFT: u32 = 11;
/// The reserve has at least this many pages.
const PAGES_MIN: u64 = 32;
/// The reserve also has at least this many pages for each CPU, because all CPUs may miss at the
/// same time. But this second minimum is at most `limit >> CPUS_SHARE_SHIFT` pages, which matters
/// on a machine with many CPUs.
const PAGES_PER_CPU: u64 = 8;
const CPUS_SHARE_SHIFT: u32 = 6;
/// Smaller limits have no reserve: a thread that needs a page reclaims it.
const LIMIT_MIN: u64 = 16 * PAGES_MIN;

impl Shortage {
    /// Returns how short the reserve is, for a limit of `limit` pages of which `room` are free.
    /// While the reserve is at least half full, the shortage is only `Slight`: then only one thread
    /// at a time frees pages, which is cheap and often suffices.
    pub(crate) fn of(limit: u64, room: u64) -> Self {
        let reserve = reserve_of(limit);
        if room >= reserve {
            Self::None
        } else if room >= reserve / 2 {
            Self::Slight
        } else {
            Self::Deep((2 * reserve - room) as usize)
        }
    }
}

/// Returns how many pages of the remaining `room` may be taken before the reserve is short.
pub(crate) fn beside_reserve(limit: u64, room: u64) -> u64 {
    room.saturating_sub(reserve_of(limit))
}

/// Returns the target of the reserve of a limit of `limit` pages.
fn reserve_of(limit: u64) -> u64 {
    if limit < LIMIT_MIN {
        return 0;
    }
    let for_cpus = (PAGES_PER_CPU * sync::cpu::count() as u64).min(limit >> CPUS_SHARE_SHIFT);
    (limit >> SHARE_SHIFT).max(PAGES_MIN).max(for_cpus)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn shortages() {
        assert_eq!(Shortage::of(100, 0), Shortage::None, "too small for a reserve");
        assert_eq!(Shortage::of(1 << 22, 2048), Shortage::None);
        assert_eq!(Shortage::of(1 << 22, 2047), Shortage::Slight);
        assert_eq!(Shortage::of(1 << 22, 1000), Shortage::Deep(3096));
        assert_eq!(Shortage::of(1000, 15), Shortage::Deep(49));
    }
}
