//! The stores that write pages to a file: the kernel in two ways, a textbook cache, and Pagefold.

mod mmap;
mod mutex_lru;
pub(super) mod pagefold;
mod pwrite;

use anyhow::{Result, bail};

use crate::peers::contents::Page;
use crate::peers::scratch::Scratch;
use crate::peers::subjects::Kind;

/// Pages that can be overwritten.
pub(crate) trait Store: Send + Sync {
    /// Overwrites a page of the file.
    fn write(&self, page: u32, bytes: &Page) -> Result<()>;

    /// Everything written before survives a power cut when this returns.
    fn sync(&self) -> Result<()>;

    /// How much of its own write-back the subject knows.
    fn written_back(&self) -> Option<WrittenBack> {
        None
    }
}

/// What was written to a file so far.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct WrittenBack {
    pub(crate) pages: u64,
    pub(crate) requests: u64,
}

/// A subject that writes to `file`, with room for `budget_pages` pages if it has its own.
pub(crate) fn build(kind: Kind, file: &Scratch, budget_pages: u32) -> Result<Box<dyn Store>> {
    Ok(match kind {
        Kind::Mmap => Box::new(mmap::MmapStore::new(file)?),
        Kind::Pwrite => Box::new(pwrite::PwriteStore::new(file)?),
        Kind::MutexLru => Box::new(mutex_lru::MutexLruStore::new(file, budget_pages)?),
        Kind::Pagefold => Box::new(pagefold::PagefoldStore::new(file, budget_pages)?),
        other => bail!("{} doesn't write", other.name()),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::peers::scratch;
    use crate::peers::write::possible;

    #[test]
    fn every_store_has_its_pages_on_the_disk_after_a_sync() {
        let directory = scratch::directory_for_tests();
        let file = Scratch::filled(&directory, 1024).unwrap();
        for (number, kind) in possible().into_iter().enumerate() {
            let store = build(kind, &file, 256).unwrap();
            // Twice, so that caches write pages back again that they have evicted before.
            for time in 0..2 {
                for page in 0..1024 {
                    store.write(page, &[(page as u8) ^ (time + 10 * number as u8); 4096]).unwrap();
                }
                store.sync().unwrap();
                for page in (0..1024).step_by(97) {
                    let bytes = file.page(page).unwrap();
                    assert_eq!(bytes.0[4095], (page as u8) ^ (time + 10 * number as u8), "{}", kind.name());
                }
            }
            if let Some(written) = store.written_back() {
                assert!(written.pages >= 2048 && written.requests <= written.pages, "{written:?}");
            }
            drop(store);
            file.forget().unwrap();
        }
        assert!(build(Kind::Moka, &file, 256).is_err());
    }
}
