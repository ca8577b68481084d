//! The size of the window: for how long pages that have no place in main stay in memory.
//!
//! A page that comes back soon after it left the window shows that the window may be too small.
//! Whether it is too small depends on main. If the page displaces a page of main, memory lies idle
//! in main while the window lacks memory, so the window grows. If the page can't displace any, main
//! is in use, and the window shrinks. So in a loop that is larger than the memory, where no page of
//! main is ever displaced, the window stays as small as it may be, although every page comes back.
//! A page that comes back soon after it left *main* shrinks the window as well.
//!
//! The window may be too small even if main is in use. An example: each page is used several times
//! at moderate distances, and then no more. Then all pages of main were used not long ago, so no
//! challenge is won. In this case the savings of a place are compared:
//! - Suppose that a share s of the loads bring back a page that was among the last d to leave the
//!   window. Then one more place in the window would save s / d loads per load.
//! - Suppose that the pages at main's end are used again after e loads. Then one place less in main
//!   would cost 1 / e loads per load.
//!
//! So the window grows if s / d > 1 / e, that is, if s × e > d. In a loop, all pages come back at
//! the same distance, e. If e > d, no page is among the last d, so s = 0. If e ≤ d, then s × e ≤ d,
//! because s ≤ 1. So in a loop the window doesn't grow.
//!
//! If many challenges are won, the working set is changing, and the window grows fast. If few are
//! won, it grows slowly. A step is a fixed number of pages, whatever the memory's size. So if
//! memory has N pages, about N misses can move the window from one extreme to the other.

use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};

use crate::lru::batch::BATCH_MAX;
use crate::lru::rank::Origin;

/// The window's least and largest part of the pages.
const LEAST: usize = 100;
const MOST: (usize, usize) = (31, 32);
/// Each time that reclaim frees pages, the largest number of pages so far (`full`) falls by
/// 1/`FORGETS_MOST` of its distance to the present number.
const FORGETS_MOST: usize = 8;
/// Each pass that meets no unused page of readahead gives back 1/`FORGETS_AHEAD` of the room that
/// such pages took (`ahead`).
const FORGETS_AHEAD: usize = 64;
/// A change of that room by less than 1/`AHEAD_STEP` isn't noted.
const AHEAD_STEP: usize = 16;
/// Uses in the window show repeated use if the window is more than this many times its least
/// length.
const LONG: usize = 2;
/// A page was among the last to leave the window if at most 1/`AT_ONCE` of the group's size left
/// the window since.
pub(crate) const AT_ONCE: u64 = 32;
/// A look at the end of main has a weight of 1/`END_MEMORY` in the expected interval of the pages
/// there.
const END_MEMORY: u64 = 64;
/// The window grows by `GROWS` or, if it grows fast, by `GROWS_FAST` pages. It shrinks by `SHRINKS`
/// pages.
const GROWS: usize = 2;
const GROWS_FAST: usize = 8;
const SHRINKS: usize = 1;
/// The window also shrinks by one page for each `UNUSED_SHRINK` new pages that leave it unused.
const UNUSED_SHRINK: usize = 5;
/// The window grows fast if more than this share of the recent challenges were won.
const FAST: u32 = ONE / 5;
/// A challenge has a weight of 1/`MEMORY` in that share.
const MEMORY: u32 = 20;
/// A look at a page of main has a weight of 1/`BUSY_MEMORY` in the share of pages that aren't idle.
const BUSY_MEMORY: u32 = 64;
/// 1 as a share.
const ONE: u32 = 1 << 16;

/// Returns how many pages reclaim frees at a time in a stripe of `pages` pages.
pub(crate) fn step(pages: usize) -> usize {
    (pages / 128).clamp(1, BATCH_MAX)
}

/// Returns by how many pages a stripe of `pages` pages may exceed its recent size without growing.
fn slack(pages: usize) -> usize {
    2 * (step(pages) + BATCH_MAX)
}

