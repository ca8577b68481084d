//! Free addresses: the ranges that a space chooses from when it maps something.
//!
//! An address that isn't mapped is in the set of free ranges, in the *stock* of a CPU, or with a
//! thread that is about to map it. A stock is a cache of free ranges.
//!
//! The set may also contain ranges that are mapped, because a caller may choose the addresses
//! itself, and only the index knows what is mapped. A thread that takes such a range from the set
//! finds the earlier mapping when it tries to map the range. The thread then removes the mapped
//! addresses from the set ([`forget`](FreeAddresses::forget)), and takes another range. The removed
//! addresses come back to the set when they are unmapped, as all addresses do.
//!
//! CPUs get stocks only after threads have contended for the set a few times. So a space that only
//! one thread uses at a time spends no memory on stocks. If too many ranges have been given back to
//! a stock, all of these ranges return to the set. If the set has no range that is long enough for
//! a caller, all stocks return all of their ranges.
//!
//! A thread holds the set's lock while it moves ranges between the set and a stock. So a caller
//! that returns the ranges of all stocks misses no range that is being moved. Lock order: the set →
//! a stock.
//!
//! While there are no stocks, the set keeps the most recently returned range separate from its
//! other ranges, because the next caller may want a range of the same length.

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::{Mutex, MutexGuard, OnceBox};

use super::account::{Account, Payer};
use super::address::{ADDRESS_BITS, Pages};
use super::ranges::{RANGE_BYTES, Ranges};
use super::region::REGION_PAGES;
use crate::error::Error;

/// The first page that is handed out. So address 0 is never handed out.
const FIRST: u64 = REGION_PAGES;
/// The most ranges that a CPU keeps for later requests of the same length.
const KEPT_MAX: usize = 16;
/// The memory of ranges is charged in steps of this many bytes. The first step is charged when the
/// space is made.
pub(super) const CHARGED_AT_ONCE: u64 = 2048;
/// The number of times that threads contend for the set before CPUs get stocks.
const MEETINGS_MAX: u64 = 8;

/// See the module's head.
pub(super) struct FreeAddresses {
    set: Mutex<Set>,
    /// The number of ranges in the set. A copy for charging, which is read without the lock.
    ranges: AtomicU64,
    /// Bytes charged for ranges.
    charged: AtomicU64,
    /// Times that a thread found the set locked.
    meetings: AtomicU64,
    stocks: OnceBox<PerCpu<Mutex<Stock>>>,
}

#[derive(Debug, Default)]
struct Set {
    ranges: Ranges,
    /// The last range that came back, while there are no stocks. It isn't in `ranges`.
    last: Option<Pages>,
}

impl Set {
    /// Returns all ranges of the set, with the last one among them.
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
    /// The range to cut new ones from.
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
    /// Creates a set of all addresses but those of region 0 ([`FIRST`]).
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

    /// Changes the set, and updates the number of its ranges.
    fn with_set<R>(&self, change: impl FnOnce(&mut Set) -> R) -> R {
        let mut set = self.lock_set();
        let result = change(&mut set);
        // Relaxed: only used for charging.
        self.ranges.store(set.len() as u64, Ordering::Relaxed);
        result
    }

    /// Makes stocks if threads contend for the set, and charges the memory of ranges. If there is
    /// no room for stocks, there are none.
    ///
    /// # Errors
    /// No room for the memory of ranges.
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

    /// Returns how many more bytes have to be charged for ranges. The result is negative if too
    /// many bytes are charged. All loads and stores are Relaxed: at worst, two threads charge the
    /// same range, or one step more than needed is charged.
    fn owed(&self) -> i64 {
        let wanted = (self.ranges.load(Ordering::Relaxed) + KEPT_MAX as u64) * RANGE_BYTES;
        wanted.cast_signed() - self.charged.load(Ordering::Relaxed).cast_signed()
    }

    /// Charges the memory for a range that is about to be given back, if the charge needs no
    /// reclaim. Otherwise leaves the charge to the next thread that maps something. If too much is
    /// charged, uncharges one step.
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

