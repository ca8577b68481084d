//! The stores that read and write the file: the kernel in three ways, a typical io_uring cache with
//! a map, and Pagefold.

mod mmap;
pub(super) mod pagefold;
mod pread;
mod threads;
pub(super) mod uring_lru;

use anyhow::{Result, bail};

use crate::peers::contents::Page;
use crate::peers::disk::log::Log;
use crate::peers::disk::workload::{Operations, Workload};
use crate::peers::scratch::Scratch;
use crate::peers::subjects::Kind;

/// What operations are given to.
pub(super) trait Store {
    /// Executes all operations, `depth` at a time. Writes write version `version` of their pages.
    fn run(&self, operations: &Operations, depth: usize, version: u64) -> Result<Log>;

    /// What was written survives a power cut when this returns.
    fn sync(&self) -> Result<()>;

    /// Whether pages that were read are kept.
    fn keeps(&self) -> bool {
        true
    }

    /// Pages that came from the disk so far, if the subject knows.
    fn pages_in(&self) -> Option<u64> {
        None
    }
}

/// A store that does one operation in the calling thread, for any number of threads.
trait Blocking: Sync {
    /// Reads whole pages from page `first` on.
    fn read(&self, handle: usize, first: u32, into: &mut [u8]) -> Result<()>;

    fn write(&self, page: u32, bytes: &Page) -> Result<()>;

    fn sync(&self) -> Result<()>;

    fn keeps(&self) -> bool {
        true
    }

    fn pages_in(&self) -> Option<u64> {
        None
    }
}

/// A subject for `workload`, with room for `budget_pages` pages if it has its own.
pub(super) fn build(kind: Kind, file: &Scratch, workload: Workload, budget_pages: u32) -> Result<Box<dyn Store>> {
    let pagefold = || Ok::<_, anyhow::Error>(threads::Threads(pagefold::Pagefold::new(file, workload, budget_pages)?));
    Ok(match kind {
        Kind::Mmap => Box::new(threads::Threads(mmap::Mmap::new(file, workload)?)),
        Kind::Pread => Box::new(threads::Threads(pread::Pread::buffered(file, workload)?)),
        Kind::PreadDirect => Box::new(threads::Threads(pread::Pread::direct(file, workload)?)),
        Kind::UringLru => Box::new(uring_lru::UringLru::new(file, budget_pages)?),
        Kind::Pagefold => Box::new(pagefold::Batches(pagefold()?)),
        Kind::PagefoldQueue => Box::new(pagefold::Queue(pagefold()?)),
        Kind::PagefoldAsync => Box::new(pagefold::Futures(pagefold()?)),
        Kind::PagefoldThreads => Box::new(pagefold()?),
        Kind::PagefoldNoUring => {
            let refused = pagefold::Pagefold::without_uring(file, workload, budget_pages)?;
            Box::new(pagefold::Batches(threads::Threads(refused)))
        }
        other => bail!("{} doesn't read from a disk", other.name()),
    })
}

#[cfg(test)]
mod tests {
    use std::time::{Duration, Instant};

    use clap::ValueEnum;

    use super::*;
    use crate::peers::disk::{has, pages, possible, workload};
    use crate::peers::scratch;

    #[test]
    fn every_store_reads_and_writes_what_it_should() {
        const PAGES: u32 = 20_480;
        let directory = scratch::directory_for_tests();
        let file = Scratch::empty(&directory, PAGES).unwrap();
        pages::write_all(&file.open_direct().unwrap(), PAGES).unwrap();
        for (version, kind) in (1..).zip(possible().into_iter().filter(|kind| *kind != Kind::Fio)) {
            let theirs = |workload: &&Workload| has(kind, **workload);
            for &workload in Workload::value_variants().iter().filter(theirs) {
                file.forget().unwrap();
                let store = build(kind, &file, workload, PAGES / 10).unwrap();
                let warm = store.run(&Operations::warming(workload, PAGES), 1, 0).unwrap();
                assert_eq!(warm.pages_read, u64::from(workload::warm_pages(PAGES)));
                let soon = Instant::now() + Duration::from_millis(100);
                let log = store.run(&Operations::new(workload, PAGES, 1, soon), workload.depth(), version).unwrap();
                store.sync().unwrap();
                assert!(log.reads.count() > 0 || workload == Workload::Idle, "{kind:?}, {workload:?}");
                assert_eq!(log.writes > 0, workload == Workload::Mixed, "{kind:?}, {workload:?}");
                drop(store);
                for &page in &log.written {
                    pages::check_version(page, version, &file.page(page).unwrap().0).unwrap();
                }
            }
        }
        assert!(build(Kind::Moka, &file, Workload::Mixed, 1024).is_err());
    }

    #[test]
    fn every_store_notices_wrong_bytes() {
        const PAGES: u32 = 20_480;
        let directory = scratch::directory_for_tests();
        let file = Scratch::empty(&directory, PAGES).unwrap();
        pages::write_all(&file.open_direct().unwrap(), PAGES).unwrap();
        rustix::io::pwrite(file.file(), b"wrong", 4096 * 5000).unwrap();
        file.forget().unwrap();
        for kind in possible().into_iter().filter(|kind| *kind != Kind::Fio) {
            for workload in
                [Workload::Random16, Workload::Sequential].into_iter().filter(|workload| has(kind, *workload))
            {
                let store = build(kind, &file, workload, PAGES / 10).unwrap();
                let operations = Operations::new(workload, PAGES, 1, Instant::now() + Duration::from_secs(3600));
                let error = store.run(&operations, workload.depth(), 1).unwrap_err();
                assert!(error.to_string().contains("page 5000 was read as something else"), "{kind:?}: {error}");
            }
        }
    }
}
