//! Tables of the index that aren't needed any more.
//!
//! A table goes when nothing is mapped in it, or, of a leaf, when its pages are alike. As another
//! thread may be at other pages of it, that takes a lock of all that it covers, which is tried once
//! the pages that were unmapped are no longer locked. Mapping and unmapping the same few pages
//! again and again mustn't make and give back a table each time: so tables are only *noted* when
//! pages of theirs are unmapped, and looked at together when there are many, or when there is no
//! room for a new one.

use std::collections::BTreeSet;

use span_lock::RangeWriteGuard;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::Mutex;

use super::SpaceState;
use super::address::Pages;
use super::index::Close;
use super::tree::{GRANULE_SHIFT, PART_SHIFT, REGION_SHIFT};
use crate::error::Error;

/// Tables that are noted before they are looked at: so many, and a few for each CPU.
const NOTED_MIN: usize = 16;
const NOTED_PER_CPU: usize = 4;

/// What the tables that may not be needed any more cover: 2^the first pages, from the second on.
#[derive(Debug, Default)]
pub(super) struct Noted {
    tables: Mutex<BTreeSet<(u32, u64)>>,
    /// Some of them were made for a change that wasn't made, and nothing may be mapped in them:
    /// they are looked at as soon as that is over.
    in_vain: AtomicBool,
}

/// Locked pages of a space.
pub(super) struct Locked<'a> {
    guard: Option<RangeWriteGuard<'a>>,
    space: &'a SpaceState,
}

impl<'a> Locked<'a> {
    pub(super) fn new(space: &'a SpaceState, guard: RangeWriteGuard<'a>) -> Self {
        Self { guard: Some(guard), space }
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        self.guard = None;
        // Relaxed: a hint, which this thread has set itself, if any.
        if self.space.noted.in_vain.load(Ordering::Relaxed) {
            self.space.tidy();
        }
    }
}

impl SpaceState {
    /// Notes the tables at the ends of pages that are unmapped, and still locked. Returns whether
    /// there are many.
    pub(super) fn note(&self, pages: Pages) -> bool {
        let marked = [pages.first, pages.end - 1].map(|page| self.index.mark(page));
        if marked == [None, None] && pages.first >> REGION_SHIFT == (pages.end - 1) >> REGION_SHIFT {
            return false;
        }
        let mut tables = self.noted.tables.lock();
        tables.extend(marked.into_iter().flatten());
        // Regions in between, all of whose pages are unmapped now.
        tables.extend(self.index.regions(pages).map(|(region, _)| (REGION_SHIFT, region.first())));
        tables.len() >= NOTED_MIN + NOTED_PER_CPU * sync::cpu::count()
    }

    /// Gives back what was noted and isn't needed. Waits for no range.
    pub(super) fn tidy(&self) {
        self.noted.in_vain.store(false, Ordering::Relaxed);
        let mut noted = std::mem::take(&mut *self.noted.tables.lock());
        let mut later = BTreeSet::new();
        // The smallest first: that may leave the one above without anything.
        while let Some((shift, first)) = noted.pop_first() {
            let pages = Pages { first, end: first + (1 << shift) };
            let Some(_guard) = self.lock.try_write(self.lock_range(pages)) else {
                later.insert((shift, first));
                continue;
            };
            let above = match shift {
                GRANULE_SHIFT => REGION_SHIFT,
                _ => PART_SHIFT,
            };
            if self.index.close(self.payer(), shift, first) == Close::Closed && shift != PART_SHIFT {
                noted.insert((above, first >> above << above));
            }
        }
        if !later.is_empty() {
            self.noted.tables.lock().extend(later);
        }
    }

    /// Has tables for a change of `pages`, which are locked; if there is no room for them, what
    /// isn't needed goes first.
    pub(super) fn prepare(&self, pages: Pages) -> Result<(), Error> {
        let prepared = self.index.prepare(self.payer(), pages).or_else(|_| {
            self.tidy();
            self.index.prepare(self.payer(), pages)
        });
        prepared.inspect_err(|_| self.note_in_vain(pages))
    }

    /// Notes what was made for a change of `pages`, which are still locked, and isn't needed for
    /// it.
    fn note_in_vain(&self, pages: Pages) {
        self.note(pages);
        let parts = pages.first >> PART_SHIFT..=(pages.end - 1) >> PART_SHIFT;
        self.noted.tables.lock().extend(parts.map(|part| (PART_SHIFT, part << PART_SHIFT)));
        self.noted.in_vain.store(true, Ordering::Relaxed);
    }
}
