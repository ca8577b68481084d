//! `foyer-memory` with its S3-FIFO policy: sharded, a lock for each shard, reference-counted
//! entries.

use anyhow::Result;
use foyer_memory::{Cache, CacheBuilder, CacheProperties, S3FifoConfig};

use super::{Hasher, Plan};
use crate::peers::contents::Page;
use crate::peers::source::Source;
use crate::peers::subject::{Misses, Pages};

/// Pages in a `foyer` cache; a reader holds an entry while it copies.
pub(super) struct Foyer {
    cache: Cache<u64, Box<Page>, Hasher, CacheProperties>,
    source: Source,
}

impl Foyer {
    /// As many pages as the budget holds, everything but the policy as shipped.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let cache = CacheBuilder::new(plan.budget_pages as usize)
            .with_eviction_config(S3FifoConfig::default())
            .with_hash_builder(Hasher::default())
            .build();
        Ok(Self { cache, source: plan.source()? })
    }
}

impl Pages for Foyer {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let key = u64::from(page);
        // `get`, then `insert`: the cheapest way. Two threads may load the same page at the same
        // time.
        if let Some(entry) = self.cache.get(&key) {
            into.copy_from_slice(&entry.value()[offset..offset + into.len()]);
            return Ok(());
        }
        let bytes = self.source.load_box(page)?;
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
        self.cache.insert(key, bytes);
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.source.misses()
    }
}
