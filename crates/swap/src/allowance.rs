//! The memory that compressed pages may take, up to a limit. It is charged before use, chunk by
//! chunk. Some chunks are charged in advance, and kept in a *stock* for when nothing more can be
//! charged.
//!
//! When frames take up the whole budget, an area gets more memory only after an extent of frames
//! has been drained. For that, the pages in the extent must be compressed, which takes memory from
//! the stock. So each use of the stock ([`Need`]) must leave a part of it to the uses above it in
//! this table:
//!
//! | use | must leave in the stock | otherwise |
//! |---|---|---|
//! | *exchanges* ([`Need::Last`]): one page is swapped out so that another can be swapped in | nothing | |
//! | pages in an extent that is being drained ([`Need::Drain`]) | the last chunk, if the limit is 8 chunks or more | no page could be swapped in when memory and the area are full |
//! | all other pages ([`Need::Usual`]) | that last chunk, and enough chunks to drain an extent | no extent could be drained, so the area would never get more memory |
//!
//! A full stock also has chunks for all other pages: a quarter as many as for draining an extent.
//! When the area has reached its limit, draining an extent would give it no more memory. So all
//! other pages may then use the chunks for drains, too.

use std::fmt;

use sync::Arc;
use sync::atomic::{AtomicU64, Ordering};

/// Decides how much memory compressed pages may take.
pub trait Memory: fmt::Debug + Send + Sync {
    /// Charges `bytes`, if there is room for them now. Returns whether it did.
    fn try_charge(&self, bytes: u64) -> bool;

    /// Gives back bytes that were charged.
    fn uncharge(&self, bytes: u64);

    /// Returns the total number of bytes that all users together can charge. It may change.
    fn max(&self) -> u64;
}

/// How much memory a pool may take, and has taken. `Relaxed` throughout: these are counters, and no
/// other data is published by them.
#[derive(Debug)]
pub(crate) struct Allowance {
    memory: Arc<dyn Memory>,
    /// The limit, and the value of [`Memory::max`] at the time when it was set.
    limit: u64,
    of: u64,
    /// Bytes of one chunk, with its tables.
    chunk: u64,
    /// The number of chunks in a full stock.
    full: u64,
    /// Bytes that are charged.
    held: AtomicU64,
    /// Chunks in stock: charged, and not in use.
    stock: AtomicU64,
    /// How many chunks of the stock are kept for [`Need::Last`].
    kept: u64,
    /// How many more are kept for [`Need::Drain`].
    drains: u64,
}

/// The reason why a page is swapped out. It decides how much of the stock the page may use.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Need {
    /// Reclaim evicts the page. It could evict another one.
    Usual,
    /// The page is in an extent of frames that is being drained. The area may get memory from this
    /// extent after the drain.
    Drain,
    /// The page leaves memory so that another page can come in.
    Last,
}

/// An area whose limit is fewer chunks than this keeps no chunk for [`Need::Last`].
const KEEPING_MIN: u64 = 8;

impl Allowance {
    /// Creates an allowance of which nothing is charged yet. `reserve` is the number of bytes of
    /// the stock that are kept for drains.
    pub(crate) fn new(limit: u64, reserve: u64, chunk: u64, memory: Arc<dyn Memory>) -> Self {
        let (held, stock) = (AtomicU64::new(0), AtomicU64::new(0));
        let kept = u64::from(limit / chunk >= KEEPING_MIN);
        let of = memory.max();
        let drains = reserve.div_ceil(chunk);
        let full = kept + drains + drains.div_ceil(4);
        Self { memory, limit, of, chunk, full, held, stock, kept, drains }
    }

    /// Takes the memory of one chunk: charges it if there is room, otherwise uses the stock.
    pub(crate) fn take(&self, need: Need) -> bool {
        let kept = if need == Need::Last { 0 } else { self.kept };
        let left = if need == Need::Usual && !self.is_at_limit() { kept + self.drains } else { kept };
        let less = |stock: u64| (stock > left).then(|| stock - 1);
        // If a kept chunk isn't in stock, the charge leaves room for it below the limit.
        let missing = kept.saturating_sub(self.stock.load(Ordering::Relaxed));
        self.charge(missing) || self.stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less).is_ok()
    }

    /// Returns the most bytes that may be charged in all. This is `limit`, reduced in proportion if
    /// [`Memory::max`] is lower than when `limit` was set.
    pub(crate) fn limit(&self) -> u64 {
        let max = self.memory.max();
        if max >= self.of {
            return self.limit;
        }
        (u128::from(self.limit) * u128::from(max) / u128::from(self.of)) as u64
    }

    /// Returns whether more is charged than the limit allows now, because there is less memory.
    pub(crate) fn is_beyond(&self) -> bool {
        self.held_bytes() > self.limit()
    }

    /// Uncharges one chunk of the stock, if there is one. Returns whether there was.
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

    /// Puts the memory of one chunk back into the stock. If the stock is full, or more is charged
    /// than the limit allows now, uncharges the chunk instead.
    pub(crate) fn give_back(&self) {
        let is_beyond = self.is_beyond();
        let more = |stock: u64| (stock < self.full && !is_beyond).then_some(stock + 1);
        if self.stock.fetch_update(Ordering::Relaxed, Ordering::Relaxed, more).is_err() {
            self.uncharge();
        }
    }

    /// Returns whether the chunk that is kept for [`Need::Last`] is in stock, or can be charged
    /// without exceeding the limit. Returns true if no chunk is kept.
    pub(crate) fn has_kept(&self) -> bool {
        let missing = self.kept.saturating_sub(self.stock.load(Ordering::Relaxed));
        missing == 0 || self.held_bytes() + missing * self.chunk <= self.limit()
    }

    /// Returns the bytes that are charged.
    pub(crate) fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    fn is_at_limit(&self) -> bool {
        self.held_bytes() + self.chunk > self.limit()
    }

    /// Charges chunks for the stock until it is full, or no more can be charged. Returns whether
    /// the stock is full, or the limit is reached.
    pub(crate) fn stock_up(&self) -> bool {
        while self.stock.load(Ordering::Relaxed) < self.full && !self.is_at_limit() {
            if !self.charge(0) {
                return self.is_at_limit();
            }
            self.give_back(); // To the stock, unless others were faster.
        }
        true
    }

    /// Charges one chunk, if there is room below the limit for `more` chunks besides.
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
