//! A row of cells, by which tests check that a lock keeps threads apart.
#![allow(dead_code, unreachable_pub, reason = "each test uses some of it")]

use std::cell::UnsafeCell;

use span_lock::LockRange;
use sync::atomic::{AtomicU64, Ordering};

const WRITER: u64 = 1 << 32;

/// Cell `n` stands for the `unit` numbers from `n × unit` on. A thread may read or write a cell
/// only while it holds a lock of all these numbers.
pub struct Board {
    inside: Vec<AtomicU64>,
    data: Vec<Data>,
    unit: u64,
}

/// Plain data. If the lock under test is wrong, accesses to it are a data race, which
/// ThreadSanitizer reports.
#[derive(Default)]
struct Data(UnsafeCell<u64>);

// SAFETY: the lock under test keeps threads apart; the counts show if it doesn't.
unsafe impl Sync for Data {}

impl Board {
    pub fn new(cells: usize, unit: u64) -> Self {
        Self {
            inside: (0..cells).map(|_| AtomicU64::new(0)).collect(),
            data: (0..cells).map(|_| Data::default()).collect(),
            unit,
        }
    }

    /// The cells that are wholly within the range.
    fn cells(&self, range: LockRange) -> std::ops::Range<usize> {
        let end = (range.end() / self.unit).min(self.data.len() as u64);
        let start = range.start().div_ceil(self.unit).min(end);
        start as usize..end as usize
    }

    /// Reads all of the range, whose read lock the caller holds.
    pub fn read(&self, range: LockRange) {
        for at in self.cells(range) {
            // Relaxed: the lock orders the accesses; this only counts.
            let before = self.inside[at].fetch_add(1, Ordering::Relaxed);
            assert!(before < WRITER, "a reader of {range} beside a writer");
            // SAFETY: as in `Data`.
            let first = unsafe { self.data[at].0.get().read() };
            // SAFETY: as in `Data`.
            assert_eq!(first, unsafe { self.data[at].0.get().read() });
            self.inside[at].fetch_sub(1, Ordering::Relaxed);
        }
    }

    /// Adds to all of the range, whose write lock the caller holds.
    pub fn write(&self, range: LockRange) {
        for at in self.cells(range) {
            let before = self.inside[at].fetch_add(WRITER, Ordering::Relaxed);
            assert_eq!(before, 0, "a writer of {range} beside others");
            // SAFETY: as in `Data`.
            unsafe { *self.data[at].0.get() += 1 };
            self.inside[at].fetch_sub(WRITER, Ordering::Relaxed);
        }
    }

    /// Returns the sum of all additions. No thread may be using the cells.
    pub fn sum(&mut self) -> u64 {
        self.data.iter_mut().map(|data| *data.0.get_mut()).sum()
    }

    /// Returns the number of cells in the range.
    pub fn len_of(&self, range: LockRange) -> u64 {
        self.cells(range).len() as u64
    }
}
