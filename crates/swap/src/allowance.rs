//! How much memory compressed pages take: charged before it is used, chunk by chunk, up to a limit,
//! with some of it in stock.
//!
//! The last chunk is kept for pages that go so that others can come ([`Need::Last`]): else none
//! could come back from a full area.

use std::fmt;

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

/// Decides how much memory compressed pages may take.
pub trait Memory: fmt::Debug + Send + Sync {
    /// Charges so many bytes, if there is room for them now.
    fn try_charge(&self, bytes: u64) -> bool;

    /// Gives back what was charged.
    fn uncharge(&self, bytes: u64);

    /// How much could be charged, by all together: may change.
    fn max(&self) -> u64;
}

/// How much memory a pool may take, and has. `Relaxed` throughout: numbers that arbitrate
/// themselves.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory: Arc<dyn Memory>,
    /// The limit, and what part of that it was of how much memory there was.
    limit: u64,
    of: u64,
    /// What a chunk costs.
    chunk: u64,
    /// Chunks that the stock should have.
    reserve: u64,
    /// Bytes that are charged.
    held: AtomicU64,
    /// Chunks in stock: charged, and not in use.
    stock: AtomicU64,
    /// How many of those are kept.
    kept: u64,
}

/// How badly memory is needed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Need {
    /// There are other places.
    Usual,
    /// For a page in whose place another one comes.
    Last,
}

/// Limits of fewer chunks keep none.
const KEEPING_MIN: u64 = 8;

impl Allowance {
    pub(crate) fn new(limit: u64, reserve: u64, chunk: u64, memory: Arc<dyn Memory>) -> Self {
        let (held, stock) = (AtomicU64::new(0), AtomicU64::new(0));
        let kept = u64::from(limit / chunk >= KEEPING_MIN);
        let of = memory.max();
        Self { memory, limit, of, chunk, reserve: reserve.div_ceil(chunk) + kept, held, stock, kept }
    }

    /// Takes what a chunk costs: from outside as long as there is something, then from the stock.
    pub(crate) fn take(&self, need: Need) -> bool {
        let kept = if need == Need::Last { 0 } else { self.kept };
        let less = |stock: u64| (stock > kept).then(|| stock - 1);
        // What is kept and isn't in stock has its room below the limit.
        let missing = kept.saturating_sub(self.stock.load(Ordering::Relaxed));
        self.charge(missing) || self.stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// The most that may be charged now: of less memory than there was, the same part.
    pub(crate) fn limit(&self) -> u64 {
        let max = self.memory.max();
        if max >= self.of {
            return self.limit;
        }
        (u128::from(self.limit) * u128::from(max) / u128::from(self.of)) as u64
    }

    /// Whether more is charged than may be, as there is less memory.
    pub(crate) fn is_beyond(&self) -> bool {
        self.held_bytes() > self.limit()
    }

    /// Gives up a chunk of the stock, if there is one.
    pub(crate) fn give_up_stock(&self) -> bool {
        let less = |stock: u64| stock.checked_sub(1);
        let is_less = self.stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok();
        if is_less {
            self.uncharge();
        }
        is_less
    }

    fn uncharge(&self) {
        self.held.fetch_sub(self.chunk, Ordering::Relaxed);
        self.memory.uncharge(self.chunk);
    }

    /// Gives it back: to the stock, if that lacks something.
    pub(crate) fn give_back(&self) {
        let is_beyond = self.is_beyond();
        let more = |stock: u64| (stock < self.reserve && !is_beyond).then_some(stock + 1);
        if self.stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            self.uncharge();
        }
    }

    /// Whether what is kept for the last need is in stock, or has its room below the limit.
    pub(crate) fn has_kept(&self) -> bool {
        let missing = self.kept.saturating_sub(self.stock.load(Ordering::Relaxed));
        missing == 0 || self.held_bytes() + missing * self.chunk <= self.limit()
    }

    /// Bytes that are charged.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn is_at_limit(&self) -> bool {
        self.held_bytes() + self.chunk > self.limit()
    }

    /// Has the stock filled up as far as memory is to be had. Says whether it is, or the limit is
    /// reached.
    pub(crate) fn stock_up(&self) -> bool {
        while self.stock.load(Ordering::Relaxed) < self.reserve && !self.is_at_limit() {
            if !self.charge(0) {
                return self.is_at_limit();
            }
            self.give_back(); // To the stock, unless others were faster.
        }
        true
    }

    /// Charges what a chunk costs, if there is room for that and so many more.
    fn charge(&self, more: u64) -> bool {
        let (room, limit) = ((1 + more) * self.chunk, self.limit());
        let more = |held: u64| (held + room <= limit).then_some(held + self.chunk);
        let fits = self.held.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_ok();
        if fits && !self.memory.try_charge(self.chunk) {
            self.held.fetch_sub(self.chunk, Ordering::Relaxed);
            return false;
        }
        fits
    }
}

impl Drop for Allowance {
    fn drop(&mut self) {
        self.memory.uncharge(self.held.load(Ordering::Relaxed));
    }
}
