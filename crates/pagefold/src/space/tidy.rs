//! Frees tables of the index that aren't needed any more.
//!
//! A table isn't needed if nothing is mapped at the pages that it covers. A leaf, which has a word
//! for each page, isn't needed, either, if all its pages have the same entry.
//!
//! Other threads may use any page that a table covers, so a thread must lock all of these pages
//! before it frees the table. A thread that unmaps has locked only the pages that it unmaps. It
//! must not wait for more locks while it holds this lock: two such threads could deadlock. So
//! `tidy` runs after these pages were unlocked, and tries to lock all pages of the table.
//!
//! Unmapping doesn't free tables at once. Otherwise, if the same few pages were mapped and unmapped
//! again and again, a table would be made and freed each time. Instead, `unmap` only *notes* the
//! tables that cover its pages. `tidy` looks at all noted tables once there are many of them, or
//! when there is no room for a new table.

use std::collections::BTreeSet;

use span_lock::RangeWriteGuard;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::Mutex;

use super::SpaceState;
use super::address::Pages;
use super::index::Close;
use super::tree::{GRANULE_SHIFT, PART_SHIFT, REGION_SHIFT};
use crate::error::Error;

/// Noted tables are looked at when there are this many, plus a few for each CPU.
const NOTED_MIN: usize = 16;
const NOTED_PER_CPU: usize = 4;

/// The noted tables, by what they cover: (s, p) is the table of 2^s pages from page p on.
#[derive(Debug, Default)]
pub(super) struct Noted {
    tables: Mutex<BTreeSet<(u32, u64)>>,
    /// Set if tables were made for a change that then failed. These tables may cover nothing that
    /// is mapped, and should then be freed. So `tidy` runs as soon as the change's lock is dropped.
    in_vain: AtomicBool,
}

/// Locked pages of a space. Dropping this unlocks the pages, and then runs `tidy` if tables were
/// made in vain.
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
        // Relaxed: if this thread made tables in vain, it has set the flag itself. If another
        // thread did, that thread tidies.
        if self.space.noted.in_vain.load(Ordering::Relaxed) {
            self.space.tidy();
        }
    }
}

impl SpaceState {
    /// Notes the tables that cover `pages`: those at both ends, and those in between. The pages are
    /// unmapped, but still locked. Returns whether many tables are noted.
    pub(super) fn note(&self, pages: Pages) -> bool {
        let marked = [pages.first, pages.end - 1].map(|page| self.index.mark(page));
        if marked == [None, None] && pages.first >> REGION_SHIFT == (pages.end - 1) >> REGION_SHIFT {
            return false;
        }
        let mut tables = self.noted.tables.lock();
        tables.extend(marked.into_iter().flatten());
        // Regions and parts in between: all of their pages are unmapped now.
        tables.extend(self.index.regions(pages).map(|(region, _)| (REGION_SHIFT, region.first())));
        if pages.first >> PART_SHIFT != (pages.end - 1) >> PART_SHIFT {
            tables.extend(self.index.parts(pages).map(|first| (PART_SHIFT, first)));
        }
        tables.len() >= NOTED_MIN + NOTED_PER_CPU * sync::cpu::count()
    }

    /// Frees the noted tables that aren't needed. Waits for no range: a table that can't be locked
    /// stays noted.
    pub(super) fn tidy(&self) {
        self.noted.in_vain.store(false, Ordering::Relaxed);
        let mut noted = std::mem::take(&mut *self.noted.tables.lock());
        let mut later = BTreeSet::new();
        // The smallest first: freeing one may leave the table above it empty.
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

    /// Makes the tables that a change of `pages` needs. The caller must have locked `pages`. If
    /// there is no room for the tables, frees tables that aren't needed, and tries again.
    pub(super) fn prepare(&self, pages: Pages) -> Result<(), Error> {
        let prepared = self.index.prepare(self.payer(), pages).or_else(|_| {
            self.tidy();
            self.index.prepare(self.payer(), pages)
        });
        prepared.inspect_err(|_| self.note_in_vain(pages))
    }

    /// Notes tables that were made for a change of `pages` that failed. The pages are still locked.
    pub(super) fn note_in_vain(&self, pages: Pages) {
        self.note(pages);
        let parts = pages.first >> PART_SHIFT..=(pages.end - 1) >> PART_SHIFT;
        self.noted.tables.lock().extend(parts.map(|part| (PART_SHIFT, part << PART_SHIFT)));
        self.noted.in_vain.store(true, Ordering::Relaxed);
    }
}
