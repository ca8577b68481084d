//! `moka`: a concurrent hash map with a TinyLFU policy. Its callers take turns at its maintenance.

use std::sync::Arc;

use anyhow::Result;
use moka::sync::Cache;

use super::{Hasher, Plan};
use crate::peers::contents::Page;
use crate::peers::source::Source;
use crate::peers::subject::{Misses, Pages};

/// Pages in a `moka` cache; a reader holds an `Arc` while it copies.
pub(super) struct Moka {
    cache: Cache<u64, Arc<Page>, Hasher>,
    source: Source,
}

impl Moka {
    /// As many pages as the budget holds, everything else as shipped.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let cache = Cache::builder().max_capacity(u64::from(plan.budget_pages)).build_with_hasher(Hasher::default());
        Ok(Self { cache, source: plan.source()? })
    }
}

impl Pages for Moka {
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
