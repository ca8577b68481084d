//! Charging pages to groups, files' and spaces' alike, without every CPU writing to the group's
//! counter for every page.
//!
//! Each CPU has *stocks* of charges, of one group each: pages are charged out of them and uncharged
//! into them, and the group's counter is changed for a batch at a time. What is in stock counts as
//! charged, so a limit holds at every moment. Charges in stock serve no page, so all stocks of a
//! group together hold no more than an eighth of its limit, and the group's statistics leave them
//! out. A thread takes what other CPUs have in stock before it evicts a page: when the limit is
//! reached, or when another thread has charged first and no more is left than stocks may hold. It
//! looks at a few CPUs each time, in turn; on a machine of few CPUs that is all of them. Small
//! groups have no stocks.
//!
//! A stock is one word: the group's number plus one, and the number of charges. Any thread may
//! empty it. A group's stock on a CPU is the one at the group's number, modulo the stocks of a CPU;
//! a group that finds another group's charges there displaces them.
//!
//! - S1. Charges in stock are in their group's `charged`. So a group that has some isn't forgotten,
//!   and its number isn't another's (`group::table`).
//!
//! `Relaxed` throughout: a charge is a number; what orders the page itself is elsewhere.

use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::{Arc, PerCpu};

use crate::group::GROUP_BYTES;
use crate::group::state::GroupState;
use crate::manager::Manager;

/// Charges that go to a stock in one go, in groups that are large enough.
const BATCH_MAX: u64 = 32;
/// A stock has up to so many batches.
const BATCHES: u64 = 2;
/// A batch for each CPU is no larger a part of a group's limit.
const GROUP_SHARE: u64 = 16;
/// Stocks of a CPU: as many as fit into a line, with what else is there.
const STOCKS: usize = 7;
/// CPUs whose stocks are looked at before pages are evicted, at most.
const LOOKED_AT: usize = 8;

/// What came of charging.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Charged {
    /// Pages that are charged now: none if the limit is reached.
    pub(crate) pages: u64,
    /// The group's counter was changed for it: about once in a batch.
    pub(crate) by_counter: bool,
}

/// A CPU's stocks.
#[derive(Debug, Default)]
struct Own {
    stocks: [AtomicU64; STOCKS],
    /// Whose stocks to look at next.
    others: AtomicUsize,
}

impl Own {
    fn of(&self, group: u32) -> &AtomicU64 {
        &self.stocks[group as usize % STOCKS]
    }
}

/// Of all CPUs.
#[derive(Debug)]
pub(crate) struct ChargeStocks {
    cpus: PerCpu<Own>,
}

/// What is in a stock.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Stock {
    pub(crate) group: u32,
    pub(crate) pages: u64,
}

const GROUP_SHIFT: u32 = 32;

impl Stock {
    fn to_word(self) -> u64 {
        if self.pages == 0 { 0 } else { (u64::from(self.group) + 1) << GROUP_SHIFT | self.pages }
    }

    fn of_word(word: u64) -> Option<Self> {
        let group = (word >> GROUP_SHIFT).checked_sub(1)?;
        Some(Self { group: group as u32, pages: word & ((1 << GROUP_SHIFT) - 1) })
    }

    /// Empties a stock of `group`, or of any. Says what was in it.
    fn empty(word: &AtomicU64, group: Option<u32>) -> Option<Self> {
        let now = word.load(Ordering::Relaxed);
        let stock = Self::of_word(now).filter(|stock| group.is_none_or(|group| group == stock.group))?;
        // Otherwise its CPU is using it.
        word.compare_exchange(now, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok().then_some(stock)
    }
}

impl ChargeStocks {
    pub(crate) fn new() -> Self {
        Self { cpus: PerCpu::new(Own::default) }
    }

    /// Takes up to `wanted` charges out of this CPU's stock.
    pub(crate) fn take(&self, group: u32, wanted: u64) -> u64 {
        let mut got = 0;
        let less = |word| {
            let stock = Stock::of_word(word).filter(|stock| stock.group == group)?;
            got = stock.pages.min(wanted);
            Some(Stock { pages: stock.pages - got, ..stock }.to_word())
        };
        let taken = self.cpus.here().of(group).fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        taken.map_or(0, |_| got)
    }

