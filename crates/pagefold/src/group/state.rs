//! A memory group: a tenant's limit, what is charged to it, its lists, its counters.
//!
//! - G1. A page is charged before its frame is taken, and uncharged after its frame is freed:
//!   `charged ≤ max` at every moment, except after the limit was lowered.
//! - G2. Only the thread that has a page's frame isolated changes the page's group (`recharge`). So
//!   a thread that isolates a frame may take it off the group's lists without looking at the group
//!   again.

use sync::atomic::{AtomicBool, AtomicU64, Ordering, fence};
use sync::{CachePadded, ThreadCounter};

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

/// What a group takes, rounded up: charged until its last page is gone.
pub(crate) const GROUP_BYTES: u64 = 2 << 10;
const UNLIMITED: u64 = 1 << 63;

/// Everything about a group. Sizes are in pages.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The limit, with [`UNLIMITED`] if it is the whole budget, whatever that is: in one word, so
    /// that a budget that changes can't undo a limit that is being set.
    max: AtomicU64,
    /// Pages, and what CPUs have in stock (`stocks`).
    charged: CachePadded<AtomicU64>,
    /// Of these, what isn't pages: indexes of spaces, rounded up.
    metadata: AtomicU64,
    peak: AtomicU64,
    /// Pages evicted: what shadows and read-ahead tell the time by.
    clock: CachePadded<AtomicU64>,
    pub(crate) lists: GroupLists,
    pub(crate) counters: Counters,
    /// Of its open handles, and of mappings.
    pub(crate) hits: HitsList,
    pub(crate) unclean: UncleanCount,
    pub(crate) dirt: GroupDirt,
    /// What reclaim's looks at the group's pages came to lately.
    pub(crate) walk: Walk,
    /// Pages of spaces that were charged, and uncharged. By thread, as each first touch counts.
    anonymous: ThreadCounter,
    anonymous_gone: ThreadCounter,
    /// Pages of the group in swap slots.
    pub(crate) swapped: Swapped,
    /// No handle is left: the group goes when its last page does.
    abandoned: AtomicBool,
}

/// What a group without pages takes, besides its name: no more than is worth a page.
const _: () = assert!(size_of::<GroupState>() as u64 <= GROUP_BYTES, "groups are cheap");

