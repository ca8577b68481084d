//! How many pages of a limit are kept free, so that a thread that needs a page needn't reclaim
//! first (`reclaim::reserve`).

/// How short a reserve is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// There is enough.
    None,
    /// Less than there should be: a thread that takes a page frees a few, one thread at a time.
    Slight,
    /// Less than half of that: each thread that takes a page frees a few, and so many are freed in
    /// the background if that is in vain.
    Deep(usize),
}

/// The reserve's share of the limit, as a power of two. Small, because free frames hold no page:
/// each percent of the limit costs about 0.1 % of misses on a zipf trace.
const SHARE_SHIFT: u32 = 11;
/// At least so many pages are worth keeping,
const PAGES_MIN: u64 = 32;
/// and so many for each CPU, as all of them may miss at a time, but no more than this share, as a
/// power of two.
const PAGES_PER_CPU: u64 = 8;
const CPUS_SHARE_SHIFT: u32 = 6;
/// Smaller limits have no reserve: the thread that needs a page reclaims it.
const LIMIT_MIN: u64 = 16 * PAGES_MIN;

impl Shortage {
    /// Of a limit of `limit` pages, of which `room` are left. The half-full mark gives the cheap
    /// way time to act.
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

/// Pages that may be taken out of the room that a limit has, without the reserve's becoming short.
pub(crate) fn beside_reserve(limit: u64, room: u64) -> u64 {
    room.saturating_sub(reserve_of(limit))
}

/// Pages that a limit of `limit` pages has in reserve.
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
