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
use crate::group::parts::Parts;
use crate::group::reserve::{Shortage, beside_reserve};
use crate::group::stocks::{batch_for, stocks_max};
use crate::group::swapped::Swapped;
use crate::group::unclean::UncleanCount;
use crate::group::walk::Walk;
use crate::lru::GroupLists;
use crate::lru::admission::{Arrival, History};
use crate::lru::clock::{Clock, Left, Now, SHADOW_STAMP_BITS, UNITS_MAX};
use crate::lru::rank::{Origin, Rank};
use crate::lru::shadow::Shadow;
use crate::lru::stripe::Stripe;
use crate::lru::window::AT_ONCE;
use crate::stats::Counters;
use crate::stats::hits::HitsList;

/// What a group takes, rounded up. Charged to the budget until the group's last page is gone.
pub(crate) const GROUP_BYTES: u64 = 2 << 10;
const UNLIMITED: u64 = 1 << 63;
/// The group is within its limit, and remains so until the limit changes.
const WITHIN: u64 = u64::MAX;
/// A page counts as new if it comes back after more loads than this many times the group's size. It
/// keeps its mean interval, and the absence doesn't change the mean.
///
/// Suppose that the mean were forgotten. Then the page's next interval would be its whole history.
/// Of many pages that are seldom used, a few are used again soon by chance. These would win places
/// in main from pages that are used more often. Suppose on the other hand that the absence counted.
/// Then pages of an earlier phase that are used often again would stay out of main for long.
const FORGOTTEN: u64 = 16;
const _: () = assert!(FORGOTTEN * UNITS_MAX < 1 << (SHADOW_STAMP_BITS - 1), "`Now::long_ago` is longer ago");