impl GroupState {
    /// A group with a limit of `max` pages; `None`: of the whole budget, which has `budget` pages
    /// now.
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
        }
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

    /// Pages, and what CPUs have in stock.
    pub(crate) fn charged(&self) -> u64 {
        self.charged.load(Ordering::Relaxed)
    }

    /// Counts `pages` of the charged ones as metadata. All accesses are Relaxed: reclaim's policy
    /// goes by it.
    pub(crate) fn add_metadata(&self, pages: u64) {
        self.metadata.fetch_add(pages, Ordering::Relaxed);
    }

    pub(crate) fn subtract_metadata(&self, pages: u64) {
        self.metadata.fetch_sub(pages, Ordering::Relaxed);
    }

    /// What is charged for pages, about, and what CPUs have in stock.
    pub(crate) fn charged_for_pages(&self) -> u64 {
        self.charged().saturating_sub(self.metadata.load(Ordering::Relaxed))
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Charges up to `pages` pages, and `stock` more for pages to come, as far as the limit allows
    /// it. Returns how many it charged. With `stock`, it returns 0 after losing a race when no more
    /// is left than stocks may hold: a retry would keep the line from every other thread, those
    /// that uncharge included, and the caller can look for charges in stock. Without `stock` it
    /// retries.
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
        // Either this sees a limit that was lowered meanwhile, or the thread that lowered it sees
        // this charge: SeqCst, with the charge itself and the fence in `set_max`. (A fence here as
        // well would cost a miss 20 ns.)
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

    /// Charged pages that are a space's, which no list has.
    pub(crate) fn anonymous(&self) -> u64 {
        let gone = self.anonymous_gone.sum();
        self.anonymous.sum().saturating_sub(gone)
    }

    /// A page that was charged is a space's.
    pub(crate) fn becomes_anonymous(&self) {
        self.anonymous.add(1);
    }

    /// A page of a space is on the group's lists from now on.
    pub(crate) fn becomes_listed(&self) {
        self.anonymous_gone(1);
    }

    /// Pages of spaces were uncharged.
    pub(crate) fn anonymous_gone(&self, pages: u64) {
        self.anonymous_gone.add(pages);
    }

    pub(crate) fn uncharge(&self, pages: u64) {
        let before = self.charged.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "more uncharged than charged");
    }

    /// Whether no handle of the group is left.
    pub(crate) fn is_abandoned(&self) -> bool {
        self.abandoned.load(Ordering::Relaxed)
    }

    /// Whether the group has neither a handle nor a page: it can be forgotten.
    pub(crate) fn is_over(&self) -> bool {
        self.is_abandoned() && self.charged() == 0 && self.swapped.pages() == 0
    }

    pub(crate) fn abandon(&self) {
        self.abandoned.store(true, Ordering::Relaxed);
    }

    /// Whether CPUs have charges of the group in stock.
    pub(crate) fn has_stocks(&self) -> bool {
        self.stock_batch() > 0
    }

    /// Charges that go to a stock in one go; 0 if there are no stocks for the group.
    pub(crate) fn stock_batch(&self) -> u64 {
        batch_for(self.max())
    }

    /// How short the group is of free pages. A group whose charges CPUs have in stock keeps no
    /// reserve besides: each CPU that reclaims has a batch in stock afterwards, and nothing is
    /// evicted while there are such.
    pub(crate) fn shortage(&self) -> Shortage {
        if self.has_stocks() {
            return Shortage::None;
        }
        let max = self.max();
        Shortage::of(max, max.saturating_sub(self.charged()))
    }

    /// Pages that may be charged without the reserve's becoming short; not less than that, if CPUs
    /// have charges in stock.
    pub(crate) fn beside_reserve(&self) -> u64 {
        if self.has_stocks() {
            return u64::MAX;
        }
        let max = self.max();
        beside_reserve(max, max.saturating_sub(self.charged()))
    }

    /// The arrival of a file's page that left `shadow` behind.
    pub(crate) fn arrival(&self, owner: u32, shadow: u64, in_sequence: bool) -> Arrival {
        let History { level, is_refault } = self.welcome(shadow);
        let level = if in_sequence { Level::default() } else { level };
        Arrival::of_file(self.id, owner, History { level, is_refault })
    }

    /// What `shadow` says of a page that left it behind, and comes back.
    fn welcome(&self, shadow: u64) -> History {
        let Some(shadow) = Shadow::from_bits(shadow) else { return History::default() };
        let clock = self.clock.load(Ordering::Relaxed);
        // A page that stayed away while twice the group was replaced proves nothing.
        let known = shadow.distance(self.id, clock).is_some_and(|distance| distance < 2 * self.charged());
        History { level: if known { shadow.level.up() } else { Level::default() }, is_refault: true }
    }

    /// The clock.
    pub(crate) fn evicted_so_far(&self) -> u64 {
        self.clock.load(Ordering::Relaxed)
    }

    /// Counts evictions, and lets the clock go on.
    pub(crate) fn evicted(&self, pages: u64) {
        if pages > 0 {
            // Relaxed: an approximation of how much was replaced.
            self.clock.fetch_add(pages, Ordering::Relaxed);
            self.counters.evictions.add(pages);
        }
    }

    /// As [`welcome`](Self::welcome), of a page that was swapped out, by what its slot's note says.
    pub(crate) fn welcome_back(&self, note: swap::Note) -> History {
        self.welcome(Shadow::of_note(note, self.clock.load(Ordering::Relaxed)).bits())
    }

    /// What to note of a page of `level` that is being swapped out.
    pub(crate) fn note(&self, level: Level) -> swap::Note {
        Shadow::new(level, self.id, self.clock.load(Ordering::Relaxed)).to_note(self.id)
    }

    /// The shadow for a page of `level` that is being evicted.
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
