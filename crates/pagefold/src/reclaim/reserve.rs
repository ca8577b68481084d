//! How many pages are kept free, and which threads free them.
//!
//! Clean pages cost nothing to evict but a look, so a thread that takes a page out of the reserve
//! frees a few at once, while the lists and the records of the coldest pages are in its CPU's
//! caches. (A background thread that did all of it took 224 ns of CPU a page in a loop of random 4
//! KiB reads from memory, most of it waiting for lines that the reading CPU had.) One thread at a
//! time does so; where much is missing, because threads take pages faster than one of them frees,
//! each thread does. Where that doesn't keep up, because the coldest pages are pinned or unclean,
//! the background reclaimer is woken. Only a thread that finds the reserve used up has to reclaim
//! before it gets its page.

use sync::atomic::Ordering;

use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::reclaim::ranking::For;

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

/// What a thread frees for the reserve, in batches of charges, or in pages where there are no such
/// batches: more than it takes until it is asked again, which is once for each batch, as some of
/// those that it looks at stay. What it doesn't free here is left to the background, at twice the
/// price.
const HELP_BATCHES: usize = 2;
const HELP_BATCH_MAX: usize = 64;

impl Manager {
    /// After a frame was taken: has the reserves it came from filled up again.
    pub(crate) fn keep_reserves(&self, group: &GroupState) {
        let shortages = [group.shortage(), self.shortage()];
        if shortages == [Shortage::None; 2] {
            return;
        }
        let is_deep = |shortage| matches!(shortage, Shortage::Deep(_));
        // Where much is missing, each thread helps. Otherwise one thread is enough for now; looked
        // at first, as many CPUs ask.
        let deep = shortages.into_iter().any(is_deep);
        if deep {
            if !self.help(group, shortages[0]) {
                self.doorbell.ring(group.id);
            }
        } else if !self.helping.load(Ordering::Relaxed) && !self.helping.swap(true, Ordering::Relaxed) {
            self.help(group, shortages[0]);
            // Relaxed: a second helper would do no harm.
            self.helping.store(false, Ordering::Relaxed);
        }
    }

    /// Frees a few pages of the group if that is short, otherwise of the one that should give some
    /// for it. False if they are fewer than were taken.
    fn help(&self, group: &GroupState, its_shortage: Shortage) -> bool {
        self.stock_up_swap();
        let batch = group.stock_batch() as usize;
        let wanted = if batch == 0 { HELP_BATCH_MAX } else { HELP_BATCH_MAX.min(HELP_BATCHES * batch) };
        let pass = match its_shortage {
            Shortage::None => self.pass_for(For::Reserve(group), wanted),
            _ => self.pass_here(group, wanted),
        };
        pass.freed > 0 && pass.freed >= batch
    }

    /// How short the whole budget is of free frames.
    pub(crate) fn shortage(&self) -> Shortage {
        Shortage::of(self.budget_pages(), self.frames.available() as u64)
    }

    /// Pages that a group may take without a reserve's becoming short: of its limit, and of the
    /// whole budget.
    pub(crate) fn beside_reserves(&self, group: &GroupState) -> [u64; 2] {
        [group.beside_reserve(), beside_reserve(self.budget_pages(), self.frames.available() as u64)]
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
