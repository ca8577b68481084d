//! The number of a group's pages in swap slots, and its limit.
//!
//! CPUs keep stocks of slots, as they do of charges for memory, and slots in stock count as charged
//! (`stocks` has the invariants). Slots are charged in batches, and taken from the CPU's stock
//! first. Slots that are freed one by one go to the CPU's stock. So swapping in a page writes to no
//! counter that CPUs share.
//!
//! The limit holds at every moment, with one exception: an exchange, in which one page is swapped
//! out so that another can be swapped in (`swapping::exchange`), may take more slots. With
//! exchanges, the group may have up to max(limit, `in_use`) + [`BEYOND_MAX`] slots. `in_use` is the
//! number of slots in use when the limit was set, or less if an exchange has found fewer in use
//! since. `in_use` matters after the limit was lowered, because lowering the limit frees no slots.

use swap::SwapOutError;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{CachePadded, ThreadCounter};

use io::IoError;

use crate::lru::cost::{AnonymousCost, Cost};

/// Slots that a group may have beyond its `swap_max` while pages are exchanged.
pub(crate) const BEYOND_MAX: u64 = 8;
/// After reclaim has looked at all `pages` of a group in vain, the next `pages / SKIPPED_SHARE`
/// exchanges skip reclaim.
const SKIPPED_SHARE: usize = 8;

/// The swap counters of one group. All accesses are `Relaxed`: they are only numbers.
#[derive(Debug)]
pub(crate) struct Swapped {
    /// Pages in slots, and slots in CPUs' stocks.
    pages: CachePadded<AtomicU64>,
    max: AtomicU64,
    /// How many pages were in slots when the limit was set, or fewer if an exchange has found fewer
    /// since. Exchanges may use this many slots even if the limit is lower.
    in_use: AtomicU64,
    /// How many more pages are exchanged without trying reclaim first.
    reclaims_to_skip: AtomicU32,
    /// The numbers of pages swapped in and swapped out, and of pages swapped out that needed no
    /// slot because they repeat one word.
    pub(crate) ins: ThreadCounter,
    pub(crate) outs: ThreadCounter,
    pub(crate) same_filled: ThreadCounter,
    /// Pages read from slots and written to them.
    pub(crate) read: ThreadCounter,
    pub(crate) written: ThreadCounter,
    /// Pages read by swap readahead, and those of them that left memory unused.
    pub(crate) along: AtomicU64,
    pub(crate) along_wasted: AtomicU64,
    /// If the last write to swap failed: the number of the area, and its device's error.
    failure: Mutex<Option<(u32, IoError)>>,
    has_failed: AtomicBool,
    /// What it costs to bring back the pages that left memory lately.
    cost: AnonymousCost,
}

impl Swapped {
    /// Creates counters at zero, without a limit.
    pub(crate) fn new() -> Self {
        Self {
            pages: CachePadded::new(AtomicU64::new(0)),
            max: AtomicU64::new(u64::MAX),
            in_use: AtomicU64::new(0),
            reclaims_to_skip: AtomicU32::new(0),
            ins: ThreadCounter::default(),
            outs: ThreadCounter::default(),
            same_filled: ThreadCounter::default(),
            read: ThreadCounter::default(),
            written: ThreadCounter::default(),
            along: AtomicU64::new(0),
            along_wasted: AtomicU64::new(0),
            failure: Mutex::new(None),
            has_failed: AtomicBool::new(false),
            cost: AnonymousCost::default(),
        }
    }

    /// Returns what it costs to bring back an anonymous page. The cost is that of the pages that
    /// left memory last.
    pub(crate) fn cost(&self) -> Cost {
        self.cost.get()
    }

    /// Notes what it will cost to bring back the pages that have just left.
    pub(crate) fn set_cost(&self, cost: Cost) {
        self.cost.set(cost);
    }

    pub(crate) fn pages(&self) -> u64 {
        self.pages.load(Ordering::Relaxed)
    }

    pub(crate) fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    pub(crate) fn set_max(&self, pages: u64) {
        self.max.store(pages, Ordering::Relaxed);
        self.in_use.store(self.pages(), Ordering::Relaxed);
    }

    /// Returns whether more slots are charged than the limit allows, because exchanges took them or
    /// the limit was lowered. If so, slots in stock must not be used.
    pub(crate) fn is_beyond_max(&self) -> bool {
        let max = self.max();
        max != u64::MAX && self.pages() > max
    }

    /// Charges up to `wanted` slots and returns how many. Without a limit, this is a single
    /// addition, so CPUs don't retry.
    pub(crate) fn try_charge(&self, wanted: u64) -> u64 {
        if wanted == 0 {
            return 0;
        }
        let max = self.max();
        if max == u64::MAX {
            self.pages.fetch_add(wanted, Ordering::Relaxed);
            return wanted;
        }
        let more = |pages: u64| (pages < max).then(|| max.min(pages.saturating_add(wanted)));
        let charged = self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more);
        charged.map_or(0, |before| (max - before).min(wanted))
    }

    /// Charges a slot for an exchange. May exceed the limit, or the number in use when the limit
    /// was lowered, by [`BEYOND_MAX`] slots. Returns false if all of these extra slots are charged.
    pub(crate) fn charge_one_more(&self) -> bool {
        let in_use = self.pages();
        let in_use = self.in_use.fetch_min(in_use, Ordering::Relaxed).min(in_use);
        let most = self.max().max(in_use).saturating_add(BEYOND_MAX);
        let more = |pages: u64| (pages < most).then_some(pages + 1);
        self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Lets the next few exchanges skip reclaim. Called when an exchange has succeeded after
    /// reclaim looked at all `pages` pages of the group in vain.
    pub(crate) fn skip_reclaims(&self, pages: usize) {
        self.reclaims_to_skip.store((pages / SKIPPED_SHARE) as u32, Ordering::Relaxed);
    }

    /// Returns whether an exchange should be tried before reclaim, and counts it.
    pub(crate) fn skips_reclaim(&self) -> bool {
        let fewer = |times: u32| times.checked_sub(1);
        self.reclaims_to_skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }

    /// Notes the result of the last attempt to write a page to swap.
    pub(crate) fn was_written(&self, result: Result<(), SwapOutError>) {
        let failure = match result {
            Err(SwapOutError::WriteFailed { area, error }) => Some((area, error)),
            // No area has room, perhaps because an area that failed isn't tried now. Nothing was
            // written, so the previous result stays.
            Err(SwapOutError::Full) => return,
            Ok(()) if !self.has_failed.load(Ordering::Relaxed) => return,
            Ok(()) => None,
        };
        self.has_failed.store(failure.is_some(), Ordering::Relaxed);
        *self.failure.lock() = failure;
    }

    /// Returns the area and the error if the last write to swap failed.
    pub(crate) fn failure(&self) -> Option<(u32, IoError)> {
        *self.failure.lock()
    }

    pub(crate) fn uncharge(&self, pages: u64) {
        let before = self.pages.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "more slots uncharged than charged");
    }
}
