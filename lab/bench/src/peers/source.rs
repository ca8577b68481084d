//! The source from which peers and baselines load missing pages. It also counts these misses.

use std::fs::File;
use std::mem::MaybeUninit;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use anyhow::{Context, Result, ensure};

use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::data_file::DataFile;
use crate::peers::subject::Misses;

/// The pages of one or two files under one numbering. The second file's numbers follow the first
/// file's.
#[derive(Debug)]
pub(crate) struct Source {
    main: File,
    main_pages: u32,
    scanned: Option<File>,
    main_misses: AtomicU64,
    scanned_misses: AtomicU64,
}

impl Source {
    /// The pages of `main`, then those of `scanned`.
    pub(crate) fn new(main: &DataFile, scanned: Option<&DataFile>) -> Result<Self> {
        let clone = |data: &DataFile| data.file().try_clone().context("cannot duplicate a descriptor");
        Ok(Self {
            main: clone(main)?,
            main_pages: main.pages(),
            scanned: scanned.map(clone).transpose()?,
            main_misses: AtomicU64::new(0),
            scanned_misses: AtomicU64::new(0),
        })
    }

    /// Reads a part of a page by one `pread`. Doesn't count as a miss.
    pub(crate) fn read(&self, page: u32, offset: usize, into: &mut [u8]) -> Result<()> {
        let (file, start) = self.place(page)?;
        let len = rustix::io::pread(file, &mut *into, start + offset as u64).context("cannot read the data file")?;
        ensure!(len == into.len(), "the data file ends in page {page}");
        Ok(())
    }

    /// Reads the whole of `page`, which its cache missed.
    pub(crate) fn load(&self, page: u32, into: &mut Page) -> Result<()> {
        self.count(page);
        self.read(page, 0, into)
    }

    /// [`load`](Self::load) into a new box.
    pub(crate) fn load_box(&self, page: u32) -> Result<Box<Page>> {
        let mut bytes = Box::<Page>::new_uninit();
        self.load_uninit(page, &mut bytes)?;
        // SAFETY: `load_uninit` has written the whole page, or failed above.
        Ok(unsafe { bytes.assume_init() })
    }

    /// [`load`](Self::load) into a new `Arc`.
    pub(crate) fn load_arc(&self, page: u32) -> Result<Arc<Page>> {
        let mut bytes = Arc::<Page>::new_uninit();
        self.load_uninit(page, Arc::get_mut(&mut bytes).expect("not shared yet"))?;
        // SAFETY: `load_uninit` has written the whole page, or failed above.
        Ok(unsafe { bytes.assume_init() })
    }

    /// Reads `page` to where `to` points, for memory that is no slice of Rust's.
    ///
    /// # Safety
    /// `to` must point to a page of memory that may be written to. No plain Rust access may touch
    /// the page meanwhile.
    pub(crate) unsafe fn load_raw(&self, page: u32, to: *mut u8) -> Result<()> {
        // SAFETY: `MaybeUninit` has no requirements on the bytes, and the caller is responsible for
        // the rest.
        self.load_uninit(page, unsafe { &mut *to.cast::<MaybeUninit<Page>>() })
    }

    /// On success, all of `into` is initialised.
    fn load_uninit(&self, page: u32, into: &mut MaybeUninit<Page>) -> Result<()> {
        self.count(page);
        let (file, start) = self.place(page)?;
        // SAFETY: an array of `MaybeUninit` has the layout of the `MaybeUninit` array, and may hold
        // anything.
        let bytes = unsafe { &mut *std::ptr::from_mut(into).cast::<[MaybeUninit<u8>; PAGE]>() };
        let (read, _) = rustix::io::pread(file, &mut bytes[..], start).context("cannot read the data file")?;
        ensure!(read.len() == PAGE, "the data file ends in page {page}");
        Ok(())
    }

    /// Misses so far.
    pub(crate) fn misses(&self) -> Misses {
        // Relaxed: read when the threads that count have been joined.
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Misses { main: get(&self.main_misses), scanned: get(&self.scanned_misses) }
    }

    fn count(&self, page: u32) {
        let counter = if page < self.main_pages { &self.main_misses } else { &self.scanned_misses };
        // Relaxed: a statistic.
        counter.fetch_add(1, Ordering::Relaxed);
    }

    fn place(&self, page: u32) -> Result<(&File, u64)> {
        match page.checked_sub(self.main_pages) {
            None => Ok((&self.main, offset_of(page))),
            Some(scanned) => {
                let file = self.scanned.as_ref().with_context(|| format!("there is no page {page}"))?;
                Ok((file, offset_of(scanned)))
            }
        }
    }
}
