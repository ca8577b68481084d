//! A textbook cache: one mutex around a map in order of use. Pages are written when they are
//! evicted.
//!
//! It bypasses the kernel's page cache, so that its budget is all the memory that it uses.

use std::fs::File;
use std::num::NonZeroUsize;

use anyhow::{Context, Result, ensure};
use lru::LruCache;
use parking_lot::Mutex;

use super::Store;
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::direct::Aligned;
use crate::peers::scratch::Scratch;

/// Pages that a sync writes before it lets others have the mutex.
const BATCH: usize = 64;

struct Cached {
    /// Where its bytes are.
    slot: usize,
    dirty: bool,
}

/// Pages in an LRU map, written under its mutex.
pub(super) struct MutexLruStore {
    cache: Mutex<Cache>,
    file: File,
}

struct Cache {
    map: LruCache<u32, Cached>,
    /// The bytes of all pages, in one allocation. Aligned pages that are allocated one by one would
    /// take twice the memory.
    bytes: Box<[Aligned<PAGE>]>,
}

impl MutexLruStore {
    /// As many pages as the budget holds.
    pub(super) fn new(file: &Scratch, budget_pages: u32) -> Result<Self> {
        let pages = NonZeroUsize::new(budget_pages as usize).context("a budget of no pages")?;
        let cache = Cache { map: LruCache::new(pages), bytes: Aligned::zeroed_slice(pages.get()) };
        Ok(Self { cache: Mutex::new(cache), file: file.open_direct()? })
    }

    fn write_back(&self, page: u32, bytes: &Page) -> Result<()> {
        let len = rustix::io::pwrite(&self.file, bytes, offset_of(page)).context("cannot write")?;
        ensure!(len == PAGE, "{len} bytes of a page were written");
        Ok(())
    }
}

impl Store for MutexLruStore {
    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        let Cache { map, bytes: all } = &mut *self.cache.lock();
        if let Some(cached) = map.get_mut(&page) {
            all[cached.slot].0 = *bytes;
            cached.dirty = true;
            return Ok(());
        }
        let victim = if map.len() == map.cap().get() { map.pop_lru() } else { None };
        let slot = match victim {
            Some((victim, cached)) => {
                if cached.dirty {
                    self.write_back(victim, &all[cached.slot].0)?;
                }
                cached.slot
            }
            None => map.len(),
        };
        all[slot].0 = *bytes;
        map.put(page, Cached { slot, dirty: true });
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut dirty: Vec<u32> = Vec::new();
        let is_dirty = |(page, cached): (&u32, &Cached)| cached.dirty.then_some(*page);
        dirty.extend(self.cache.lock().map.iter().filter_map(is_dirty));
        dirty.sort_unstable();
        for batch in dirty.chunks(BATCH) {
            let Cache { map, bytes } = &mut *self.cache.lock();
            for page in batch {
                if let Some(cached) = map.peek_mut(page).filter(|cached| cached.dirty) {
                    self.write_back(*page, &bytes[cached.slot].0)?;
                    cached.dirty = false;
                }
            }
        }
        self.file.sync_data().context("cannot sync")
    }
}
