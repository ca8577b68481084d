//! Addresses to give out.
//!
//! All addresses that aren't mapped are in one set of ranges, or in the stock of a CPU, or with a
//! thread that is about to map them. The index alone knows what is mapped: the set may have ranges,
//! too, that were mapped at addresses of the caller's choice. A mapper that is given such a range
//! finds that out when it maps it, has what is mapped there [forgotten](FreeAddresses::forget), and
//! asks again. When that is unmapped, it comes back as everything does.
//!
//! CPUs have stocks only once two of them have met at the set: a space with one user at a time
//! takes no more than it needs. A stock is a cache: what comes back there goes to the set a few
//! ranges at a time, and all of it when the set has no range that is long enough. Without stocks,
//! the set keeps the last range that came back apart, for a caller that maps as much next.

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::{Mutex, MutexGuard, OnceBox};

use super::account::{Account, Payer};
use super::address::{ADDRESS_BITS, Pages};
use super::ranges::{RANGE_BYTES, Ranges};
use super::region::REGION_PAGES;
use crate::error::Error;

/// The first page that is given out. So no address that is given out is 0.
const FIRST: u64 = REGION_PAGES;
/// Ranges that a CPU keeps for the next request of the same length.
const KEPT_MAX: usize = 16;
/// What ranges take is charged so much at a time; the first is the space's anyway.
pub(super) const CHARGED_AT_ONCE: u64 = 2048;
/// How often CPUs meet before they get stocks.
const MEETINGS_MAX: u64 = 8;

/// See the module's head.
pub(super) struct FreeAddresses {
    set: Mutex<Set>,
    /// Of the set. Only told: read without the lock.
    ranges: AtomicU64,
    /// Bytes charged for ranges.
    charged: AtomicU64,
    /// Times that a CPU found another one at the set.
    meetings: AtomicU64,
    stocks: OnceBox<PerCpu<Mutex<Stock>>>,
}

#[derive(Debug, Default)]
struct Set {
    ranges: Ranges,
    /// The last range that came back, without stocks.
    last: Option<Pages>,
}

impl Set {
    /// All of it, in one.
    fn ranges(&mut self) -> &mut Ranges {
        if let Some(last) = self.last.take() {
            self.ranges.insert(last);
        }
        &mut self.ranges
    }

    fn take(&mut self, count: u64) -> Option<Pages> {
        if let Some(last) = self.last.take_if(|last| last.count() == count) {
            return Some(last);
        }
        cut(self.ranges(), count)
    }

    fn give(&mut self, pages: Pages) {
        if let Some(before) = self.last.replace(pages) {
            self.ranges.insert(before);
        }
    }

    fn len(&self) -> usize {
        self.ranges.len() + usize::from(self.last.is_some())
    }
}

#[derive(Debug, Default)]
struct Stock {
    /// To cut from.
    rest: Option<Pages>,
    /// Ranges that were given back.
    kept: Vec<Pages>,
}

impl Stock {
    fn take(&mut self, count: u64) -> Option<Pages> {
        if let Some(at) = self.kept.iter().rposition(|kept| kept.count() == count) {
            return Some(self.kept.swap_remove(at));
        }
        let rest = self.rest.filter(|rest| rest.count() >= count)?;
        self.rest = Some(Pages { first: rest.first + count, ..rest }).filter(|rest| rest.count() > 0);
        Some(Pages { end: rest.first + count, ..rest })
    }

    fn empty_into(&mut self, set: &mut Ranges) {
        self.kept.drain(..).chain(self.rest.take()).for_each(|pages| set.insert(pages));
    }
}

impl FreeAddresses {
    /// All of them but those of region 0 ([`FIRST`]).
    pub(super) fn new(page_shift: u32) -> Self {
        let mut set = Set::default();
        set.ranges.insert(Pages { first: FIRST, end: 1 << (ADDRESS_BITS - page_shift) });
        Self {
            set: Mutex::new(set),
            ranges: AtomicU64::new(1),
            charged: AtomicU64::new(CHARGED_AT_ONCE),
            meetings: AtomicU64::new(0),
            stocks: OnceBox::new(),
        }
    }

