//! What people write: one mutex around a map in order of use.

use std::num::NonZeroUsize;

use anyhow::{Context, Result};
use lru::LruCache;
use parking_lot::Mutex;

use super::Plan;
use crate::peers::contents::Page;
use crate::peers::source::Source;
use crate::peers::subject::{Misses, Pages};

/// Pages in an LRU map; a reader holds the mutex while it copies, but not while it loads.
pub(super) struct MutexLru {
    map: Mutex<LruCache<u64, Box<Page>>>,
    source: Source,
}

impl MutexLru {
    /// As many pages as the budget holds.
    pub(super) fn new(plan: &Plan<'_>) -> Result<Self> {
        let pages = NonZeroUsize::new(plan.budget_pages as usize).context("a budget of no pages")?;
        Ok(Self { map: Mutex::new(LruCache::new(pages)), source: plan.source()? })
    }

    /// The buffer of the least recently used page if the map is full: a load reuses it.
    fn reclaim(map: &mut LruCache<u64, Box<Page>>) -> Option<Box<Page>> {
        if map.len() < map.cap().get() {
            return None;
        }
        map.pop_lru().map(|(_, buffer)| buffer)
    }
}

impl Pages for MutexLru {
    #[inline(always)]
    fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let key = u64::from(page);
        let mut map = self.map.lock();
        if let Some(bytes) = map.get(&key) {
            into.copy_from_slice(&bytes[offset..offset + into.len()]);
            return Ok(());
        }
        let buffer = Self::reclaim(&mut map);
        drop(map);
        let bytes = match buffer {
            Some(mut buffer) => {
                self.source.load(page, &mut buffer)?;
                buffer
            }
            None => self.source.load_box(page)?,
        };
        into.copy_from_slice(&bytes[offset..offset + into.len()]);
        self.map.lock().put(key, bytes);
        Ok(())
    }

    fn misses(&self) -> Misses {
        self.source.misses()
    }
}
