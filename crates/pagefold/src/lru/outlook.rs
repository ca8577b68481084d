//! Running means over a stripe's recent loads. From these, `stats()` infers the workload's pattern,
//! and estimates what a tenth more or less memory would change.
//!
//! *More memory.* If the window were longer, the pages that come back soon after they left the
//! window would still be in memory. If main were longer, it would hold pages that lost their
//! challenges lately, and each such page would be used once per interval. Each of these two
//! estimates is a number of loads that would be avoided; the larger one is reported.
//!
//! *Less memory.* More pages would have to leave. These pages would be used about as often as pages
//! that have just lost a challenge. So the mean rate at which the losers are used tells how many
//! loads would be added.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};

use crate::lru::rank::{ORIGINS, Origin};

/// How a share of 1 is stored, in fixed point. A share stops falling at `MEMORY` / `ONE`, because
/// smaller steps are rounded to 0. So `ONE` is large.
const ONE: u32 = 1 << 30;
/// The fixed-point value 1 of a rate, in uses per load.
const ONCE: u64 = 1 << 32;
/// A load has a weight of 1/`MEMORY` in the running means.
const MEMORY: i64 = 1024;
/// A lost challenge has a weight of 1/`RATE_MEMORY` in the mean rate.
const RATE_MEMORY: i64 = 64;
/// Fractions of the group's size, for the window and for main (`GroupState`). A page came back soon
/// if fewer pages than this fraction have left the same list since the page did.
const SOON: [f64; 2] = [0.5, 0.25];
/// The change of memory that is asked for.
const TENTH: f64 = 0.1;

/// Counts the pages of one batch that moved from young to their places.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Placed {
    pub(crate) pages: u32,
    /// By origin.
    pub(crate) from: [u32; ORIGINS],
    /// Came back, and lost the challenge.
    pub(crate) lost: u32,
}

/// Running means of one stripe. Relaxed: statistics, and a lost update does no harm.
#[derive(Debug, Default)]
pub(crate) struct Outlook {
    /// Shares of the loads, by origin.
    from: [AtomicU32; ORIGINS],
    /// The share of the loads that lost a challenge.
    lost: AtomicU32,
    /// The mean of 1/interval of the pages that lost a challenge, in uses per load.
    rate: AtomicU64,
}

impl Outlook {
    /// Notes pages that have got their places.
    pub(crate) fn placed(&self, placed: &Placed) {
        let follow = |mean: &AtomicU32, count: u32| {
            let now = i64::from(mean.load(Ordering::Relaxed));
            let moved = i64::from(count) * i64::from(ONE) - i64::from(placed.pages) * now;
            let next = (now + moved / MEMORY).clamp(0, i64::from(ONE));
            mean.store(next as u32, Ordering::Relaxed);
        };
        self.from.iter().zip(placed.from).for_each(|(mean, count)| follow(mean, count));
        follow(&self.lost, placed.lost);
    }

    /// Notes that a page with this mean interval lost a challenge.
    pub(crate) fn lost(&self, interval: u64) {
        let (now, rate) = (self.rate.load(Ordering::Relaxed) as i64, (ONCE / interval.max(1)) as i64);
        self.rate.store((now + (rate - now) / RATE_MEMORY) as u64, Ordering::Relaxed);
    }

    /// Returns the share of loads that brought back a page which the window had just evicted.
    pub(crate) fn at_once(&self) -> f64 {
        self.share(Origin::AtOnceToWindow)
    }

    fn share(&self, origin: Origin) -> f64 {
        f64::from(self.from[origin as usize].load(Ordering::Relaxed)) / f64::from(ONE)
    }

    /// Estimates how many loads a tenth more memory (`pages` / 10 pages) would have avoided, as a
    /// fraction of all loads.
    pub(crate) fn more(&self, pages: usize) -> f64 {
        let lost = f64::from(self.lost.load(Ordering::Relaxed)) / f64::from(ONE);
        self.soon().max(self.uses(pages).min(lost))
    }

    /// Estimates how many loads a tenth less memory (`pages` / 10 pages) would have added, as a
    /// fraction of all loads.
    pub(crate) fn less(&self, pages: usize) -> f64 {
        self.soon().max(self.uses(pages))
    }

    /// Estimates the fraction of loads that brought back a page before more than a tenth of the
    /// group's size had left the same list after it.
    fn soon(&self) -> f64 {
        let to_window = self.share(Origin::SoonToWindow) + self.share(Origin::AtOnceToWindow);
        to_window * TENTH / SOON[0] + self.share(Origin::SoonToMain) * TENTH / SOON[1]
    }

    /// Returns how many uses per load a tenth of `pages` pages would get in all, if each page were
    /// used as often as the pages that have lost challenges.
    fn uses(&self, pages: usize) -> f64 {
        pages as f64 * TENTH * self.rate.load(Ordering::Relaxed) as f64 / ONCE as f64
    }

    /// Of the pages that came back, returns the share that found room in main or won a challenge.
    pub(crate) fn won(&self) -> f64 {
        1.0 - f64::from(self.lost.load(Ordering::Relaxed)) / f64::from(ONE) / self.back().max(f64::EPSILON)
    }

    /// Returns the share of loads that brought back a page whose history still counted.
    pub(crate) fn back(&self) -> f64 {
        let all = [Origin::Back, Origin::SoonToWindow, Origin::AtOnceToWindow, Origin::SoonToMain];
        all.map(|origin| self.share(origin)).iter().sum()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A regression: a share of pages that got their places one by one stopped falling at 1.6 %.
    #[test]
    fn a_share_fades_however_few_pages_get_their_places_at_a_time() {
        let outlook = Outlook::default();
        let at_once = Placed { pages: 1, from: [0, 0, 0, 1, 0], lost: 1 };
        (0..1_000).for_each(|_| outlook.placed(&at_once));
        let new = Placed { pages: 1, from: [1, 0, 0, 0, 0], lost: 0 };
        (0..10_000).for_each(|_| outlook.placed(&new));
        assert!(outlook.at_once() < 0.001 && outlook.back() < 0.001, "{outlook:?}");
    }

    #[test]
    fn means_follow_what_happens() {
        let outlook = Outlook::default();
        assert_eq!((outlook.back(), outlook.more(1000), outlook.less(1000)), (0.0, 0.0, 0.0));
        let half = Placed { pages: 10, from: [5, 0, 5, 0, 0], lost: 5 };
        (0..1000).for_each(|_| outlook.placed(&half));
        let near = |is: f64, to: f64| (is - to).abs() < 0.02;
        assert!(near(outlook.back(), 0.5) && near(outlook.more(1000), 0.1), "{outlook:?}");
        // A tenth of the pages, each used once in 160 loads.
        (0..1000).for_each(|_| outlook.lost(160));
        assert!(near(outlook.more(1000), 0.5), "no more than lost");
        assert!(near(outlook.less(1000), 100.0 / 160.0));
    }
}
