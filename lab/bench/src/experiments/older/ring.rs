//! A doubly linked list, as in Linux, which its user's lock protects. Its words are atomics
//! nevertheless, so that on virtual CPUs each access has its cost.

use sync::atomic::{AtomicU32, Ordering::Relaxed};

use super::records::{Pages, Record};

/// The head, which pages' links call by [`HEAD`].
#[repr(align(64))]
pub(crate) struct Ring {
    next: AtomicU32,
    prev: AtomicU32,
    len: AtomicU32,
}

const HEAD: u32 = u32::MAX;

impl Default for Ring {
    fn default() -> Self {
        Self { next: AtomicU32::new(HEAD), prev: AtomicU32::new(HEAD), len: AtomicU32::new(0) }
    }
}

// Relaxed throughout: the lock orders it.
impl Ring {
    fn next_of<'a>(&'a self, pages: &'a Pages, page: u32) -> &'a AtomicU32 {
        if page == HEAD { &self.next } else { &pages.record(page).next }
    }

    fn prev_of<'a>(&'a self, pages: &'a Pages, page: u32) -> &'a AtomicU32 {
        if page == HEAD { &self.prev } else { &pages.record(page).prev }
    }

    /// Adds a page at the head.
    pub(crate) fn push(&self, pages: &Pages, page: u32) {
        let first = self.next.load(Relaxed);
        let Record { next, prev, .. } = pages.record(page);
        next.store(first, Relaxed);
        prev.store(HEAD, Relaxed);
        self.prev_of(pages, first).store(page, Relaxed);
        self.next.store(page, Relaxed);
        self.len.store(self.len() + 1, Relaxed);
    }

    /// Takes a page of this list off it.
    pub(crate) fn unlink(&self, pages: &Pages, page: u32) {
        let record = pages.record(page);
        let (next, prev) = (record.next.load(Relaxed), record.prev.load(Relaxed));
        self.next_of(pages, prev).store(next, Relaxed);
        self.prev_of(pages, next).store(prev, Relaxed);
        self.len.store(self.len() - 1, Relaxed);
    }

    /// Takes up to `most` pages off the end, all at once. Only the last page that stays, and the
    /// head, are written to.
    pub(crate) fn cut_last(&self, pages: &Pages, most: usize) -> Vec<u32> {
        let mut cut = Vec::with_capacity(most);
        let mut page = self.prev.load(Relaxed);
        while page != HEAD && cut.len() < most {
            cut.push(page);
            page = pages.record(page).prev.load(Relaxed);
        }
        self.next_of(pages, page).store(HEAD, Relaxed);
        self.prev.store(page, Relaxed);
        self.len.store(self.len() - cut.len() as u32, Relaxed);
        cut
    }

    /// Fetches the last pages' records, to write to them. Without the lock, some of them may be
    /// others by now.
    pub(crate) fn prefetch_last(&self, pages: &Pages, most: usize) {
        let mut page = self.prev.load(Relaxed);
        for _ in 0..most {
            let Some(record) = pages.records.get(page as usize) else { return };
            sync::prefetch::prefetch_to_write(record);
            page = record.prev.load(Relaxed);
        }
    }

    /// The first page.
    pub(crate) fn first(&self) -> Option<u32> {
        Some(self.next.load(Relaxed)).filter(|&page| page != HEAD)
    }

    /// The last page.
    pub(crate) fn last(&self) -> Option<u32> {
        Some(self.prev.load(Relaxed)).filter(|&page| page != HEAD)
    }

    /// Its pages.
    pub(crate) fn len(&self) -> u32 {
        self.len.load(Relaxed)
    }
}
