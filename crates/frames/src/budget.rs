//! The memory budget: one number of bytes that nothing exceeds.
//!
//! What is charged, and when:
//! - an *extent* of frames (`extents`), with its share of the frame table, before it is first used. A frame that is
//!   free is still charged, because the system still holds its memory;
//! - a *chunk* of a page map (`chunks`), before the first of its words is used;
//! - what the policy keeps, such as groups and open files, when they are made.
//!
//! I1. `used ≤ max` at every moment, except between a lowering of `max` and the end of the shrinking that it starts.

use sync::atomic::{AtomicU64, Ordering, fence, fence_after_update};

/// Bytes used, and the bytes that may be.
#[derive(Debug)]
pub struct Budget {
    max: AtomicU64,
    used: AtomicU64,
    peak: AtomicU64,
}

impl Budget {
    /// A budget of `max` bytes, none of them used.
    #[must_use]
    pub fn new(max: u64) -> Self {
        Self { max: AtomicU64::new(max), used: AtomicU64::new(0), peak: AtomicU64::new(0) }
    }

    /// The limit in bytes.
    #[must_use]
    pub fn max(&self) -> u64 {
        self.max.load(Ordering::Relaxed)
    }

    /// Bytes charged now.
    #[must_use]
    pub fn used(&self) -> u64 {
        self.used.load(Ordering::Relaxed)
    }

    /// The most bytes that were ever charged.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.peak.load(Ordering::Relaxed)
    }

    /// Bytes that could be charged now.
    #[must_use]
    pub fn room(&self) -> u64 {
        self.max().saturating_sub(self.used())
    }

    /// Charges `bytes` if the limit allows it.
    ///
    /// All accesses here are `Relaxed`: the number arbitrates itself, and nothing else is published through it.
    #[must_use]
    pub fn try_charge(&self, bytes: u64) -> bool {
        self.try_charge_leaving(bytes, 0)
    }

    /// Charges `bytes` if `rest` could still be charged afterwards.
    #[must_use]
    pub(crate) fn try_charge_leaving(&self, bytes: u64, rest: u64) -> bool {
        let max = self.max().saturating_sub(rest);
        let charged = self.used.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |used| {
            used.checked_add(bytes).filter(|&after| after <= max)
        });
        let Ok(before) = charged else { return false };
        // Pairs with the fence in `set_max`: either the limit that was lowered meanwhile is seen here, or whoever
        // lowered it sees this charge and gives back what is too much.
        fence_after_update();
        if before + bytes > self.max() {
            self.uncharge(bytes);
            return false;
        }
        self.peak.fetch_max(before + bytes, Ordering::Relaxed);
        true
    }

    /// Gives back what was charged.
    pub fn uncharge(&self, bytes: u64) {
        let before = self.used.fetch_sub(bytes, Ordering::Relaxed);
        debug_assert!(before >= bytes, "more given back than was charged");
    }

    /// Sets another limit. What is used beyond it is for the caller to give back.
    pub(crate) fn set_max(&self, max: u64) {
        self.max.store(max, Ordering::Relaxed);
        // Before the caller looks at what is used: see `try_charge`.
        fence(Ordering::SeqCst);
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn a_charge_past_the_limit_is_refused_and_changes_nothing() {
        let budget = Budget::new(100);
        assert!(budget.try_charge(60) && !budget.try_charge(41) && budget.try_charge(40));
        assert_eq!((budget.used(), budget.room(), budget.peak()), (100, 0, 100));
        budget.uncharge(100);
        assert!(!budget.try_charge(u64::MAX), "sums are checked");
        assert_eq!((budget.used(), budget.peak()), (0, 100));
    }
}
