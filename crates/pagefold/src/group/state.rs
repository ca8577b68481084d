//! A memory group: a tenant's limit, charges, lists and counters.
//!
//! - G1. A page is charged before its frame is taken, and uncharged after its frame is freed:
//!   `charged ≤ max` at every moment, except after the limit was lowered.
//! - G2. Only the thread that has a page's frame isolated changes the page's group (`recharge`). So
//!   a thread that has isolated a frame may unlink it from the group's lists without checking the
//!   group again.

use std::any::Any;

use sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sync::lock::OnceCell;
use sync::{CachePadded, ThreadCounter, Weak};

use crate::group::dirt::GroupDirt;
use crate::group::reserve::{Shortage, beside_reserve};
use crate::group::stocks::{batch_for, stocks_max};
use crate::group::swapped::Swapped;
use crate::group::unclean::UncleanCount;
use crate::group::walk::Walk;
use crate::lru::GroupLists;
use crate::lru::admission::{Arrival, History};
use crate::lru::shadow::{Level, Shadow};
use crate::stats::Counters;
use crate::stats::hits::HitsList;

/// What a group takes, rounded up. Charged to the budget until the group's last page is gone.
pub(crate) const GROUP_BYTES: u64 = 2 << 10;
const UNLIMITED: u64 = 1 << 63;

/// Everything about a group. Sizes are in pages.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The limit. With the [`UNLIMITED`] bit set, the limit is the whole budget. Both are in one
    /// word, so that a change of the budget can't overwrite a limit that is set concurrently.
    max: AtomicU64,
    /// Charged pages, and charges in CPUs' stocks (`stocks`).
    charged: CachePadded<AtomicU64>,
    /// The part of `charged` that isn't pages: indexes of spaces, rounded up.
    metadata: AtomicU64,
    peak: AtomicU64,
    /// The number of evicted pages: the clock of shadows and of readahead.
    clock: CachePadded<AtomicU64>,
    pub(crate) lists: GroupLists,
    pub(crate) counters: Counters,
    /// The hits of the group's open handles, and of mappings.
    pub(crate) hits: HitsList,
    pub(crate) unclean: UncleanCount,
    pub(crate) dirt: GroupDirt,
    /// The outcome of reclaim's recent looks at the group's pages.
    pub(crate) walk: Walk,
    /// Anonymous pages that were charged, and that were uncharged. Counted per thread, because
    /// every first touch counts one.
    anonymous: ThreadCounter,
    anonymous_gone: ThreadCounter,
    /// Pages of the group in swap slots.
    pub(crate) swapped: Swapped,
    /// No handle is left: the group is forgotten with its last page.
    abandoned: AtomicBool,
    /// The group's handle, of a type that isn't known here (`manager::group_handle`).
    pub(crate) handle: OnceCell<Weak<dyn Any + Send + Sync>>,
}

/// A group without pages takes less than a page, besides its name.
const _: () = assert!(size_of::<GroupState>() as u64 <= GROUP_BYTES, "groups are cheap");