    /// Takes a range of `count` pages, which no other thread is given. Returns `None` if there is
    /// none.
    pub(super) fn take(&self, count: u64) -> Option<Pages> {
        let Some(stocks) = self.stocks.get() else { return self.with_set(|set| set.take(count)) };
        if let Some(pages) = stocks.here().lock().take(count) {
            return Some(pages);
        }
        self.with_set(|set| {
            let set = set.ranges();
            if count < REGION_PAGES
                && let Some(fresh) = cut_some(set, count)
            {
                let rest = Some(Pages { first: fresh.first + count, ..fresh }).filter(|rest| rest.count() > 0);
                let old = std::mem::replace(&mut stocks.here().lock().rest, rest);
                old.into_iter().for_each(|old| set.insert(old));
                return Some(Pages { end: fresh.first + count, ..fresh });
            }
            cut(set, count).or_else(|| {
                stocks.iter().for_each(|stock| stock.lock().empty_into(set));
                cut(set, count)
            })
        })
    }

    /// Takes back a range that isn't mapped any more. Ignores its pages in region 0, which a caller
    /// may have mapped by choice.
    pub(super) fn give(&self, pages: Pages) {
        let pages = Pages { first: pages.first.max(FIRST), ..pages };
        if pages.first >= pages.end {
            return;
        }
        let Some(stocks) = self.stocks.get() else { return self.with_set(|set| set.give(pages)) };
        let stock = stocks.here();
        let is_full = {
            let mut stock = stock.lock();
            stock.kept.push(pages);
            stock.kept.len() > KEPT_MAX
        };
        if is_full {
            self.with_set(|set| {
                let kept = std::mem::take(&mut stock.lock().kept);
                kept.into_iter().for_each(|pages| set.ranges().insert(pages));
            });
        }
    }

    /// Removes pages from the free addresses, because a caller has mapped something there, at
    /// addresses of its own choice. They come back when they are unmapped (`give`).
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

/// Takes `count` pages from the shortest range that has as many.
fn cut(set: &mut Ranges, count: u64) -> Option<Pages> {
    let best = set.best(count)?;
    let pages = Pages { end: best.first + count, ..best };
    set.remove(pages);
    Some(pages)
}

/// Takes a range of at least `count` pages for a CPU's stock, which cuts shorter ranges from it.
/// Chooses the shortest range of the set that is long enough. Takes one whole region of that range,
/// or all of the range if it contains no whole region. So the pages of different CPUs lie apart.
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
    use rustix::thread::{CpuSet, sched_getaffinity, sched_setaffinity};
    use sync::random::Random;

    /// Regression: a thread found no range in the set that was long enough, and took the ranges out
    /// of all stocks, to return them to the set. Before it had returned them, another thread found
    /// no range in the set or in any stock. So the other thread's mapping failed although addresses
    /// were free. A thread that moves ranges from stocks to the set must keep other threads from
    /// using the set meanwhile.
    #[test]
    fn no_thread_misses_ranges_on_their_way_from_stocks_to_the_set() {
        let addresses = FreeAddresses::new(12);
        let all = (1 << (ADDRESS_BITS - 12)) - REGION_PAGES;
        assert!(addresses.take(all).is_some());
        assert!(addresses.stocks.set(Box::new(PerCpu::new(Mutex::default))).is_ok());
        let stocks = addresses.stocks.get().unwrap();
        let [first, last] = [stocks.iter().next(), stocks.iter().last()].map(Option::unwrap);
        // The test stays on one CPU, whose stock isn't the last one. On a machine with one CPU, the
        // test can't produce the race.
        let allowed = sched_getaffinity(None).unwrap();
        let found = (0..CpuSet::MAX_CPU).filter(|&cpu| allowed.is_set(cpu)).any(|cpu| {
            let mut one = CpuSet::new();
            one.set(cpu);
            sched_setaffinity(None, &one).unwrap();
            !std::ptr::eq(stocks.here(), last)
        });
        if !found {
            return sched_setaffinity(None, &allowed).unwrap();
        }
        first.lock().kept.push(Pages { first: 100, end: 116 });
        let held = last.lock();
        let (is_kept_out, taken) = std::thread::scope(|scope| {
            let thread = scope.spawn(|| addresses.take(8));
            while !first.lock().kept.is_empty() {
                std::thread::yield_now();
            }
            // The thread has the range, and waits for the last stock.
            let is_kept_out = addresses.set.try_lock().is_none();
            drop(held);
            (is_kept_out, thread.join().unwrap())
        });
        sched_setaffinity(None, &allowed).unwrap();
        assert!(is_kept_out, "another thread finds nothing");
        assert_eq!(taken, Some(Pages { first: 100, end: 108 }));
    }

    /// Takes and gives back ranges at random, with and without stocks. No page is handed out twice,
    /// and in the end all addresses are one range.
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
