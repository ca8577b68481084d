//! A memory group: a tenant's limit, what is charged to it, its lists, its counters.
//!
//! - G1. A page is charged before its frame is taken, and uncharged after its frame is freed: `charged ≤ max` at every
//!   moment, except after the limit was lowered.
//! - G2. A page's group doesn't change while its frame is isolated; whoever isolates a frame may therefore lock the
//!   group's lists without looking again.
//!
//! Lock order: the lists' lock is a leaf above the free frames' (`frames`); nobody holds two groups' lists.

use sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sync::lock::Mutex;

use crate::dirty::UncleanCount;
use crate::error::Error;
use crate::group_lists::GroupLists;
use crate::reserve::Shortage;
use crate::shadow::{Level, Shadow};
use crate::stats::Counters;

const UNLIMITED: u64 = 1 << 63;

/// Everything about a group. Sizes are in pages.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The limit, with [`UNLIMITED`] if it is the whole budget, whatever that is: in one word, so that a budget that
    /// changes can't undo a limit that is being set.
    max: AtomicU64,
    charged: AtomicU64,
    peak: AtomicU64,
    pub(crate) lists: Mutex<GroupLists>,
    /// Lost duels that pages of main haven't aged for yet.
    pub(crate) ageing_due: AtomicU64,
    pub(crate) counters: Counters,
    pub(crate) unclean: UncleanCount,
    /// Nobody has a handle any more: the group goes when its last page does.
    pub(crate) abandoned: AtomicBool,
}

impl GroupState {
    /// A group with a limit of `max` pages; `None`: of the whole budget, which has `budget` pages now.
    ///
    /// # Errors
    /// When the process has too many counters.
    pub(crate) fn new(id: u32, name: &str, max: Option<u64>, budget: u64) -> Result<Self, Error> {
        Ok(Self {
            id,
            name: name.to_owned(),
            max: AtomicU64::new(max.unwrap_or(budget | UNLIMITED)),
            charged: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            lists: Mutex::default(),
            ageing_due: AtomicU64::new(0),
            counters: Counters::new()?,
            unclean: UncleanCount::default(),
            abandoned: AtomicBool::new(false),
        })
    }

    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed) & !UNLIMITED
    }

    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
        fence(Ordering::SeqCst); // Pairs with the charge in `try_charge`.
    }

    /// The budget has `pages` pages now.
    pub(crate) fn budget_changed(&self, pages: u64) {
        let change = |max| (max & UNLIMITED != 0).then_some(pages | UNLIMITED);
        let _ = self.max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        fence(Ordering::SeqCst);
    }

    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Charges a page, if the limit allows it.
    pub(crate) fn try_charge(&self) -> bool {
        let max = self.max();
        let before = self
            .charged
            .fetch_update(Ordering::SeqCst, Ordering::Relaxed, |charged| (charged < max).then_some(charged + 1));
        let Ok(before) = before else { return false };
        // Either a limit that was lowered meanwhile is seen here, or whoever lowered it sees this charge: SeqCst, with
        // the charge itself and the fence in `set_max`. (A fence here as well would cost a miss 20 ns.)
        if before >= self.max.load(Ordering::SeqCst) & !UNLIMITED {
            self.uncharge(1);
            return false;
        }
        if before >= self.peak() {
            self.peak.fetch_max(before + 1, Ordering::Relaxed);
        }
        true
    }

    pub(crate) fn uncharge(&self, pages: u64) {
        let before = self.charged.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "more uncharged than charged");
    }

    /// How short the group is of free pages.
    pub(crate) fn shortage(&self) -> Shortage {
        let max = self.max();
        Shortage::of(max, max.saturating_sub(self.charged()))
    }

    /// How much of its limit the group uses: the largest share is reclaimed first when the whole budget is short.
    pub(crate) fn fullness(&self) -> f64 {
        if self.abandoned.load(Ordering::Relaxed) {
            return f64::INFINITY;
        }
        self.charged() as f64 / self.max().max(1) as f64
    }

    /// The level at which a page enters that left `shadow` behind, and whether that is a refault.
    pub(crate) fn welcome(&self, shadow: u64) -> (Level, bool) {
        let Some(shadow) = Shadow::from_bits(shadow) else { return (Level::default(), false) };
        let clock = self.counters.evictions.load(Ordering::Relaxed);
        // A page that stayed away while twice the group was replaced proves nothing.
        let known = shadow.distance(self.id, clock).is_some_and(|distance| distance < 2 * self.charged());
        (if known { shadow.level.up() } else { Level::default() }, true)
    }

    /// The shadow for a page of `level` that is being evicted.
    pub(crate) fn shadow(&self, level: Level) -> u64 {
        Shadow::new(level, self.id, self.counters.evictions.load(Ordering::Relaxed)).bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_limit() {
        let group = GroupState::new(0, "a", Some(2), 100).unwrap();
        assert!(group.try_charge() && group.try_charge() && !group.try_charge());
        group.uncharge(1);
        assert!(group.try_charge());
        assert_eq!((group.charged(), group.peak()), (2, 2));
    }

    #[test]
    fn a_page_rises_only_if_it_comes_back_soon() {
        let group = GroupState::new(7, "a", None, 10).unwrap();
        for _ in 0..10 {
            assert!(group.try_charge());
        }
        assert_eq!(group.welcome(0), (Level(0), false));
        let shadow = group.shadow(Level(0));
        group.counters.evictions.fetch_add(19, Ordering::Relaxed);
        assert_eq!(group.welcome(shadow), (Level(1), true));
        group.counters.evictions.fetch_add(1, Ordering::Relaxed);
        assert_eq!(group.welcome(shadow), (Level(0), true));
    }
}