/// The window of one stripe, and what the stripe knows of its size. Relaxed: only the policy
/// depends on these numbers, and a lost update does no harm.
#[derive(Debug, Default)]
pub(crate) struct Window {
    /// The pages that the window should have.
    target: AtomicUsize,
    /// The share of challenges that were won, as a running mean.
    won: AtomicU32,
    /// The least number of pages that remained after reclaim in the current turnover, and in the
    /// one before; 0 before the first reclaim. A turnover is a period in which as many pages are
    /// evicted as the stripe has. The least number is kept because the number of pages varies:
    /// loads bring many pages at a time. Both least numbers begin anew when the stripe has outgrown
    /// its recent size.
    least: [AtomicUsize; 2],
    /// Pages freed in the current turnover.
    freed: AtomicUsize,
    /// The share of looks at main that found a page that isn't idle, as a running mean.
    busy: AtomicU32,
    /// After how many loads the unused pages at the end of main are expected to be used again, as a
    /// running mean, times `END_MEMORY`.
    end: AtomicU64,
    /// New pages that left the window unused, since the window last shrank because of such pages.
    unused: AtomicUsize,
    /// The room that pages take from main while they wait for their first use after readahead: the
    /// number of pages outside main, minus the target, at the last pass that spared such pages.
    /// Decreases with each pass that meets no such page.
    ahead: AtomicUsize,
    /// The largest number of pages at the beginning of a recent reclaim.
    full: AtomicUsize,
}

impl Window {
    /// Returns how many pages the window should have.
    pub(crate) fn target(&self) -> usize {
        self.target.load(Ordering::Relaxed).max(1)
    }

    /// Returns whether the window is so long that a use in it shows that the page is used
    /// repeatedly. In a window of about the least length, all uses may belong to one burst, for
    /// example of a few readers that follow each other through a file.
    pub(crate) fn is_long(&self) -> bool {
        self.target() > LONG * (self.base() / LEAST).max(1)
    }

    /// Returns whether a stripe of `pages` pages grows. It does if reclaim hasn't run yet, if the
    /// stripe has more pages than recent reclaims began with, or if it has lost more than an eighth
    /// of its pages since. Then new pages may go directly to main.
    pub(crate) fn grows(&self, pages: usize) -> bool {
        self.has_outgrown(pages) || self.full.load(Ordering::Relaxed) > pages + pages / 8 + slack(pages)
    }

    /// Returns whether a stripe of `pages` pages has more pages than recent reclaims began with.
    fn has_outgrown(&self, pages: usize) -> bool {
        let full = self.full.load(Ordering::Relaxed);
        full == 0 || pages > full + slack(pages)
    }

    /// Returns whether the pattern is recency: most pages that are used again were used lately.
    /// This is so if the window's target is more than an eighth of `pages` pages.
    pub(crate) fn is_recency(&self, pages: usize) -> bool {
        self.target() > pages / 8
    }

    /// Returns the most pages that main may have in a stripe of `pages` pages.
    pub(crate) fn main_max(&self, pages: usize) -> usize {
        let base = if self.grows(pages) { pages.saturating_sub(step(pages)) } else { self.base() };
        base.saturating_sub(self.target().max(pages / LEAST) + self.ahead.load(Ordering::Relaxed))
    }

    /// Notes that reclaim is about to free `wanted` of `pages` pages.
    pub(crate) fn reclaims(&self, pages: usize, wanted: usize) {
        let (rest, [least, before]) = (pages.saturating_sub(wanted), &self.least);
        let freed = self.freed.load(Ordering::Relaxed) + wanted;
        let known = least.load(Ordering::Relaxed);
        // If the stripe was small for some time and is large again, its old size tells nothing.
        let is_new = known == 0 || self.has_outgrown(pages);
        if is_new || freed > pages {
            before.store(if is_new { rest } else { known }, Ordering::Relaxed);
            least.store(rest, Ordering::Relaxed);
            self.freed.store(0, Ordering::Relaxed);
        } else {
            self.freed.store(freed, Ordering::Relaxed);
            if rest < known {
                least.store(rest, Ordering::Relaxed);
            }
        }
        let full = self.full.load(Ordering::Relaxed);
        note(&self.full, full, pages.max(full - full.saturating_sub(pages).div_ceil(FORGETS_MOST)));
        self.set_target(self.target(), pages);
    }

