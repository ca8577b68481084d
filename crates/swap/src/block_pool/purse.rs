//! A fixed number of bytes that can be charged: replaces the budget in tests.

use sync::atomic::{AtomicU64, Ordering};

use crate::allowance::Memory;

#[derive(Debug)]
pub(super) struct Purse(pub(super) AtomicU64);

impl Memory for Purse {
    fn try_charge(&self, bytes: u64) -> bool {
        self.0.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |rest| rest.checked_sub(bytes)).is_ok()
    }

    fn uncharge(&self, bytes: u64) {
        self.0.fetch_add(bytes, Ordering::Relaxed);
    }

    fn max(&self) -> u64 {
        u64::MAX
    }
}
