//! `quick_cache`: sharded, S3-FIFO-like, a read-write lock for each shard.

use std::sync::Arc;

use anyhow::Result;
use quick_cache::UnitWeighter;
use quick_cache::sync::{Cache, DefaultLifecycle};

use super::{Hasher, Plan};
use crate::peers::contents::Page;
use crate::peers::source::Source;
use crate::peers::subject::{Misses, Pages};

/// Pages in a `quick_cache`; a reader holds an `Arc` while it copies.
pub(super) struct QuickCache {
    cache: Cache<u64, Arc<Page>, UnitWeighter, Hasher>,
    source: Source,
}

impl QuickCache {
    /// As many pages as the budget holds, everything else as shipped.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let (items, weight) = (plan.budget_pages as usize, u64::from(plan.budget_pages));
        let cache = Cache::with(items, weight, UnitWeighter, Hasher::default(), DefaultLifecycle::default());
        Ok(Self { cache, source: plan.source()? })
    }
}

impl Pages for QuickCache {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let key = u64::from(page);
        // `get`, then `insert`: the cheapest way. Two threads may load the same page at the same
        // time.
        if let Some(bytes) = self.cache.get(&key) {
            into.copy_from_slice(&bytes[offset..offset + into.len()]);
            return Ok(());
        }
        let bytes = self.source.load_arc(page)?;
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
        self.cache.insert(key, bytes);
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.source.misses()
    }
}
