//! Charges to groups: each group has a counter, and each task keeps a stock of charges, as each CPU
//! does in Linux.

use sync::atomic::{AtomicU64, Ordering};

/// Charges that are taken, and given back, in one go.
const BATCH: u64 = 32;

/// A group's counter, on a line of its own.
#[derive(Default)]
#[repr(align(64))]
struct Charged(AtomicU64);

/// The groups' counters.
pub(crate) struct Charges(Box<[Charged]>);

/// What a task has in stock.
#[derive(Default)]
pub(crate) struct Stock(u64);

impl Charges {
    /// For so many groups.
    pub(crate) fn new(groups: usize) -> Self {
        Self((0..groups).map(|_| Charged::default()).collect())
    }

    /// Charges a page.
    pub(crate) fn charge(&self, group: usize, stock: &mut Stock) {
        if stock.0 == 0 {
            // Relaxed: a number.
            self.0[group].0.fetch_add(BATCH, Ordering::Relaxed);
            stock.0 = BATCH;
        }
        stock.0 -= 1;
    }

    /// Gives charges back.
    pub(crate) fn uncharge(&self, group: usize, stock: &mut Stock, pages: u64) {
        stock.0 += pages;
        if stock.0 > 2 * BATCH {
            self.0[group].0.fetch_sub(stock.0 - BATCH, Ordering::Relaxed);
            stock.0 = BATCH;
        }
    }
}
