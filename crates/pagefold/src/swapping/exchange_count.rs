//! The number of threads that are exchanging pages (`exchange`).

use sync::atomic::{AtomicU32, Ordering};

/// The number of threads that are exchanging pages now. Relaxed throughout: a thread that needs a
/// frame or a slot from one of these threads polls the count and retries.
#[derive(Debug, Default)]
pub(crate) struct ExchangeCount(AtomicU32);

/// One exchanging thread. Until this value is dropped, the thread may still free a frame or a slot
/// that other exchanges need.
#[derive(Debug)]
pub(crate) struct Exchanging<'a>(&'a ExchangeCount);

impl ExchangeCount {
    pub(crate) fn begin(&self) -> Exchanging<'_> {
        self.0.fetch_add(1, Ordering::Relaxed);
        Exchanging(self)
    }

    pub(crate) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Drop for Exchanging<'_> {
    fn drop(&mut self) {
        self.0.0.fetch_sub(1, Ordering::Relaxed);
    }
}
