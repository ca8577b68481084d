//! A *walk* is a series of looks at a group's pages, in which reclaim searches for pages to evict.
//! The group keeps the outcome, so a walk in vain isn't repeated for each batch.
//!
//! A look is in vain if it frees no page. The group counts the looks in vain since reclaim last
//! freed one of its pages. Once reclaim has looked at every page in vain, it evicts even pages that
//! are used again and again ([`insists`](Walk::insists)). Each page that it frees in this way
//! lowers the count by only a few looks.
//!
//! Once reclaim has looked at every page a second time in vain, no page can be evicted: all are
//! pinned or dirty, or have no slot in swap. The group then *rests*: reclaim doesn't look at its
//! pages, for about eight times the duration of the walk. Each page that becomes clean allows a few
//! looks even before the rest ends. A page that is unpinned doesn't, because pins aren't counted
//! anywhere: such a page is found only after the rest.
//!
//! If a group has several stripes, a walk visits one after the other, and looks at as many pages of
//! each as the stripe has. So when a single thread has counted as many looks as the group has
//! pages, it has looked at all of them. If several threads walk at the same time, some pages may be
//! left out. Reclaim begins at the stripe of its CPU. After looks in vain there, it goes on at the
//! stripe where the last looks in vain of any thread ended, until a page is freed.
//!
//! All accesses are `Relaxed`, and lost updates do no harm: only policy depends on them.

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// A walk ends only after this many looks more than there are pages, because the number of pages
/// may change during the walk.
const SLACK: u64 = 64;
/// The shortest rest, and the rest for each page: about eight times the duration of a look.
const REST_US_MIN: u64 = 1_000;
const REST_NS_PER_PAGE: u64 = 800;
/// The looks that each page that becomes clean allows.
const LOOKS_PER_CLEANED: u64 = 16;
/// The looks in vain before reclaim insists again, for each page that it freed by insisting.
const LOOKS_PER_FREED: u64 = 32;
/// The value of `rests_until_us` while the group isn't resting.
const NOT_YET: u64 = 0;

/// The looks at one group's pages.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    in_vain: AtomicU64,
    rests_until_us: AtomicU64,
    /// The stripe that the walk has come to.
    stripe: AtomicUsize,
    /// The looks in vain at pages of `stripe`.
    here: AtomicUsize,
}

impl Walk {
    /// Counts `looks` looks at pages, which freed `freed` pages. `insisted` is set if reclaim
    /// insisted. Pages freed without insisting set the count of looks in vain to 0. If reclaim
    /// insisted, most pages may be pinned. So the count then falls by only [`LOOKS_PER_FREED`] for
    /// each freed page, and reclaim insists again before it has looked at all pages once more.
    /// `len` returns the number of the group's pages, and is called only if reclaim insisted and
    /// freed a page.
    pub(crate) fn looked(&self, looks: usize, freed: usize, insisted: bool, len: impl FnOnce() -> usize) {
        let before = self.in_vain.load(Ordering::Relaxed);
        if freed > 0 && insisted {
            self.rests_until_us.store(NOT_YET, Ordering::Relaxed);
            let in_vain = before.min(len() as u64 + SLACK).saturating_sub(freed as u64 * LOOKS_PER_FREED);
            self.in_vain.store(in_vain, Ordering::Relaxed);
            return;
        }
        if freed > 0 {
            if before > 0 {
                self.forget();
            }
            return;
        }
        if looks > 0 {
            self.in_vain.store(before + looks as u64, Ordering::Relaxed);
        }
    }

    /// Counts a pass that found all of the group's lists empty. Without this, a walk over empty
    /// lists would never end.
    pub(crate) fn found_nothing(&self) {
        self.in_vain.fetch_add(SLACK / 4, Ordering::Relaxed);
    }

    /// Returns the stripe at which to go on, if more than a few looks in vain were counted.
    pub(crate) fn place(&self) -> Option<usize> {
        (self.in_vain.load(Ordering::Relaxed) > SLACK).then(|| self.stripe.load(Ordering::Relaxed))
    }

    /// Notes `looks` looks in vain at a stripe of `len` pages, one of `stripes`. Returns the stripe
    /// at which to go on.
    pub(crate) fn go_on(&self, stripe: usize, looks: usize, len: usize, stripes: usize) -> usize {
        let place = self.stripe.load(Ordering::Relaxed);
        if place != stripe {
            return place;
        }
        let here = self.here.load(Ordering::Relaxed) + looks;
        let is_over = here >= len;
        let next = if is_over { (stripe + 1) % stripes } else { stripe };
        self.here.store(if is_over { 0 } else { here }, Ordering::Relaxed);
        self.stripe.store(next, Ordering::Relaxed);
        next
    }

    /// Returns whether reclaim has to evict pages even if they are used.
    #[inline]
    pub(crate) fn insists(&self, len: impl FnOnce() -> usize) -> bool {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        in_vain > SLACK && in_vain > len() as u64 + SLACK
    }