    /// Puts charges into this CPU's stock, as far as that then has no more than `most`. Says how
    /// many of them it didn't take; another group's stock makes way.
    pub(crate) fn put(&self, group: u32, pages: u64, most: u64) -> (u64, Option<Stock>) {
        let stock = self.cpus.here().of(group);
        let mut word = stock.load(Ordering::Relaxed);
        loop {
            let before = Stock::of_word(word);
            let own = before.filter(|stock| stock.group == group).map_or(0, |stock| stock.pages);
            let after = (own + pages).min(most.max(own));
            match stock.compare_exchange_weak(
                word,
                Stock { group, pages: after }.to_word(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return (own + pages - after, before.filter(|stock| stock.group != group)),
                Err(now) => word = now,
            }
        }
    }

    /// Empties all stocks of `group`, or of all, and says what was in them.
    pub(crate) fn drain(&self, group: Option<u32>) -> impl Iterator<Item = Stock> + '_ {
        let words = self.cpus.iter().flat_map(|cpu| &cpu.stocks);
        words.filter_map(move |word| Stock::empty(word, group))
    }

    /// Takes what CPUs have in stock until that is `wanted` or more, or there was a look at so many
    /// of them.
    fn take_elsewhere(&self, group: u32, wanted: u64) -> u64 {
        // Relaxed: it doesn't matter which CPU the look begins at.
        let start = self.cpus.here().others.fetch_add(LOOKED_AT, Ordering::Relaxed);
        let mut got = 0;
        for cpu in self.cpus.from(start).take(LOOKED_AT) {
            if got >= wanted {
                break;
            }
            got += Stock::empty(cpu.of(group), Some(group)).map_or(0, |stock| stock.pages);
        }
        got
    }

    /// What is in stock of a group.
    pub(crate) fn of(&self, group: u32) -> u64 {
        let words = self.cpus.iter().map(|cpu| cpu.of(group).load(Ordering::Relaxed));
        words.filter_map(Stock::of_word).filter(|stock| stock.group == group).map(|stock| stock.pages).sum()
    }
}

/// What all CPUs may have in stock of a group whose batches are so large.
pub(crate) fn stocks_max(batch: u64) -> u64 {
    BATCHES * batch * sync::cpu::count() as u64
}

impl GroupState {
    /// Whether CPUs have charges of the group in stock.
    pub(crate) fn has_stocks(&self) -> bool {
        self.stock_batch() > 0
    }

    /// Charges that go to a stock in one go; 0 if there are no stocks for the group.
    pub(crate) fn stock_batch(&self) -> u64 {
        (self.max() / (GROUP_SHARE * sync::cpu::count() as u64)).min(BATCH_MAX)
    }
}

impl Manager {
    /// Charges up to `wanted` pages to `group`, as far as the limit allows it.
    pub(crate) fn charge(&self, group: &GroupState, wanted: u64) -> Charged {
        let pages = self.charges.take(group.id, wanted);
        if pages == wanted {
            return Charged { pages, by_counter: false };
        }
        let (missing, batch) = (wanted - pages, group.stock_batch());
        let mut by_counter = group.try_charge(missing, batch);
        let mut got = by_counter;
        if by_counter == 0 && batch > 0 {
            got = self.charges.take_elsewhere(group.id, missing);
            if got == 0 {
                by_counter = group.try_charge(missing, 0); // In earnest: there may have been room.
                got = by_counter;
            }
        }
        if got > missing {
            let other = self.put_charges(group, got - missing, BATCHES * batch);
            self.give_back(other);
        }
        Charged { pages: pages + got.min(missing), by_counter: by_counter > 0 }
    }

    /// Uncharges pages whose frames were freed.
    pub(crate) fn uncharge(&self, group: &GroupState, pages: u64) {
        let other = self.stock_or_uncharge(group, pages);
        self.give_back(other);
    }

    /// The same for a caller that is looking at the table of groups: it calls
    /// [`give_back`](Self::give_back) with the result afterwards.
    pub(crate) fn stock_or_uncharge(&self, group: &GroupState, pages: u64) -> Option<Stock> {
        let batch = group.stock_batch();
        // A group without a handle is to end with its last page, and a group whose limit was
        // lowered is to shrink to that.
        if batch == 0 || group.is_abandoned() || group.charged() > group.max() {
            group.uncharge(pages);
        } else if pages > 0 {
            return self.put_charges(group, pages, BATCHES * batch);
        }
        None
    }

    fn put_charges(&self, group: &GroupState, pages: u64, most: u64) -> Option<Stock> {
        let (rest, other) = self.charges.put(group.id, pages, most);
        if rest > 0 {
            group.uncharge(rest);
        }
        other
    }

