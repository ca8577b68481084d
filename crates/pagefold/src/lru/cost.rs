//! What it costs to bring a page back.
//!
//! A place in main saves more if its page is used again sooner, or if loading the page costs more.
//! So a challenge compares intervals divided by costs. Without the division, a page that would be
//! swapped to compressed memory could keep its place in main, while a page of a file that is used
//! only a little less often has to be read from a device.
//!
//! | the page | its cost |
//! |---|---|
//! | of a file | one read |
//! | of a file, dirty | one read: it has to be written in any case, whether it is evicted or not |
//! | anonymous, in a slot on a device | one read, if it keeps the slot |
//! | anonymous, written to a slot on a device each time | one read, and a sixteenth of a write |
//! | anonymous, compressed or copied to other memory | an eighth of a read |
//!
//! All anonymous pages of a group count with the same cost. It is the cost in one of the last three
//! rows: the row that applied to the anonymous pages that the group evicted last. The eighth comes
//! from measurements: reading 4 KiB from an NVMe drive takes 80 to 100 µs, and compressing and
//! decompressing a page 4 µs (`BENCHMARKS.md`), or several times that on a slow processor.

use sync::atomic::{AtomicU8, Ordering};

/// The cost of bringing a page back, in sixteenths of a read from a device.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Cost(u8);

impl Cost {
    /// The cost of a page that is read from a file, or from a slot that it kept.
    pub(crate) const READ: Self = Self(16);
    /// The cost of a page that is written, together with others, each time it leaves.
    pub(crate) const WRITTEN: Self = Self(17);
    /// The cost of a page that stays in memory in another form.
    pub(crate) const COPIED: Self = Self(2);

    /// Returns whether a page of this cost is worth less than a page of cost `other`. The first
    /// page is expected to be used again after `expected` loads, the other one after `interval`
    /// loads.
    pub(crate) fn is_worth_less(self, expected: u64, other: Self, interval: u64) -> bool {
        expected.saturating_mul(u64::from(other.0)) > interval.saturating_mul(u64::from(self.0))
    }
}

/// The cost of a group's anonymous pages. Relaxed: only the policy depends on it.
#[derive(Debug)]
pub(crate) struct AnonymousCost(AtomicU8);

impl Default for AnonymousCost {
    fn default() -> Self {
        Self(AtomicU8::new(Cost::READ.0))
    }
}

impl AnonymousCost {
    pub(crate) fn get(&self) -> Cost {
        Cost(self.0.load(Ordering::Relaxed))
    }

    pub(crate) fn set(&self, cost: Cost) {
        if self.get() != cost {
            self.0.store(cost.0, Ordering::Relaxed);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_page_that_saves_more_is_worth_more() {
        assert!(Cost::READ.is_worth_less(11, Cost::READ, 10) && !Cost::READ.is_worth_less(10, Cost::READ, 10));
        assert!(Cost::COPIED.is_worth_less(10, Cost::READ, 79) && !Cost::COPIED.is_worth_less(10, Cost::READ, 80));
        assert!(Cost::READ.is_worth_less(81, Cost::COPIED, 10) && !Cost::READ.is_worth_less(80, Cost::COPIED, 10));
        assert!(!Cost::COPIED.is_worth_less(1 << 40, Cost::READ, u64::MAX), "an unknown interval");
    }
}
