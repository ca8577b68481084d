//! `dashmap`: a sharded concurrent hash map. It never evicts, so it only shows the cost of a
//! lookup.

use anyhow::Result;
use dashmap::DashMap;

use super::{Hasher, Plan};
use crate::peers::contents::Page;
use crate::peers::source::Source;
use crate::peers::subject::{Misses, Pages};

/// Pages in a `DashMap`; a reader holds the read lock of a shard while it copies.
pub(super) struct Dashmap {
    map: DashMap<u64, Box<Page>, Hasher>,
    source: Source,
}

impl Dashmap {
    /// An empty map.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let map = DashMap::with_capacity_and_hasher(plan.data.pages() as usize, Hasher::default());
        Ok(Self { map, source: plan.source()? })
    }
}

impl Pages for Dashmap {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let key = u64::from(page);
        if let Some(bytes) = self.map.get(&key) {
            into.copy_from_slice(&bytes[offset..offset + into.len()]);
            return Ok(());
        }
        let bytes = self.source.load_box(page)?;
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
        self.map.insert(key, bytes);
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.source.misses()
    }
}
