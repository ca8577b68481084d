//! What people write: one mutex around a map in order of use, and pages written when they leave it.
//!
//! Past the kernel's page cache, so that its budget is one.

use std::fs::File;
use std::num::NonZeroUsize;

use anyhow::{Context, Result, ensure};
use lru::LruCache;
use parking_lot::Mutex;

use super::Store;
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::write::disk::Aligned;
use crate::peers::write::scratch::Scratch;

/// Pages that a sync writes before it lets others have the mutex.
const BATCH: usize = 64;

struct Cached {
    bytes: Box<Aligned<PAGE>>,
    dirty: bool,
}

/// Pages in an LRU map, written under its mutex.
pub(super) struct MutexLruStore {
    map: Mutex<LruCache<u32, Cached>>,
    file: File,
}

impl MutexLruStore {
    /// As many pages as the budget holds.
    pub(super) fn new(file: &Scratch, budget_pages: u32) -> Result<Self> {
        let pages = NonZeroUsize::new(budget_pages as usize).context("a budget of no pages")?;
        Ok(Self { map: Mutex::new(LruCache::new(pages)), file: file.open_direct()? })
    }

    fn write_back(&self, page: u32, cached: &mut Cached) -> Result<()> {
        let len = rustix::io::pwrite(&self.file, &cached.bytes.0, offset_of(page)).context("cannot write")?;
        ensure!(len == PAGE, "{len} bytes of a page were written");
        cached.dirty = false;
        Ok(())
    }
}

impl Store for MutexLruStore {
    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        let mut map = self.map.lock();
        if let Some(cached) = map.get_mut(&page) {
            cached.bytes.0 = *bytes;
            cached.dirty = true;
            return Ok(());
        }
        let full = map.len() == map.cap().get();
        let mut buffer = match if full { map.pop_lru() } else { None } {
            Some((victim, mut cached)) => {
                if cached.dirty {
                    self.write_back(victim, &mut cached)?;
                }
                cached.bytes
            }
            None => Aligned::zeroed(),
        };
        buffer.0 = *bytes;
        map.put(page, Cached { bytes: buffer, dirty: true });
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        let mut dirty: Vec<u32> = Vec::new();
        dirty.extend(self.map.lock().iter().filter(|(_, cached)| cached.dirty).map(|(page, _)| *page));
        dirty.sort_unstable();
        for batch in dirty.chunks(BATCH) {
            let mut map = self.map.lock();
            for page in batch {
                if let Some(cached) = map.peek_mut(page).filter(|cached| cached.dirty) {
                    self.write_back(*page, cached)?;
                }
            }
        }
        self.file.sync_data().context("cannot sync")
    }
}
