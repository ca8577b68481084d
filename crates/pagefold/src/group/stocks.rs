//! Stocks of charges, so that not every CPU writes to a group's counter for every page.
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

use sync::PerCpu;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// Charges that go to a stock in one go, in groups that are large enough.
const BATCH_MAX: u64 = 32;
/// A stock has up to so many batches.
pub(crate) const BATCHES: u64 = 2;
/// A batch for each CPU is no larger a part of a group's limit.
const GROUP_SHARE: u64 = 16;
/// Stocks of a CPU: as many as fit into a line, with what else is there.
const STOCKS: usize = 7;
/// CPUs whose stocks are looked at before pages are evicted, at most.
const LOOKED_AT: usize = 8;

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
    pub(crate) fn take_elsewhere(&self, group: u32, wanted: u64) -> u64 {
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

/// Charges that go to a stock in one go, of a group with a limit of `max` pages; 0 if there are no
/// stocks for it.
pub(crate) fn batch_for(max: u64) -> u64 {
    (max / (GROUP_SHARE * sync::cpu::count() as u64)).min(BATCH_MAX)
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