    fn lock_set(&self) -> MutexGuard<'_, Set> {
        self.set.try_lock().unwrap_or_else(|| {
            // Relaxed: a hint.
            self.meetings.fetch_add(1, Ordering::Relaxed);
            self.set.lock()
        })
    }

    /// Changes the set.
    fn with_set<R>(&self, change: impl FnOnce(&mut Set) -> R) -> R {
        let mut set = self.lock_set();
        let result = change(&mut set);
        // Relaxed: looked at for charging alone.
        self.ranges.store(set.len() as u64, Ordering::Relaxed);
        result
    }

    /// Has stocks if CPUs meet, and pays for ranges. Where there is no room for stocks there are
    /// none.
    ///
    /// # Errors
    /// No room for what ranges take.
    pub(super) fn prepare(&self, account: &Account, payer: Payer<'_>) -> Result<(), Error> {
        if self.meetings.load(Ordering::Relaxed) > MEETINGS_MAX && self.stocks.get().is_none() {
            self.meetings.store(0, Ordering::Relaxed);
            let stocks = PerCpu::<Mutex<Stock>>::new(Mutex::default);
            let bytes = stocks.bytes() + (KEPT_MAX as u64 + 1) * RANGE_BYTES * sync::cpu::count() as u64;
            if account.charge(payer, bytes).is_ok() && self.stocks.set(Box::new(stocks)).is_err() {
                account.uncharge(payer, bytes);
            }
        }
        while self.owed() > 0 {
            account.charge(payer, CHARGED_AT_ONCE)?;
            self.charged.fetch_add(CHARGED_AT_ONCE, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Bytes that ranges take and that aren't charged; fewer than none if too many are. Relaxed,
    /// all of it: two threads may pay for the same range, or one step more than it takes.
    fn owed(&self) -> i64 {
        let wanted = (self.ranges.load(Ordering::Relaxed) + KEPT_MAX as u64) * RANGE_BYTES;
        wanted.cast_signed() - self.charged.load(Ordering::Relaxed).cast_signed()
    }

    /// Pays for another range that comes back, as far as there is room without reclaim; otherwise
    /// the next thread that maps something pays. Or gives back what was paid too much.
    pub(super) fn prepare_to_give(&self, account: &Account, payer: Payer<'_>) {
        let owed = self.owed();
        if owed > 0 && account.try_charge(payer, CHARGED_AT_ONCE) {
            self.charged.fetch_add(CHARGED_AT_ONCE, Ordering::Relaxed);
        } else if owed < -4 * CHARGED_AT_ONCE.cast_signed() {
            let less = |charged: u64| charged.checked_sub(CHARGED_AT_ONCE).filter(|&charged| charged > 0);
            if self.charged.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok() {
                account.uncharge(payer, CHARGED_AT_ONCE);
            }
        }
    }

    /// A range of `count` pages that no other thread is given. `None` if there is none.
    pub(super) fn take(&self, count: u64) -> Option<Pages> {
        let Some(stocks) = self.stocks.get() else { return self.with_set(|set| set.take(count)) };
        if let Some(pages) = stocks.here().lock().take(count) {
            return Some(pages);
        }
        if count < REGION_PAGES
            && let Some(fresh) = self.with_set(|set| cut_some(set.ranges(), count))
        {
            let mut stock = stocks.here().lock();
            let old = stock.rest.replace(Pages { first: fresh.first + count, ..fresh }).filter(|rest| rest.count() > 0);
            stock.rest = stock.rest.filter(|rest| rest.count() > 0);
            drop(stock);
            if let Some(old) = old {
                self.with_set(|set| set.ranges().insert(old));
            }
            return Some(Pages { end: fresh.first + count, ..fresh });
        }
        self.with_set(|set| set.take(count)).or_else(|| {
            let mut stock_of_all = Ranges::default();
            stocks.iter().for_each(|stock| stock.lock().empty_into(&mut stock_of_all));
            self.with_set(|set| {
                let set = set.ranges();
                while let Some(pages) = stock_of_all.best(1) {
                    stock_of_all.remove(pages);
                    set.insert(pages);
                }
                cut(set, count)
            })
        })
    }

    /// Takes a range back that isn't mapped any more; of region 0, where a caller may have mapped
    /// it by choice, nothing.
    pub(super) fn give(&self, pages: Pages) {
        let pages = Pages { first: pages.first.max(FIRST), ..pages };
        if pages.first >= pages.end {
            return;
        }
        let Some(stocks) = self.stocks.get() else { return self.with_set(|set| set.give(pages)) };
        let full = {
            let mut stock = stocks.here().lock();
            stock.kept.push(pages);
            (stock.kept.len() > KEPT_MAX).then(|| std::mem::take(&mut stock.kept))
        };
        if let Some(full) = full {
            self.with_set(|set| full.into_iter().for_each(|pages| set.ranges().insert(pages)));
        }
    }

    /// Gives pages out no more until they come back: they are mapped, at addresses of the caller's
    /// choice.
    pub(super) fn forget(&self, pages: Pages) {
        self.with_set(|set| set.ranges().remove(pages));
        for stock in self.stocks.get().into_iter().flat_map(PerCpu::iter) {
            let mut all = Ranges::default();
            let mut stock = stock.lock();
            stock.empty_into(&mut all);
            all.remove(pages);
            while let Some(left) = all.best(1) {
                all.remove(left);
                stock.kept.push(left);
            }
        }
    }
}

/// Takes `count` pages out of the shortest range that has them.
fn cut(set: &mut Ranges, count: u64) -> Option<Pages> {
    let best = set.best(count)?;
    let pages = Pages { end: best.first + count, ..best };
    set.remove(pages);
    Some(pages)
}

/// Takes out a range of at least `count` pages, to cut from: all of it, or a whole region if it is
/// long, so that CPUs' pages lie apart.
fn cut_some(set: &mut Ranges, count: u64) -> Option<Pages> {
    let best = set.best(count)?;
    let start = best.first.next_multiple_of(REGION_PAGES);
    let pages = match best.end.checked_sub(start) {
        Some(rest) if rest >= REGION_PAGES => Pages { first: start, end: start + REGION_PAGES },
        _ => best,
    };
    set.remove(pages);
    Some(pages)
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use sync::random::Random;

    /// Whatever is taken and given back, on whichever CPU: no page is given out twice, and in the
    /// end all are one range.
    #[test]
    fn everything_comes_back() {
        for has_stocks in [false, true] {
            let addresses = FreeAddresses::new(12);
            if has_stocks {
                assert!(addresses.stocks.set(Box::new(PerCpu::new(Mutex::default))).is_ok());
            }
            let (mut random, mut taken) = (Random::seeded(1), Ranges::default());
            for _ in 0..20_000 {
                if random.below(3) > 0 {
                    let pages = addresses.take(1 + random.below(5_000)).unwrap();
                    assert!(
                        taken.best(1).is_none() || {
                            let before = taken.len();
                            taken.insert(pages);
                            taken.len() <= before + 1
                        }
                    );
                    taken.insert(pages);
                } else if let Some(pages) = taken.best(random.below(3_000)) {
                    taken.remove(pages);
                    addresses.give(pages);
                }
            }
            while let Some(pages) = taken.best(1) {
                taken.remove(pages);
                addresses.give(pages);
            }
            let all = (1 << (ADDRESS_BITS - 12)) - REGION_PAGES;
            assert_eq!(addresses.take(all), Some(Pages { first: REGION_PAGES, end: REGION_PAGES + all }));
            assert_eq!(addresses.take(1), None);
        }
    }
}