    /// Returns whether the group rests: none of its pages can be evicted now, as far as is known.
    /// `len` returns the number of pages on the lists, which changes while other threads have pages
    /// isolated. That does no harm: the first thread that sees the end of the second walk begins
    /// the rest for all threads. After a rest, one more walk over all pages is allowed.
    pub(crate) fn rests(&self, len: impl FnOnce() -> usize, now_us: impl FnOnce() -> u64) -> bool {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain < all_twice(0) {
            return false; // Fast path: needs no length of the lists.
        }
        let len = len();
        if in_vain < all_twice(len) {
            return false;
        }
        let now_us = now_us();
        let rests = match self.rests_until_us.load(Ordering::Relaxed) {
            NOT_YET => {
                let rest_us = (len as u64 * REST_NS_PER_PAGE / 1_000).max(REST_US_MIN);
                self.rests_until_us.store(now_us + rest_us, Ordering::Relaxed);
                true
            }
            until => now_us < until,
        };
        if !rests {
            self.rests_until_us.store(NOT_YET, Ordering::Relaxed);
            self.in_vain.store(len as u64 + SLACK + 1, Ordering::Relaxed);
        }
        rests
    }

    /// Ends a rest early, and allows another walk over all of `len` pages.
    pub(crate) fn wake(&self, len: usize) {
        if self.in_vain.load(Ordering::Relaxed) >= all_twice(len) {
            self.in_vain.store(len as u64 + SLACK + 1, Ordering::Relaxed);
        }
    }

    /// Allows more looks because `pages` have become clean.
    pub(crate) fn cleaned(&self, pages: u64) {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain > 0 {
            self.in_vain.store(in_vain.saturating_sub(pages * LOOKS_PER_CLEANED), Ordering::Relaxed);
        }
    }

    /// Forgets all looks: the next walk is over all pages.
    pub(crate) fn forget(&self) {
        self.rests_until_us.store(NOT_YET, Ordering::Relaxed);
        self.in_vain.store(0, Ordering::Relaxed);
    }
}

fn all_twice(len: usize) -> u64 {
    2 * (len as u64 + SLACK)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    const LEN: fn() -> usize = || 1_000;

    /// Looks at pages in vain until the group rests. Returns the number of looks.
    fn looks_until_rest(walk: &Walk, now_us: u64) -> usize {
        (1..)
            .find(|_| {
                walk.looked(1, 0, false, LEN);
                walk.rests(LEN, || now_us)
            })
            .unwrap()
    }

    #[test]
    fn a_walk_in_vain_is_made_once() {
        let walk = Walk::default();
        let looks = looks_until_rest(&walk, 0);
        assert!((2_000..3_000).contains(&looks), "{looks}");
        assert!(walk.insists(LEN) && walk.rests(LEN, || REST_US_MIN / 2));
        assert!(!walk.rests(LEN, || 10 * REST_US_MIN), "the rest is over");
        let looks = looks_until_rest(&walk, 10 * REST_US_MIN);
        assert!((1_000..2_000).contains(&looks), "{looks}: all of them, once");
    }

    /// Regression: two threads walked a group's lists at the same time. When one thread asked
    /// whether all pages had been looked at, pages that the other thread had isolated weren't on
    /// the lists. When the first thread counted its own looks, those pages were on the lists again.
    /// So neither thread saw the end of the walk, and both went on forever.
    #[test]
    fn a_walk_ends_though_the_length_changes_meanwhile() {
        let walk = Walk::default();
        let rests_after = (0..1_000).position(|_| {
            walk.looked(64, 0, false, LEN);
            walk.rests(|| 1_000 - 128, || 10 * REST_US_MIN)
        });
        assert!(rests_after.is_some_and(|passes| passes < 40), "{rests_after:?}");
    }

    #[test]
    fn what_becomes_clean_is_looked_for() {
        let walk = Walk::default();
        looks_until_rest(&walk, 0);
        walk.cleaned(100);
        assert!(!walk.rests(LEN, || 0));
        assert!((100..4_000).contains(&looks_until_rest(&walk, 0)));
        walk.looked(1, 1, false, LEN);
        assert!(!walk.insists(LEN) && !walk.rests(LEN, || 0), "a page was freed");
    }

    /// Otherwise each batch would take a walk over all pages, even if most of them are pinned.
    #[test]
    fn after_a_page_that_was_freed_by_insisting_a_few_looks_are_enough() {
        let walk = Walk::default();
        walk.looked(1_900, 0, false, LEN);
        assert!(walk.insists(LEN));
        walk.looked(64, 2, true, LEN);
        assert!(!walk.insists(LEN) && !walk.rests(LEN, || 0), "two pages were freed");
        walk.looked(64, 0, false, LEN);
        assert!(!walk.insists(LEN));
        walk.looked(1, 0, false, LEN);
        assert!(walk.insists(LEN));
    }
}