    /// Notes a pass: whether it spared pages that were read ahead and haven't been used yet
    /// (`any`), and the number of pages outside main (`outside`). While passes spare such pages,
    /// main doesn't take back the room that these pages occupy.
    pub(crate) fn spared(&self, any: bool, outside: usize) {
        let ahead = self.ahead.load(Ordering::Relaxed);
        let taken = outside.saturating_sub(self.target());
        // Small differences don't matter, and every CPU that reclaims would write them.
        let differs = taken.abs_diff(ahead) > ahead / AHEAD_STEP;
        let next = match any {
            true if differs => taken,
            true => ahead,
            false => ahead - ahead.div_ceil(FORGETS_AHEAD),
        };
        note(&self.ahead, ahead, next);
    }

    /// Notes a look at a page of main: whether the page is idle, that is, unused for longer than
    /// can be expected.
    pub(crate) fn looked(&self, is_idle: bool) {
        let busy = self.busy.load(Ordering::Relaxed);
        let next = if is_idle { busy - busy / BUSY_MEMORY } else { busy + (ONE - busy) / BUSY_MEMORY };
        if next != busy {
            self.busy.store(next, Ordering::Relaxed);
        }
    }

    /// Notes that an unused page at the end of main is expected to be used again after `loads`
    /// loads.
    pub(crate) fn looked_at_end(&self, loads: u64) {
        let end = self.end.load(Ordering::Relaxed);
        self.end.store((end - end / END_MEMORY).saturating_add(loads), Ordering::Relaxed);
    }

    /// Returns whether one place more in the window saves more loads than one place less in main
    /// costs. `at_once` is the share of loads that brought back pages which were among the last to
    /// leave the window.
    pub(crate) fn is_short(&self, at_once: f64, pages: usize) -> bool {
        let end = (self.end.load(Ordering::Relaxed) / END_MEMORY) as f64;
        at_once * end > pages as f64 / AT_ONCE as f64
    }

    /// Estimates how many of `main` pages of main are idle.
    pub(crate) fn idle(&self, main: usize) -> usize {
        let idle = ONE - self.busy.load(Ordering::Relaxed);
        (main as u64 * u64::from(idle) / u64::from(ONE)) as usize
    }

    /// Notes that a page found room in main.
    pub(crate) fn found_room(&self, origin: Origin) {
        if origin == Origin::SoonToMain {
            self.shrink();
        }
    }

    /// Notes the outcome of a page's challenge, in a stripe of `pages` pages. `is_short`: see
    /// [`is_short`](Self::is_short).
    pub(crate) fn challenged(&self, origin: Origin, is_won: bool, is_short: bool, pages: usize) {
        if origin == Origin::New {
            return; // It was used in the window, which tells nothing of the window's size.
        }
        let won = self.won.load(Ordering::Relaxed);
        let won = if is_won { won + (ONE - won) / MEMORY } else { won - won / MEMORY };
        self.won.store(won, Ordering::Relaxed);
        if origin.is_soon_to_window() && (is_won || is_short) {
            let fast = is_won && won > FAST;
            self.set_target(self.target() + if fast { GROWS_FAST } else { GROWS }, pages);
        } else if origin.is_soon_to_window() || origin == Origin::SoonToMain {
            self.shrink();
        }
    }

    /// Notes that a hot page leaves the window for main, although all of main is in use. This shows
    /// that the window is larger than it has to be.
    pub(crate) fn gives_way(&self) {
        self.shrink();
    }

    /// Notes that `pages` new pages leave the window unused. Such pages gain nothing from a longer
    /// window.
    pub(crate) fn left_unused(&self, pages: usize) {
        if pages > 0 {
            let unused = self.unused.fetch_add(pages, Ordering::Relaxed) + pages;
            if unused >= UNUSED_SHRINK {
                self.unused.store(unused % UNUSED_SHRINK, Ordering::Relaxed);
                self.set_target(self.target().saturating_sub(unused / UNUSED_SHRINK), self.base());
            }
        }
    }

    /// Returns the least number of pages that remained after reclaim lately.
    fn base(&self) -> usize {
        let [least, before] = &self.least;
        least.load(Ordering::Relaxed).min(before.load(Ordering::Relaxed))
    }

    fn shrink(&self) {
        self.set_target(self.target().saturating_sub(SHRINKS), self.base());
    }