/// Everything about a group. Sizes are in pages.
#[derive(Debug)]
pub(crate) struct GroupState {
    pub(crate) id: u32,
    pub(crate) name: String,
    /// The limit. With the [`UNLIMITED`] bit set, the limit is the whole budget. The limit and the
    /// bit are in one word, so that a change of the budget can't overwrite a limit that is set
    /// concurrently.
    max: AtomicU64,
    /// Holds the limit if it has changed and the group may still be above it; otherwise [`WITHIN`].
    /// Seldom written, unlike `charged`.
    to_shrink_to: AtomicU64,
    /// Charged pages, and charges in CPUs' stocks (`stocks`).
    charged: CachePadded<AtomicU64>,
    /// The part of `charged` that is charged for metadata: indexes of spaces, and parts of their
    /// page maps, both rounded up to pages.
    metadata: AtomicU64,
    /// Parts of page maps that are charged to the group.
    pub(crate) parts: Parts,
    peak: AtomicU64,
    /// Counts evictions: the time of the policy and of readahead.
    clock: Clock,
    pub(crate) lists: GroupLists,
    pub(crate) counters: Counters,
    /// The hits of the group's open handles, and of mappings.
    pub(crate) hits: HitsList,
    pub(crate) unclean: UncleanCount,
    pub(crate) dirt: GroupDirt,
    /// The outcome of reclaim's recent looks at the group's pages.
    pub(crate) walk: Walk,
    /// Charged pages that are on no list because they belong to spaces, or are metadata.
    /// `anonymous` counts all such pages so far, and `anonymous_gone` those that were uncharged or
    /// listed since. Counted per thread, because every first touch counts a page.
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
            to_shrink_to: AtomicU64::new(WITHIN),
            charged: CachePadded::new(AtomicU64::new(0)),
            metadata: AtomicU64::new(0),
            parts: Parts::default(),
            peak: AtomicU64::new(0),
            clock: Clock::new(max.unwrap_or(budget)),
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
        self.limit_changed();
    }

    /// Notes that the budget now has `pages` pages.
    pub(crate) fn budget_changed(&self, pages: u64) {
        let change = |max| (max & UNLIMITED != 0).then_some(pages | UNLIMITED);
        let _ = self.max.fetch_update(Ordering::Relaxed, Ordering::Relaxed, change);
        self.limit_changed();
    }

    fn limit_changed(&self) {
        loop {
            // Two threads, A and B, may change the limit at the same time. Suppose that B's store
            // to `to_shrink_to` is the later one. Then A's first fence comes before B's second one;
            // otherwise B's store would have been the earlier one. A has stored its limit in `max`
            // before its first fence. So when B compares below, it sees A's limit, or a newer one.
            fence(Ordering::SeqCst);
            let max = self.max();
            self.to_shrink_to.store(max, Ordering::Relaxed);
            fence(Ordering::SeqCst); // Pairs with the charge in `try_charge`, too.
            if self.max() == max {
                return;
            }
        }
    }

    /// Returns whether the group exceeds its limit because the limit was lowered. Usually reads no
    /// counter that other threads write often.
    pub(crate) fn has_to_shrink(&self) -> bool {
        // Relaxed: if a lowered limit is seen a little late, a CPU's stock keeps a charge, which is
        // harmless.
        let limit = self.to_shrink_to.load(Ordering::Relaxed);
        if limit == WITHIN {
            return false;
        }
        let is_above = self.charged() > limit;
        if !is_above {
            // Fails if the limit has changed meanwhile. If it succeeds, the group stays within the
            // limit, because `try_charge` never exceeds a limit.
            let _ = self.to_shrink_to.compare_exchange(limit, WITHIN, Ordering::Relaxed, Ordering::Relaxed);
        }
        is_above
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

    /// Returns approximately the charged pages that are metadata.
    pub(crate) fn metadata(&self) -> u64 {
        self.metadata.load(Ordering::Relaxed)
    }

    /// Returns approximately how many pages the group may have in memory beside its metadata, if
    /// the whole budget has `budget` pages.
    pub(crate) fn room_for_pages(&self, budget: u64) -> u64 {
        self.max().min(budget).saturating_sub(self.metadata())
    }

    /// Returns approximately what is charged for pages, including charges in CPUs' stocks.
    pub(crate) fn charged_for_pages(&self) -> u64 {
        self.charged().saturating_sub(self.metadata())
    }

    pub(crate) fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Returns the largest number of pages that were ever charged. `pages` is the present number.
    /// The caller passes it because a page that takes its charge out of a stock doesn't raise the
    /// peak itself.
    pub(crate) fn peak_of(&self, pages: u64) -> u64 {
        self.peak.fetch_max(pages, Ordering::Relaxed).max(pages)
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

    /// Returns how many charged pages are on no list because they are pages of spaces, or metadata.
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
        self.is_abandoned() && self.charged() == 0 && self.swapped.pages() == 0 && self.unclean.exact() == 0
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
    /// reserve, because the stocks serve as a reserve: each CPU that reclaims has a batch in stock
    /// afterwards, and nothing is evicted while charges are in stock.
    pub(crate) fn shortage(&self) -> Shortage {
        if self.has_stocks() {
            return Shortage::None;
        }
        let max = self.max();
        Shortage::of(max, max.saturating_sub(self.charged()))
    }

    /// Returns how many pages may be charged before the reserve is short; `u64::MAX` if the group
    /// has stocks.
    pub(crate) fn beside_reserve(&self) -> u64 {
        if self.has_stocks() {
            return u64::MAX;
        }
        let max = self.max();
        beside_reserve(max, max.saturating_sub(self.charged()))
    }

    /// Creates the arrival of a file's page, given the shadow that the page left behind. If
    /// `in_sequence` is set, a reader has advised that it reads in sequence. The page then counts
    /// as new, without an interval.
    pub(crate) fn arrival(&self, owner: u32, shadow: u64, in_sequence: bool) -> Arrival {
        let history = self.history(shadow);
        let history =
            if in_sequence { History { is_refault: history.is_refault, ..History::default() } } else { history };
        Arrival::of_file(self.id, owner, history)
    }

    /// Returns the history of a page that comes back, given the shadow in its word.
    fn history(&self, word: u64) -> History {
        match Shadow::of_word(word, self.id) {
            None => History::default(),
            Some(shadow) => {
                History { is_refault: true, ..shadow.map_or_else(History::default, |it| self.history_of(it)) }
            }
        }
    }

    /// Returns the history of a page that comes back from swap, given its slot's note.
    pub(crate) fn history_of_note(&self, note: swap::Note) -> History {
        self.history_of(Shadow::of_note(note))
    }

    /// Returns whether two pages, given the notes of their slots, left the group at about the same
    /// time.
    pub(crate) fn left_together(&self, notes: [swap::Note; 2]) -> bool {
        let [one, other] = notes.map(Shadow::of_note);
        notes[0].group() == notes[1].group() && one.left_with(other, self.recent_now())
    }

    fn history_of(&self, shadow: Shadow) -> History {
        let now = self.recent_now();
        let (age, left, long) = (shadow.age(now), shadow.left_since(now), FORGOTTEN * now.size);
        // The stamp of a page that was away for very long has wrapped, so its age may seem short.
        // The number of pages that have left since shows this. If the age is right, at most `age`
        // pages were loaded since. So at most that many pages have left, plus those that were in
        // memory before. (If the group was many times larger when the page left, a page that comes
        // back soon counts as new, too.)
        if age > long || left > 2 * long {
            return History { interval: shadow.interval, is_refault: true, ..History::default() };
        }
        let origin = match shadow.from {
            Left::Window if left <= now.size / AT_ONCE => Origin::AtOnceToWindow,
            Left::Window if left <= now.size / 2 => Origin::SoonToWindow,
            Left::Main if left <= now.size / 4 => Origin::SoonToMain,
            _ => Origin::Back,
        };
        History { interval: shadow.interval.after_refault(age, now.chance(age)), origin, is_refault: true }
    }

    /// Returns the present time on the group's clock. Reads counters that all of the group's
    /// threads write to, so callers read the time only once for each batch of pages.
    pub(crate) fn now(&self) -> Now {
        self.clock.now(self.charged_for_pages())
    }

    /// Returns the time for a pass over a stripe. If the group has a recent time
    /// ([`GroupLists::recent_time_of`]), returns the time of the stripe's last batch, unless the
    /// stripe has added evictions to the group's clock since that batch. Otherwise fits the clock's
    /// unit to the group's size, reads the clock, and notes the time for the stripe.
    pub(crate) fn time_of_pass(&self, stripe: &Stripe) -> Now {
        if let Some(last) = self.lists.recent_time_of(stripe)
            && !stripe.needs_time()
        {
            return last;
        }
        let now = self.fitted_now();
        stripe.note_time(now);
        now
    }

    pub(crate) fn fitted_now(&self) -> Now {
        let size = self.charged_for_pages();
        self.clock.fit(size);
        self.clock.now(size)
    }

    /// Returns the time on the group's clock, for a page that comes back alone rather than in a
    /// batch. In a large group with several stripes, returns the time that was noted with the last
    /// batch of this CPU's stripe: reading the clock for each page would take the clock's cache
    /// line from other CPUs. In other groups, reads the clock.
    fn recent_now(&self) -> Now {
        self.lists.recent_time().unwrap_or_else(|| self.now())
    }

    /// Counts evictions from the window and from main.
    pub(crate) fn evicted(&self, window: u64, main: u64) {
        let [to_window, to_main] = self.lists.collect([window, main]);
        self.clock.evicted(to_window, to_main);
        self.counters.evictions.add(window + main);
    }

    /// Returns the shadow of a page that is evicted at the time `now`, for its word. `is_in_vain`:
    /// the page was read ahead, and hasn't been used since.
    pub(crate) fn shadow(&self, rank: Rank, is_in_vain: bool, now: Now) -> u64 {
        shadow_of(rank, is_in_vain, now).to_word(self.id)
    }

    /// Returns the note for a page that is swapped out at the time `now`. See also
    /// [`shadow`](Self::shadow).
    pub(crate) fn note(&self, rank: Rank, is_in_vain: bool, now: Now) -> swap::Note {
        shadow_of(rank, is_in_vain, now).to_note(self.id)
    }
}

/// A page that was read ahead in vain counts as new when it comes back: it isn't known when the
/// page was last used.
fn shadow_of(rank: Rank, is_in_vain: bool, now: Now) -> Shadow {
    let age = if is_in_vain { now.long_ago() } else { rank.age(now) };
    Shadow::new(rank.interval(), rank.leaves(), age, now)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::lru::interval::Interval;
    use crate::lru::rank::Kind;

    #[test]
    fn the_limit_is_the_limit() {
        let group = GroupState::new(0, "a", Some(2), 100);
        assert_eq!([1, 3, 1].map(|pages| group.try_charge(pages, 0)), [1, 1, 0]);
        group.uncharge(1);
        assert_eq!(group.try_charge(1, 0), 1);
        assert_eq!((group.charged(), group.peak()), (2, 2));
    }

    #[test]
    fn a_group_has_to_shrink_until_it_is_within_a_lowered_limit() {
        let group = GroupState::new(0, "a", Some(4), 100);
        assert_eq!(group.try_charge(4, 0), 4);
        assert!(!group.has_to_shrink());
        group.set_max(2);
        assert!(group.has_to_shrink());
        group.uncharge(1);
        assert!(group.has_to_shrink(), "3 of 2");
        group.uncharge(1);
        assert_eq!([(); 2].map(|()| group.has_to_shrink()), [false; 2]);
        let all = GroupState::new(0, "b", None, 4);
        assert_eq!(all.try_charge(4, 0), 4);
        all.budget_changed(3);
        assert!(all.has_to_shrink());
        all.budget_changed(4);
        assert!(!all.has_to_shrink());
    }

    #[test]
    fn a_page_comes_back_with_its_history() {
        let group = GroupState::new(7, "a", None, 100);
        assert_eq!((group.try_charge(98, 2), group.peak()), (100, 98));
        assert_eq!(group.history(0), History::default());
        let rank = Rank::young(Origin::New, Interval::UNKNOWN).used_at(group.now());
        let of = |rank: Rank| group.history(group.shadow(rank, false, group.now()));
        let [window, main] = [rank.on(Kind::Window), rank.on(Kind::Main)];
        let shadows = [window, main].map(|rank| group.shadow(rank, false, group.now()));
        assert_eq!(
            of(window),
            History { interval: Interval::rounded(1, 0), origin: Origin::AtOnceToWindow, is_refault: true }
        );
        group.evicted(20, 30);
        let history = shadows.map(|shadow| group.history(shadow));
        assert!(
            history.iter().all(|it| it.interval.loads().unwrap().abs_diff(100) <= 8),
            "a first interval counts twice"
        );
        assert_eq!(history.map(|it| it.origin), [Origin::SoonToWindow, Origin::Back]);
        group.evicted(1600, 0);
        let forgotten = History { is_refault: true, ..History::default() };
        assert_eq!(shadows.map(|shadow| group.history(shadow)), [forgotten; 2]);
        assert_eq!(GroupState::new(8, "b", None, 100).history(shadows[0]), forgotten, "another group's");
    }

    #[test]
    fn a_page_that_was_away_for_long_is_new_but_keeps_its_interval() {
        let group = GroupState::new(7, "a", None, 100);
        assert_eq!(group.try_charge(100, 0), 100);
        let interval = Interval::rounded(800, 0);
        let rank = Rank::young(Origin::Back, interval).used_at(group.now()).settled(Kind::Window);
        let shadow = group.shadow(rank, false, group.now());
        group.evicted(0, FORGOTTEN * 100 + 100);
        assert_eq!(group.history(shadow), History { interval, origin: Origin::New, is_refault: true });
    }

    /// A regression: the load of a page that was read ahead in vain counted as a use. So the page
    /// seemed to be used again soon when it came back, and won a place in main.
    #[test]
    fn a_page_that_was_read_ahead_in_vain_is_new_when_it_comes_back() {
        let group = GroupState::new(7, "a", None, 100);
        assert_eq!(group.try_charge(100, 0), 100);
        let interval = Interval::rounded(800, 0);
        let rank = Rank::young(Origin::Back, interval).used_at(group.now()).settled(Kind::Window);
        let shadow = group.shadow(rank, true, group.now());
        for loads in [1, 10_000] {
            group.evicted(loads, 0);
            assert_eq!(group.history(shadow), History { interval, origin: Origin::New, is_refault: true });
        }
    }

    /// A regression: the stamp of a page that was away for very long had wrapped. So the page
    /// seemed to come back after a few loads, and won a place in main.
    #[test]
    fn a_page_that_was_away_for_longer_than_stamps_tell_is_new_too() {
        for loads in [30_000, 32_500, 33_000, 60_000, 65_000] {
            for kind in [Kind::Window, Kind::Main] {
                let group = GroupState::new(7, "a", None, 100);
                assert_eq!(group.try_charge(100, 0), 100);
                let interval = Interval::rounded(800, 0);
                let rank = Rank::young(Origin::Back, interval).used_at(group.now()).settled(kind);
                let shadow = group.shadow(rank, false, group.now());
                let (window, main) = if kind == Kind::Main { (0, loads) } else { (loads, 0) };
                group.evicted(window, main);
                let new = History { interval, origin: Origin::New, is_refault: true };
                assert_eq!(group.history(shadow), new, "{loads} loads, {kind:?}");
            }
        }
    }
}
