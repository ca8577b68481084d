//! How many pages of a group are in swap slots, and how many may be.
//!
//! As with charges for memory, what CPUs have in stock counts: slots are charged for a batch at a
//! time, and what is freed one by one goes to the CPU's stock first, and is charged from there
//! (`stocks` has the invariants). So the limit holds at every moment, but for [`BEYOND_MAX`] slots
//! while pages change places (`swapping::exchange`), and a page that comes back writes to nothing
//! that CPUs share. A limit that is lowered takes nothing away: what is in use may go on changing
//! places, and is never more than before.

use swap::SwapOutError;
use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;
use sync::{CachePadded, ThreadCounter};

use io::IoError;

/// Slots that a group may have beyond its `swap_max` while pages change places.
pub(crate) const BEYOND_MAX: u64 = 8;
/// The part of a group's pages that change places before reclaim, which looks at all of them, is
/// tried again.
const SKIPPED_SHARE: usize = 8;

/// Of one group. `Relaxed` throughout: numbers.
#[derive(Debug)]
pub(crate) struct Swapped {
    /// Pages in slots, and what CPUs have in stock.
    pages: CachePadded<AtomicU64>,
    max: AtomicU64,
    /// The fewest pages in slots that an exchange has found since the limit was set: exchanges may
    /// use as many slots, too.
    in_use: AtomicU64,
    /// So many pages are to change places without a look for any that can simply go.
    reclaims_to_skip: AtomicU32,
    /// Pages that came back, pages that went, and those of them that needed no slot: they repeated
    /// one word.
    pub(crate) ins: ThreadCounter,
    pub(crate) outs: AtomicU64,
    pub(crate) same_filled: AtomicU64,
    /// Pages read from slots and written to them.
    pub(crate) read: ThreadCounter,
    pub(crate) written: AtomicU64,
    /// Pages that came along with others, and those of them that left memory unused.
    pub(crate) along: AtomicU64,
    pub(crate) along_wasted: AtomicU64,
    /// The area that failed when one of its pages was last written to swap, and its device's
    /// answer.
    failure: Mutex<Option<(u32, IoError)>>,
    has_failed: AtomicBool,
}

impl Swapped {
    /// Nothing, and no limit.
    pub(crate) fn new() -> Self {
        Self {
            pages: CachePadded::new(AtomicU64::new(0)),
            max: AtomicU64::new(u64::MAX),
            in_use: AtomicU64::new(0),
            reclaims_to_skip: AtomicU32::new(0),
            ins: ThreadCounter::default(),
            outs: AtomicU64::new(0),
            same_filled: AtomicU64::new(0),
            read: ThreadCounter::default(),
            written: AtomicU64::new(0),
            along: AtomicU64::new(0),
            along_wasted: AtomicU64::new(0),
            failure: Mutex::new(None),
            has_failed: AtomicBool::new(false),
        }
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

    /// Whether pages that changed places took slots beyond the limit: what comes into stock then is
    /// not to be used.
    pub(crate) fn is_beyond_max(&self) -> bool {
        let max = self.max();
        max != u64::MAX && self.pages() > max
    }

    /// Charges up to `wanted` slots, and says how many. Without a limit by one addition, however
    /// many CPUs do so.
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

    /// Charges a slot for a page in whose place another one comes back: a few beyond the limit, or
    /// beyond what was in use when it was lowered, if need be. False if they are all charged.
    pub(crate) fn charge_one_more(&self) -> bool {
        let in_use = self.pages();
        let in_use = self.in_use.fetch_min(in_use, Ordering::Relaxed).min(in_use);
        let most = self.max().max(in_use).saturating_add(BEYOND_MAX);
        let more = |pages: u64| (pages < most).then_some(pages + 1);
        self.pages.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok()
    }

    /// Reclaim looked at all `pages` of the group in vain, and two changed places: the next few may
    /// do so at once.
    pub(crate) fn skip_reclaims(&self, pages: usize) {
        self.reclaims_to_skip.store((pages / SKIPPED_SHARE) as u32, Ordering::Relaxed);
    }

    /// Whether pages should change places before anything is reclaimed. Counts how often it says
    /// so.
    pub(crate) fn skips_reclaim(&self) -> bool {
        let fewer = |times: u32| times.checked_sub(1);
        self.reclaims_to_skip.fetch_update(Ordering::Relaxed, Ordering::Relaxed, fewer).is_ok()
    }

    /// Notes what became of the last page that was to be written.
    pub(crate) fn was_written(&self, result: Result<(), SwapOutError>) {
        let failure = match result {
            Err(SwapOutError::WriteFailed { area, error }) => Some((area, error)),
            // Areas that have no room, perhaps because one that failed isn't tried now.
            Err(SwapOutError::Full) => return,
            Ok(()) if !self.has_failed.load(Ordering::Relaxed) => return,
            Ok(()) => None,
        };
        self.has_failed.store(failure.is_some(), Ordering::Relaxed);
        *self.failure.lock() = failure;
    }

    /// The area and the error of the last page's failure.
    pub(crate) fn failure(&self) -> Option<(u32, IoError)> {
        *self.failure.lock()
    }

    pub(crate) fn uncharge(&self, pages: u64) {
        let before = self.pages.fetch_sub(pages, Ordering::Relaxed);
        debug_assert!(before >= pages, "more slots uncharged than charged");
    }
}
