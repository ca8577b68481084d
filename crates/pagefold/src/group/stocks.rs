//! Per-CPU stocks of charges, so that not every CPU writes to a group's counter for every page.
//!
//! Each CPU has several *stocks*, each with charges of one group. A page takes its charge from a
//! stock of the current CPU, and later returns it to a stock. The group's counter changes only if
//! the stock is empty or full, and then by at least a batch.
//!
//! Charges in stock count as charged, so a group never exceeds its limit, not even for a moment
//! (unless the limit is lowered). But no page uses charges in stock. So all stocks of a group
//! together hold at most an eighth of its limit, and the group's statistics leave them out. Small
//! groups have no stocks.
//!
//! In two cases, a thread takes charges from other CPUs' stocks before it evicts a page:
//! - The limit is reached.
//! - The thread lost a race for the counter, and less of the limit was left than all stocks may
//!   hold.
//!
//! The thread looks at up to [`LOOKED_AT`] CPUs each time, round robin.
//!
//! A stock is one word: the group's number plus one, and the number of charges. Any thread may
//! empty any stock. A group's stock on a CPU is at index `group number % STOCKS`. If the stock
//! holds another group's charges, they are displaced.
//!
//! - C1. Charges in stock are in their group's `charged`. So a group with charges in stock isn't
//!   forgotten, and its number isn't reused (`group::table`).
//!
//! All accesses are `Relaxed`: charges are only numbers, and publish no other memory.

use sync::PerCpu;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};

/// The most charges that go to a stock at a time.
const BATCH_MAX: u64 = 32;
/// The most batches in a stock.
const BATCHES: u64 = 2;
/// If each CPU has one batch in stock, these are together at most `limit / GROUP_SHARE` charges.
const GROUP_SHARE: u64 = 16;
/// The stocks of a CPU: as many as fit into a cache line with `others`.
const STOCKS: usize = 7;
/// The most CPUs whose stocks are looked at before pages are evicted.
const LOOKED_AT: usize = 8;

/// A CPU's stocks.
#[derive(Debug, Default)]
struct Own {
    stocks: [AtomicU64; STOCKS],
    /// The CPU whose stocks are looked at next.
    others: AtomicUsize,
}

impl Own {
    fn of(&self, group: u32) -> &AtomicU64 {
        &self.stocks[group as usize % STOCKS]
    }
}

/// The stocks of all CPUs.
#[derive(Debug)]
pub(crate) struct ChargeStocks {
    cpus: PerCpu<Own>,
}

/// The content of a stock.
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

    /// Empties the stock if it holds charges of `group`, or of any group if `group` is `None`.
    /// Returns what the stock held.
    fn empty(word: &AtomicU64, group: Option<u32>) -> Option<Self> {
        let now = word.load(Ordering::Relaxed);
        let stock = Self::of_word(now).filter(|stock| group.is_none_or(|group| group == stock.group))?;
        // Fails if another thread has just changed the stock.
        word.compare_exchange(now, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok().then_some(stock)
    }
}

impl ChargeStocks {
    pub(crate) fn new() -> Self {
        Self { cpus: PerCpu::new(Own::default) }
    }

    /// Returns whether this CPU's stock has `wanted` charges of a group.
    #[inline]
    pub(crate) fn has(&self, group: u32, wanted: u64) -> bool {
        let stock = Stock::of_word(self.cpus.here().of(group).load(Ordering::Relaxed));
        stock.is_some_and(|stock| stock.group == group && stock.pages >= wanted)
    }

    /// Takes up to `wanted` charges out of this CPU's stock. Returns how many it took.
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

    /// Puts charges into this CPU's stock. If the stock would then have more than [`BATCHES`]
    /// batches, leaves only one batch in it, so that the next charges fit. Returns how many charges
    /// are left over, and the stock of another group that was displaced.
    pub(crate) fn put(&self, group: u32, pages: u64, batch: u64) -> (u64, Option<Stock>) {
        let stock = self.cpus.here().of(group);
        let mut word = stock.load(Ordering::Relaxed);
        loop {
            let before = Stock::of_word(word);
            let own = before.filter(|stock| stock.group == group).map_or(0, |stock| stock.pages);
            let all = own + pages;
            let after = if all > BATCHES * batch { batch } else { all };
            match stock.compare_exchange_weak(
                word,
                Stock { group, pages: after }.to_word(),
                Ordering::Relaxed,
                Ordering::Relaxed,
            ) {
                Ok(_) => return (all - after, before.filter(|stock| stock.group != group)),
                Err(now) => word = now,
            }
        }
    }

    /// Empties all stocks of `group`, or of all groups, and returns what they held.
    pub(crate) fn drain(&self, group: Option<u32>) -> impl Iterator<Item = Stock> + '_ {
        let words = self.cpus.iter().flat_map(|cpu| &cpu.stocks);
        words.filter_map(move |word| Stock::empty(word, group))
    }

    /// Takes charges from the stocks of up to `LOOKED_AT` CPUs until it has at least `wanted`.
    /// Returns how many it took.
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

    /// Returns how many charges of a group are in stock.
    pub(crate) fn of(&self, group: u32) -> u64 {
        let words = self.cpus.iter().map(|cpu| cpu.of(group).load(Ordering::Relaxed));
        words.filter_map(Stock::of_word).filter(|stock| stock.group == group).map(|stock| stock.pages).sum()
    }
}

/// Returns the most charges that all CPUs may have in stock, for a group with this batch size.
pub(crate) fn stocks_max(batch: u64) -> u64 {
    BATCHES * batch * sync::cpu::count() as u64
}

/// Returns how many charges go to a stock at a time in a group with a limit of `max` pages; 0 if
/// the group has no stocks.
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
        // The thread may move to another CPU between two calls. The assertions hold in that case,
        // too.
        let stocks = ChargeStocks::new();
        let rival = 1 + STOCKS as u32;
        let (rest, other) = stocks.put(1, 5, 2);
        assert_eq!((rest, other), (3, None));
        assert_eq!(stocks.of(1), 2, "one batch stays");
        let (rest, other) = stocks.put(rival, 3, 2);
        assert_eq!(rest, 0);
        assert_eq!(other.map_or(0, |other| other.pages) + stocks.of(1), 2);
        assert_eq!(stocks.of(rival), 3);
        let (rest, other) = stocks.put(2, 3, 2);
        assert_eq!((rest, other, stocks.of(rival)), (0, None, 3), "most groups don't meet");
    }

    #[test]
    fn what_any_cpu_has_is_found() {
        let stocks = ChargeStocks::new();
        let cpus = sync::cpu::count();
        for (number, cpu) in stocks.cpus.iter().enumerate() {
            cpu.of(3).store(Stock { group: 3, pages: 5 }.to_word(), Ordering::Relaxed);
            // Each look of a CPU begins where that CPU's previous look ended. The thread may move
            // to another CPU between two looks. But after so many looks, at least one CPU has
            // looked at all CPUs.
            let mut looks = (0..cpus * cpus.div_ceil(LOOKED_AT)).map(|_| stocks.take_elsewhere(3, 1));
            assert_eq!(looks.find(|&got| got > 0), Some(5), "that of CPU {number}");
            assert_eq!(stocks.of(3), 0);
        }
    }
}
