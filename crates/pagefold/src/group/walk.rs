//! What reclaim's looks at a group's pages have come to, so that a walk in vain isn't repeated for
//! each batch.
//!
//! Looks in vain are counted, from the last page that was freed. Once every page was looked at in
//! vain, pages that are used again and again have to go, too ([`insists`](Walk::insists)). Once all
//! were looked at a second time, none can go: they are pinned, dirty, or have no place in swap. The
//! group then *rests*, as long as takes many times the walk: pins aren't counted anywhere, so what
//! was unpinned is found when the rest is over. A page that becomes clean is worth a few looks at
//! once.
//!
//! All `Relaxed`, and lost updates do no harm: a policy's memory.

use sync::atomic::{AtomicU64, Ordering};

/// Looks that are made beyond the number of pages, as that changes.
const SLACK: u64 = 64;
/// The shortest rest, and how much each page adds: about eight times what a look takes.
const REST_US_MIN: u64 = 1_000;
const REST_NS_PER_PAGE: u64 = 800;
/// Looks that a page is worth that has become clean.
const LOOKS_PER_CLEANED: u64 = 16;
/// In place of the end of a rest: none has begun since the last one was over.
const NOT_YET: u64 = 0;

/// The looks at one group's pages.
#[derive(Debug, Default)]
pub(crate) struct Walk {
    in_vain: AtomicU64,
    rests_until_us: AtomicU64,
}

impl Walk {
    /// Pages were looked at, and some of them freed.
    pub(crate) fn looked(&self, looks: usize, freed: usize) {
        let before = self.in_vain.load(Ordering::Relaxed);
        if freed > 0 {
            if before > 0 {
                self.forget();
            }
            return;
        }
        // A look at empty lists is some, too: so every walk ends.
        let looks = if looks == 0 { SLACK / 4 } else { looks as u64 };
        self.in_vain.store(before + looks, Ordering::Relaxed);
    }

    /// Whether pages have to go although they are used.
    #[inline]
    pub(crate) fn insists(&self, len: impl FnOnce() -> usize) -> bool {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        in_vain > SLACK && in_vain > len() as u64 + SLACK
    }

    /// Whether it is known that none of `len` pages can go now. The rest begins when that is first
    /// seen, by whichever thread, so it doesn't matter that `len` changes while others have pages
    /// isolated. The end of a rest allows one more walk over all pages.
    pub(crate) fn rests(&self, len: impl FnOnce() -> usize, now_us: impl FnOnce() -> u64) -> bool {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain < all_twice(0) {
            return false; // Most often: without a look at the lists.
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

    /// Ends a rest before its time: another walk over all of `len` pages is allowed.
    pub(crate) fn wake(&self, len: usize) {
        if self.in_vain.load(Ordering::Relaxed) >= all_twice(len) {
            self.in_vain.store(len as u64 + SLACK + 1, Ordering::Relaxed);
        }
    }

    /// Pages have become clean.
    pub(crate) fn cleaned(&self, pages: u64) {
        let in_vain = self.in_vain.load(Ordering::Relaxed);
        if in_vain > 0 {
            self.in_vain.store(in_vain.saturating_sub(pages * LOOKS_PER_CLEANED), Ordering::Relaxed);
        }
    }

    /// The next walk is over all pages, whatever the last one came to.
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

    /// Looks at pages in vain until the group rests. Returns how many that took.
    fn looks_until_rest(walk: &Walk, now_us: u64) -> usize {
        (1..)
            .find(|_| {
                walk.looked(1, 0);
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

    /// Two threads walked a group's lists at the same time. Pages that one had isolated weren't on
    /// the lists when the other asked whether all had been looked at, and were when it noted its
    /// own looks: so the walk's end was seen by neither, and they went on for ever.
    #[test]
    fn a_walk_ends_though_the_length_changes_meanwhile() {
        let walk = Walk::default();
        let rests_after = (0..1_000).position(|_| {
            walk.looked(64, 0);
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
        walk.looked(1, 1);
        assert!(!walk.insists(LEN) && !walk.rests(LEN, || 0), "a page was freed");
    }
}
