//! What came of operations, while they are done.

use std::time::{Duration, Instant};

use anyhow::{Result, ensure};

use crate::peers::contents::PAGE;
use crate::peers::disk::pages;
use crate::peers::disk::workload::Operation;
use crate::peers::latency::Latencies;

/// After the run, up to this many written pages of each thread are checked.
const REMEMBERED: usize = 64;

/// Of one thread, or of all.
#[derive(Clone, Debug, Default)]
pub(super) struct Log {
    pub(super) reads: Latencies,
    pub(super) pages_read: u64,
    pub(super) writes: u64,
    /// Some that were written.
    pub(super) written: Vec<u32>,
}

impl Log {
    /// A read is over; `bytes` are what came.
    pub(super) fn read(&mut self, operation: Operation, bytes: &[u8], took: Duration) -> Result<()> {
        ensure!(bytes.len() == operation.pages as usize * PAGE, "{} bytes came", bytes.len());
        pages::check(operation.page, bytes)?;
        self.reads.note(took);
        self.pages_read += u64::from(operation.pages);
        Ok(())
    }

    /// A write is over.
    pub(super) fn wrote(&mut self, operation: Operation) {
        self.writes += 1;
        if self.written.len() < REMEMBERED {
            self.written.push(operation.page);
        }
    }

    /// Another thread's.
    pub(super) fn add(&mut self, other: &Self) {
        self.reads.add(&other.reads);
        self.pages_read += other.pages_read;
        self.writes += other.writes;
        self.written.extend(&other.written);
    }
}

/// The time to check a page, in nanoseconds, if its bytes are in the processor's caches.
pub(super) fn check_ns() -> f64 {
    const TIMES: u32 = 1000;
    let mut page = [0; PAGE];
    pages::fill(1, 0, &mut page);
    let start = Instant::now();
    for _ in 0..TIMES {
        let checked = pages::check(1, std::hint::black_box(&page));
        debug_assert!(checked.is_ok());
    }
    start.elapsed().as_nanos() as f64 / f64::from(TIMES)
}
