//! Which threads free the pages that are kept free (`group::reserve`).
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

use crate::group::reserve::{Shortage, beside_reserve};
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::manager::ranking::For;

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