    /// Gives charges that were in a stock back to their group.
    pub(crate) fn give_back(&self, stock: Option<Stock>) {
        if let Some(stock) = stock {
            self.groups.with(stock.group, |group| group.uncharge(stock.pages));
        }
    }

    /// Gives back what CPUs have in stock of `group`, or of all. Says how many charges that were.
    pub(crate) fn drain_charges(&self, group: Option<u32>) -> u64 {
        let stocks = self.charges.drain(group);
        stocks.inspect(|stock| self.give_back(Some(*stock))).map(|stock| stock.pages).sum()
    }

    /// Pages of a group, without what is in stock. Exact only while no thread charges or uncharges.
    pub(crate) fn pages_of(&self, group: &GroupState) -> u64 {
        group.charged().saturating_sub(self.charges.of(group.id))
    }

    /// Forgets groups without a handle that have no page, of up to `most` that it looks at.
    pub(crate) fn sweep_groups(&self, most: usize) {
        let gone = self.groups.sweep(most, |id| {
            self.drain_charges(Some(id));
            self.drain_swapped(Some(id));
        });
        if gone > 0 {
            self.frames.budget().uncharge(gone as u64 * GROUP_BYTES);
        }
    }
}

/// One page's charge. Dropped, it is in stock again.
pub(crate) struct Charge<'a> {
    manager: &'a Manager,
    group: &'a GroupState,
}

impl<'a> Charge<'a> {
    /// That of a page that was charged to `group`.
    pub(crate) fn new(manager: &'a Manager, group: &'a GroupState) -> Self {
        Self { manager, group }
    }

    pub(crate) fn group(&self) -> &'a GroupState {
        self.group
    }

    /// It goes to its page.
    pub(crate) fn hand_over(self) {
        std::mem::forget(self);
    }
}

impl Drop for Charge<'_> {
    fn drop(&mut self) {
        self.manager.uncharge(self.group, 1);
    }
}

/// The charges of pages that are being loaded, which go on to the pages one by one.
#[derive(Debug)]
pub(crate) struct ChargedPages {
    group: Arc<GroupState>,
    pages: u64,
}

impl ChargedPages {
    /// Of `pages` frames that were charged to `group`.
    pub(crate) fn new(group: &Arc<GroupState>, pages: u64) -> Self {
        Self { group: Arc::clone(group), pages }
    }

    pub(crate) fn group(&self) -> &Arc<GroupState> {
        &self.group
    }

    /// One of them goes to its page.
    pub(crate) fn hand_over(&mut self) {
        self.pages -= 1;
    }
}

impl Drop for ChargedPages {
    fn drop(&mut self) {
        if self.pages > 0 {
            self.group.uncharge(self.pages);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_stock_survives_its_word() {
        for stock in [Stock { group: 0, pages: 1 }, Stock { group: u32::MAX - 1, pages: 64 }] {
            assert_eq!(Stock::of_word(stock.to_word()), Some(stock));
        }
        assert_eq!(Stock::of_word(Stock { group: 3, pages: 0 }.to_word()), None);
    }

    #[test]
    fn another_groups_stock_makes_way_and_what_is_too_much_comes_back() {
        // One CPU's word, whichever that is: the thread may move.
        let stocks = ChargeStocks::new();
        let rival = 1 + STOCKS as u32;
        let (rest, other) = stocks.put(1, 5, 4);
        assert_eq!((rest, other), (1, None));
        assert_eq!(stocks.of(1), 4);
        let (rest, other) = stocks.put(rival, 3, 4);
        assert_eq!(rest, 0);
        assert_eq!(other.map_or(0, |other| other.pages) + stocks.of(1), 4);
        assert_eq!(stocks.of(rival), 3);
        let (rest, other) = stocks.put(2, 3, 4);
        assert_eq!((rest, other, stocks.of(rival)), (0, None, 3), "most groups don't meet");
    }

    #[test]
    fn what_any_cpu_has_is_found() {
        let stocks = ChargeStocks::new();
        let cpus = sync::cpu::count();
        for (number, cpu) in stocks.cpus.iter().enumerate() {
            cpu.of(3).store(Stock { group: 3, pages: 5 }.to_word(), Ordering::Relaxed);
            let mut looks = (0..cpus.div_ceil(LOOKED_AT)).map(|_| stocks.take_elsewhere(3, 1));
            assert_eq!(looks.find(|&got| got > 0), Some(5), "that of CPU {number}");
            assert_eq!(stocks.of(3), 0);
        }
    }
}
