//! How many pages are kept free, and who sees to it.
//!
//! Clean pages cost nothing to evict but a look, so whoever takes a page out of the reserve frees a few at once, while
//! the lists and the records of the coldest pages are in its CPU's caches. (A background thread that did all of it took
//! 224 ns of CPU a page in a loop of random 4 KiB reads from memory, most of it waiting for lines that the reading CPU
//! had.) Where that doesn't keep up, because threads take faster than one of them frees or the coldest pages are pinned,
//! the background reclaimer is woken. Only a reserve that is used up makes a thread reclaim before it gets its page.

/// How short a reserve is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Shortage {
    /// There is enough.
    None,
    /// Less than there should be: whoever takes a page frees a few.
    Slight,
    /// Less than half of that: so many should be freed in the background.
    Deep(usize),
}

/// The reserve's share of the limit, as a power of two. Small, because free frames serve nobody: each percent costs
/// about 0.1 % of misses on a zipf trace.
const SHARE_SHIFT: u32 = 11;
/// At least so many pages are worth keeping,
const PAGES_MIN: u64 = 32;
/// and so many for each CPU, as all of them may miss at a time, but no more than this share, as a power of two.
const PAGES_PER_CPU: u64 = 8;
const CPUS_SHARE_SHIFT: u32 = 6;
/// Smaller limits have no reserve: who needs a page reclaims it.
const LIMIT_MIN: u64 = 16 * PAGES_MIN;

impl Shortage {
    /// Of a limit of `limit` pages, of which `room` are left. The half-full mark gives the cheap way time to act.
    pub(crate) fn of(limit: u64, room: u64) -> Self {
        let for_cpus = (PAGES_PER_CPU * sync::cpu::count() as u64).min(limit >> CPUS_SHARE_SHIFT);
        let reserve = (limit >> SHARE_SHIFT).max(PAGES_MIN).max(for_cpus);
        if limit < LIMIT_MIN || room >= reserve {
            Self::None
        } else if room >= reserve / 2 {
            Self::Slight
        } else {
            Self::Deep((2 * reserve - room) as usize)
        }
    }
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
