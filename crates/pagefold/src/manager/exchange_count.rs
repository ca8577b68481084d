//! How many threads are exchanging pages (`exchange`).

use sync::atomic::{AtomicU32, Ordering};

/// Threads that are exchanging pages just now. Relaxed throughout: a thread that waits for them
/// looks again.
#[derive(Debug, Default)]
pub(crate) struct ExchangeCount(AtomicU32);

/// One of them: until it is dropped, it may give back what others need for theirs.
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
