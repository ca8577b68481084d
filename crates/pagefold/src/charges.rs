//! Charging pages to groups, without every CPU writing to the group's counter for every page.
//!
//! Each CPU has a *stock* of one group's charges: pages are charged out of it and uncharged into it, and the group's counter
//! is changed for a batch at a time. What is in stock counts as charged, so a limit holds at every moment. As it doesn't serve
//! anybody, stocks hold no more than an eighth of a group's limit, are given back when nothing can be reclaimed, and now and
//! then, and aren't told to who asks what the group has. Small groups have none.
//!
//! A stock is one word: the group's number plus one, and how many. Anybody may empty it.
//!
//! - S1. Charges in stock are in their group's `charged`. So a group that has some isn't forgotten, and its number isn't
//!   another's (`group_table`).
//!
//! `Relaxed` throughout: a charge is a number; what orders the page itself is elsewhere.

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};

use crate::group_state::GroupState;
use crate::manager::Manager;

/// Charges that go to a stock in one go, in groups that are large enough.
const BATCH_MAX: u64 = 32;
/// A stock has up to so many batches.
const BATCHES: u64 = 2;
/// A batch for each CPU is no larger a part of a group's limit.
const GROUP_SHARE: u64 = 16;

/// Where a page's charge came from.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Charging {
    /// This CPU's stock.
    Stock,
    /// The group's counter.
    Group,
    /// Nowhere: the limit is reached.
    Full,
}

/// Of all CPUs.
#[derive(Debug)]
pub(crate) struct ChargeStocks {
    stocks: PerCpu<AtomicU64>,
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
}

impl ChargeStocks {
    pub(crate) fn new() -> Self {
        Self { stocks: PerCpu::new(AtomicU64::default) }
    }

    /// Takes a page's charge out of this CPU's stock.
    fn take(&self, group: u32) -> bool {
        let less = |word| {
            let stock = Stock::of_word(word).filter(|stock| stock.group == group)?;
            Some(Stock { pages: stock.pages - 1, ..stock }.to_word())
        };
        self.stocks.here().fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Puts charges into this CPU's stock, as far as that then has no more than `most`. Says how many of them it didn't take;
    /// another group's stock makes way.
    pub(crate) fn put(&self, group: u32, pages: u64, most: u64) -> (u64, Option<Stock>) {
        let stock = self.stocks.here();
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

    /// Empties all stocks of `group`, or of all, and tells `give_back` what was in them. Says how many charges that were.
    pub(crate) fn drain(&self, group: Option<u32>, mut give_back: impl FnMut(Stock)) -> u64 {
        let mut pages = 0;
        for word in self.stocks.iter() {
            let now = word.load(Ordering::Relaxed);
            let Some(stock) = Stock::of_word(now).filter(|stock| group.is_none_or(|group| group == stock.group)) else {
                continue;
            };
            // Otherwise its CPU is using it.
            if word.compare_exchange(now, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok() {
                give_back(stock);
                pages += stock.pages;
            }
        }
        pages
    }

    /// What is in stock of a group.
    pub(crate) fn of(&self, group: u32) -> u64 {
        let stocks = self.stocks.iter().filter_map(|stock| Stock::of_word(stock.load(Ordering::Relaxed)));
        stocks.filter(|stock| stock.group == group).map(|stock| stock.pages).sum()
    }
}

impl GroupState {
    /// Whether CPUs have charges of the group in stock.
    pub(crate) fn has_stocks(&self) -> bool {
        self.stock_batch() > 0
    }

    /// Charges that go to a stock in one go; 0 if there are no stocks for the group.
    fn stock_batch(&self) -> u64 {
        (self.max() / (GROUP_SHARE * sync::cpu::count() as u64)).min(BATCH_MAX)
    }
}

impl Manager {
    /// Charges a page to `group`, if the limit allows it.
    pub(crate) fn charge(&self, group: &GroupState) -> Charging {
        if self.charges.take(group.id) {
            return Charging::Stock;
        }
        let batch = group.stock_batch();
        match group.try_charge(1 + batch) {
            0 => Charging::Full,
            1 => Charging::Group,
            got => {
                let other = self.put_charges(group, got - 1, BATCHES * batch);
                self.give_back(other);
                Charging::Group
            }
        }
    }

    /// Uncharges pages whose frames were freed.
    pub(crate) fn uncharge(&self, group: &GroupState, pages: u64) {
        let other = self.stock_or_uncharge(group, pages);
        self.give_back(other);
    }

    /// The same for whoever looks at the table of groups: with what it says, call [`give_back`](Self::give_back) afterwards.
    pub(crate) fn stock_or_uncharge(&self, group: &GroupState, pages: u64) -> Option<Stock> {
        let batch = group.stock_batch();
        // A group that nobody has a handle of is to end with its last page.
        if batch == 0 || group.is_abandoned() {
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
        self.charges.drain(group, |stock| self.give_back(Some(stock)))
    }

    /// Pages of a group, without what is in stock. Exact when nobody is at it.
    pub(crate) fn pages_of(&self, group: &GroupState) -> u64 {
        group.charged().saturating_sub(self.charges.of(group.id))
    }

    /// Forgets groups that nobody has a handle of, and that have no page.
    pub(crate) fn sweep_groups(&self) {
        if self.groups.any(GroupState::is_abandoned) {
            self.drain_charges(None);
            self.drain_swapped(None);
        }
        self.groups.sweep();
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
        let stocks = ChargeStocks { stocks: PerCpu::new(AtomicU64::default) };
        let (rest, other) = stocks.put(1, 5, 4);
        assert_eq!((rest, other), (1, None));
        assert_eq!(stocks.of(1), 4);
        let (rest, other) = stocks.put(2, 3, 4);
        assert_eq!(rest, 0);
        assert_eq!(other.map_or(0, |other| other.pages) + stocks.of(1), 4);
        assert_eq!(stocks.of(2), 3);
    }
}