impl GroupState {
    /// Creates a group with a limit of `max` pages. With `None`, the limit is the whole budget, now
    /// `budget` pages.
    pub(crate) fn new(id: u32, name: &str, max: Option<u64>, budget: u64) -> Self {
        Self {
            id,
            name: name.to_owned(),
            max: AtomicU64::new(max.unwrap_or(budget | UNLIMITED)),
            charged: CachePadded::new(AtomicU64::new(0)),
            metadata: AtomicU64::new(0),
            peak: AtomicU64::new(0),
            clock: CachePadded::new(AtomicU64::new(0)),
            lists: GroupLists::new(id),
            counters: Counters::default(),
            hits: HitsList::default(),
            unclean: UncleanCount::default(),
            dirt: GroupDirt::default(),
            walk: Walk::default(),
            anonymous: ThreadCounter::default(),
            anonymous_gone: ThreadCounter::default(),
            swapped: Swapped::new(),
            abandoned: AtomicBool::new(false),
            handle: OnceCell::new(),
        }
    }

    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed) & !UNLIMITED
    }

    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
        fence(Ordering::SeqCst); // Pairs with the charge in `try_charge`.
    }

    /// Notes that the budget now has `pages` pages.
    pub(crate) fn budget_changed(&self, pages: u64) {
        let change = |max| (max & UNLIMITED != 0).then_some(pages | UNLIMITED);
        let _ = self.max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        fence(Ordering::SeqCst);
    }

    /// Returns the charged pages, including charges in CPUs' stocks.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Counts `pages` of the charged pages as metadata. All accesses are Relaxed: only reclaim's
    /// policy depends on the count.
    pub(crate) fn add_metadata(&self, pages: u64) {
        self.metadata.fetch_add(pages, Ordering::Relaxed);
    }

    pub(crate) fn subtract_metadata(&self, pages: u64) {
        self.metadata.fetch_sub(pages, Ordering::Relaxed);
    }

    /// Returns approximately what is charged for pages, including charges in CPUs' stocks.
    pub(crate) fn charged_for_pages(&self) -> u64 {
        self.charged().saturating_sub(self.metadata.load(Ordering::Relaxed))
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Charges up to `pages` pages, and up to `stock` more for later pages, as far as the limit
    /// allows. Returns the number of charges.
    ///
    /// Retries if another thread changed the counter meanwhile, with one exception: with `stock`,
    /// returns 0 if the rest of the limit is smaller than what CPUs' stocks may hold. The caller
    /// can look for charges in stock then. A retry would take the counter's cache line from all
    /// other threads, including those that uncharge.
    pub(crate) fn try_charge(&self, pages: u64, stock: u64) -> u64 {
        let (max, wanted) = (self.max(), pages + stock);
        let mut before = self.charged();
        let got = loop {
            let got = max.saturating_sub(before).min(wanted);
            if got == 0 {
                return 0;
            }
            match self.charged.compare_exchange(before, before + got, Ordering::SeqCst, Ordering::Relaxed) {
                Ok(_) => break got,
                Err(now) if now > before && max.saturating_sub(now) < stocks_max(stock) => return 0,
                Err(now) => before = now,
            }
        };
        // If another thread lowers the limit meanwhile, either this load sees the new limit, or
        // that thread sees this charge: the charge and this load are SeqCst, and `set_max` has a
        // fence. (A fence here as well would cost each miss 20 ns.)
        if before + got > self.max.load(Ordering::SeqCst) & !UNLIMITED {
            self.uncharge(got);
            return 0;
        }
        let peak = before + got.min(pages);
        if peak > self.peak() {
            self.peak.fetch_max(peak, Ordering::Relaxed);
        }
        got
    }

    /// Returns the number of charged pages of spaces, which are on no list.
    pub(crate) fn anonymous(&self) -> u64 {
        let gone = self.anonymous_gone.sum();
        self.anonymous.sum().saturating_sub(gone)
    }

    /// Counts a charged page as a space's page on no list.
    pub(crate) fn becomes_anonymous(&self) {
        self.anonymous.add(1);
    }

    /// Notes that a page of a space goes on the group's lists.
    pub(crate) fn becomes_listed(&self) {
        self.anonymous_gone(1);
    }

    /// Notes that pages of spaces on no list were uncharged.
    pub(crate) fn anonymous_gone(&self, pages: u64) {
        self.anonymous_gone.add(pages);
    }

    pub(crate) fn uncharge(&self, pages: u64) {
        let before = self.charged.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "more uncharged than charged");
    }

    /// Returns whether no handle of the group is left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Returns whether the group has neither a handle nor a page and so can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        self.is_abandoned() && self.charged() == 0 && self.swapped.pages() == 0
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Returns whether CPUs keep stocks of charges for the group.
    pub(crate) fn has_stocks(&self) -> bool {
        self.stock_batch() > 0
    }

    /// Returns how many charges go to a stock at a time; 0 if the group has no stocks.
    pub(crate) fn stock_batch(&self) -> u64 {
        batch_for(self.max())
    }

    /// Returns how short the group is of free pages. A group with stocks of charges keeps no
    /// reserve, because the stocks serve as one: each CPU that reclaims has a batch in stock
    /// afterwards, and nothing is evicted while charges are in stock.
    pub(crate) fn shortage(&self) -> Shortage {
        if self.has_stocks() {
            return Shortage::None;
        }
        let max = self.max();
        Shortage::of(max, max.saturating_sub(self.charged()))
    }

    /// Returns how many pages may be charged before the reserve is short. Without bound if the
    /// group has stocks.
    pub(crate) fn beside_reserve(&self) -> u64 {
        if self.has_stocks() {
            return u64::MAX;
        }
        let max = self.max();
        beside_reserve(max, max.saturating_sub(self.charged()))
    }

    /// Creates the arrival of a file's page, given the shadow that the page left behind.
    pub(crate) fn arrival(&self, owner: u32, shadow: u64, in_sequence: bool) -> Arrival {
        let History { level, is_refault } = self.welcome(shadow);
        let level = if in_sequence { Level::default() } else { level };
        Arrival::of_file(self.id, owner, History { level, is_refault })
    }

    /// Returns the history of a page that comes back, given its shadow.
    fn welcome(&self, shadow: u64) -> History {
        let Some(shadow) = Shadow::from_bits(shadow) else { return History::default() };
        let clock = self.clock.load(Ordering::Relaxed);
        // A page that stayed away while twice the group's size was evicted proves nothing.
        let known = shadow.distance(self.id, clock).is_some_and(|distance| distance < 2 * self.charged());
        History { level: if known { shadow.level.up() } else { Level::default() }, is_refault: true }
    }

    /// Returns the group's clock: the number of pages evicted so far.
    pub(crate) fn evicted_so_far(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Counts evictions and advances the clock.
    pub(crate) fn evicted(&self, pages: u64) {
        if pages > 0 {
            // Relaxed: an approximation of how much was replaced.
            self.clock.fetch_add(pages, Ordering::Relaxed);
            self.counters.evictions.add(pages);
        }
    }

    /// Returns the history of a page that comes back from swap, given its slot's note.
    pub(crate) fn welcome_back(&self, note: swap::Note) -> History {
        self.welcome(Shadow::of_note(note, self.clock.load(Ordering::Relaxed)).bits())
    }

    /// Returns the note for a page of `level` that is being swapped out.
    pub(crate) fn note(&self, level: Level) -> swap::Note {
        Shadow::new(level, self.id, self.clock.load(Ordering::Relaxed)).to_note(self.id)
    }

    /// Returns the shadow of a page of `level` that is being evicted.
    pub(crate) fn shadow(&self, level: Level) -> u64 {
        Shadow::new(level, self.id, self.clock.load(Ordering::Relaxed)).bits()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_limit_is_the_limit() {
        let group = GroupState::new(0, "a", Some(2), 100);
        assert_eq!([1, 3, 1].map(|pages| group.try_charge(pages, 0)), [1, 1, 0]);
        group.uncharge(1);
        assert_eq!(group.try_charge(1, 0), 1);
        assert_eq!((group.charged(), group.peak()), (2, 2));
    }

    #[test]
    fn a_page_rises_only_if_it_comes_back_soon() {
        let group = GroupState::new(7, "a", None, 10);
        assert_eq!((group.try_charge(8, 2), group.peak()), (10, 8));
        assert_eq!(group.welcome(0), History::default());
        let shadow = group.shadow(Level(0));
        group.evicted(19);
        assert_eq!(group.welcome(shadow), History { level: Level(1), is_refault: true });
        group.evicted(1);
        assert_eq!(group.welcome(shadow), History { level: Level(0), is_refault: true });
    }
}