    fn set_target(&self, target: usize, pages: usize) {
        let (least, most) = ((pages / LEAST).max(1), pages * MOST.0 / MOST.1);
        note(&self.target, self.target.load(Ordering::Relaxed), target.clamp(least, most.max(least)));
    }
}

/// Stores a number that was `known`, unless it is the same: other CPUs then keep the cache line.
fn note(number: &AtomicUsize, known: usize, new: usize) {
    if new != known {
        number.store(new, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_window_follows_what_comes_back() {
        let window = Window::default();
        window.reclaims(1007, 7);
        assert_eq!((window.target(), window.main_max(1000)), (10, 990));
        window.challenged(Origin::New, true, false, 1000);
        window.challenged(Origin::Back, true, false, 1000);
        assert_eq!(window.target(), 10);
        window.challenged(Origin::SoonToWindow, true, false, 1000);
        assert_eq!(window.target(), 12, "slowly");
        for _ in 0..5 {
            window.challenged(Origin::Back, true, false, 1000);
        }
        window.challenged(Origin::SoonToWindow, true, false, 1000);
        assert_eq!((window.target(), window.main_max(1000)), (20, 980), "fast");
        window.challenged(Origin::SoonToWindow, false, false, 1000);
        window.challenged(Origin::SoonToMain, true, false, 1000);
        window.found_room(Origin::SoonToMain);
        window.found_room(Origin::Back);
        assert_eq!(window.target(), 17);
        (0..1000).for_each(|_| window.challenged(Origin::SoonToWindow, true, false, 1000));
        assert_eq!(window.target(), 968, "no more than 31/32");
        (0..1000).for_each(|_| window.challenged(Origin::SoonToWindow, false, false, 1000));
        assert_eq!(window.target(), 10, "no less than a hundredth");
    }

    /// With 1,024 pages, the last 1,024 / `AT_ONCE` = 32 pages count as the last to leave the
    /// window.
    #[test]
    fn the_window_grows_if_a_place_saves_more_there() {
        let window = Window::default();
        window.reclaims(1_031, 7);
        assert!(!window.is_short(1.0, 1_024), "nothing is known of main");
        (0..1_000).for_each(|_| window.looked_at_end(200));
        assert_eq!([0.1, 0.15, 0.17, 1.0].map(|share| window.is_short(share, 1_024)), [false, false, true, true]);
        let before = window.target();
        for origin in [Origin::AtOnceToWindow, Origin::SoonToWindow] {
            window.challenged(origin, false, true, 1_024);
        }
        assert_eq!(window.target(), before + 2 * GROWS);
        for origin in [Origin::AtOnceToWindow, Origin::SoonToMain] {
            window.challenged(origin, false, false, 1_024);
        }
        assert_eq!(window.target(), before + 2 * GROWS - 2 * SHRINKS);
        // A loop that is 32 pages larger than memory: each page comes back 32 loads after it left.
        (0..1_000).for_each(|_| window.looked_at_end(32));
        assert!(!window.is_short(1.0, 1_024));
    }

    #[test]
    fn a_stripe_that_isnt_full_grows() {
        let window = Window::default();
        assert!(window.grows(1000) && window.main_max(1000) == 983, "nothing was reclaimed yet");
        assert_eq!([0, 1, 2].map(|pages| window.main_max(pages)), [0; 3]);
        window.reclaims(1000, 7);
        assert_eq!([993, 1000, 1100].map(|pages| window.grows(pages)), [false; 3]);
        assert_eq!([2000, 500].map(|pages| window.grows(pages)), [true; 2]);
    }

    /// A regression: after the stripe had been small, main had room for a few pages only, until
    /// twice as many pages were evicted as there are.
    #[test]
    fn a_stripe_that_was_small_for_some_time_gets_its_main_back() {
        let window = Window::default();
        window.reclaims(1_000, 7);
        (0..40).for_each(|_| window.reclaims(60, 1));
        window.reclaims(1_000, 7);
        assert_eq!(window.main_max(1_000), 983);
        (0..1_000).for_each(|_| window.challenged(Origin::SoonToWindow, true, false, 1_000));
        window.left_unused(UNUSED_SHRINK);
        assert_eq!(window.target(), 961, "31/32 of what is left, and not of what was");
    }
}
