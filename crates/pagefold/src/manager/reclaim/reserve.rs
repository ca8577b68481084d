//! Decides which threads refill the reserve of free pages (`group::reserve`).
//!
//! A reserve is a part of a group's limit, or of the whole budget. It is kept free so that a thread
//! that needs a page gets one at once. A thread that takes pages out of the reserve also frees a
//! few. That is cheap for this thread, because its CPU's caches hold the lists, and the records of
//! the coldest pages. (When a background thread freed all pages, it took 224 ns of CPU time for
//! each page, in a loop of random 4 KiB reads from memory. For most of that time it waited for
//! cache lines that the reading CPU held.)
//!
//! Normally one thread at a time refills the reserve. If much is missing, because threads take
//! pages faster than one thread frees them, each thread that takes a page helps. If these threads
//! don't free enough either, because the coldest pages are pinned or dirty, they wake the
//! background reclaimer. A thread has to reclaim before it gets its page only if the reserve is
//! empty.

use sync::atomic::Ordering;

use crate::group::reserve::Shortage;
use crate::group::state::GroupState;
use crate::manager::Manager;
use crate::memory::ranking::For;

/// While a reserve is short, a thread helps each time its CPU's stock of charges is empty. It then
/// tries to free `min(HELP_BATCHES * batch, HELP_BATCH_MAX)` pages, where `batch` is the number of
/// charges that the stock takes at once. If the group has no stocks, the thread tries to free
/// `HELP_BATCH_MAX` pages. The target is more than one batch, because some of the pages that the
/// thread looks at can't be evicted. If the thread freed less than one batch, the background
/// reclaimer would have to free the rest, at twice the cost.
const HELP_BATCHES: usize = 2;
const HELP_BATCH_MAX: usize = 64;

impl Manager {
    /// Refills the reserves that a frame is about to be taken from.
    pub(crate) fn keep_reserves(&self, group: &GroupState) {
        let shortages = [group.shortage(), self.memory.shortage()];
        if shortages == [Shortage::None; 2] {
            return;
        }
        let is_deep = |shortage| matches!(shortage, Shortage::Deep(_));
        // If much is missing, each thread helps. Otherwise one thread is enough for now. The flag
        // is loaded before it is swapped: many CPUs execute this, and a load, unlike a swap,
        // doesn't take the flag's cache line from other CPUs.
        let deep = shortages.into_iter().any(is_deep);
        if deep {
            if !self.help(group, shortages[0]) {
                self.memory.doorbell.ring(group.id);
            }
        } else if !self.memory.helping.load(Ordering::Relaxed) && !self.memory.helping.swap(true, Ordering::Relaxed) {
            self.help(group, shortages[0]);
            // Relaxed: a second helper would do no harm.
            self.memory.helping.store(false, Ordering::Relaxed);
        }
    }

    /// Frees a few pages. If the group's own reserve is short, gives back idle parts of the group's
    /// page maps or, if there are none, evicts pages of the group. Otherwise evicts pages of the
    /// group that `ranking` asks first. Returns false if it freed no page, or fewer than a batch of
    /// charges.
    fn help(&self, group: &GroupState, its_shortage: Shortage) -> bool {
        self.stock_up_swap();
        let batch = group.stock_batch() as usize;
        let wanted = if batch == 0 { HELP_BATCH_MAX } else { HELP_BATCH_MAX.min(HELP_BATCHES * batch) };
        let freed = match its_shortage {
            Shortage::None => self.pass_for(For::Reserve(group), wanted).freed,
            _ => match self.reclaim_idle_parts(group, wanted as u64) {
                0 => self.pass_here(group, wanted).freed,
                of_parts => of_parts as usize,
            },
        };
        freed > 0 && freed >= batch
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::{Pagefold, Protection, SwapArea};
    use test_disks::SimulatedDisk;

    /// Regression: a group with a reserve of its own (on a machine with many CPUs) evicted its
    /// pages for the reserve, although it had parts of page maps that no page needed.
    #[test]
    fn parts_that_no_page_needs_refill_a_reserve_before_pages_do() {
        const PAGE: u64 = 4096;
        const PART: u64 = 512 * PAGE;
        let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
        let mm = mm.memory("16MiB").build().unwrap();
        let group = mm.group("tenant").max(512 * PAGE).build().unwrap();
        let space = group.space().unwrap();
        let base = space.map(8 * PART, Protection::ReadWrite).unwrap().start;
        (0..100).for_each(|page| space.write_at(&[1], base + page * PAGE).unwrap());
        (1..6).for_each(|part| space.write_at(&[1], base + part * PART).unwrap());
        let (manager, state) = (group.manager(), group.state());
        manager.memory.drain_entries();
        space.discard(base + PART..base + 8 * PART).unwrap();
        assert_eq!(state.parts.charged(), 6);
        manager.help(state, Shortage::Slight);
        assert_eq!((state.parts.charged(), group.stats().evictions), (1, 0));
        let has_evicted = (0..100).any(|_| manager.help(state, Shortage::Slight) || group.stats().evictions > 0);
        assert!(has_evicted, "now pages have to go");
    }
}
