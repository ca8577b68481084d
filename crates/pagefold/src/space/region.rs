//! A part of a space, aligned to its size: page words, and what is mapped.

use std::ops::Range;

use frames::{MapNumber, PageMap};
use sync::Arc;

use super::entries::{Entries, GRANULE_SHIFT};
use super::entry::Entry;
use crate::error::Error;
use crate::manager::Manager;

/// Pages in a region, as a power of two: a segment of page words.
pub(super) const REGION_SHIFT: u32 = 18;
pub(super) const REGION_PAGES: u64 = 1 << REGION_SHIFT;

const GRANULES: usize = 1 << (REGION_SHIFT - GRANULE_SHIFT);

/// Bytes that a region takes, and the entries of a granule's pages; rounded up.
pub(super) const REGION_BYTES: u64 = 20 << 10;
pub(super) const LEAF_BYTES: u64 = 4 << 10;

/// Pages `0..REGION_PAGES` of a region.
pub(super) struct Region {
    /// Its first page's number in the space.
    pub(super) first: u64,
    pub(super) map: PageMap,
    pub(super) map_number: MapNumber,
    pub(super) entries: Entries<GRANULES>,
}

impl Region {
    pub(super) fn new(manager: &Manager, first: u64) -> Result<Self, Error> {
        let map = PageMap::new(Arc::clone(&manager.frames), REGION_PAGES)
            .map_err(|error| Error::System { what: "reserve page words", error: error.to_string() })?;
        Ok(Self { first, map_number: map.number(), map, entries: Entries::new() })
    }

    /// What is mapped at a page.
    #[inline]
    pub(super) fn entry(&self, page: u64) -> Entry {
        self.entry_of_granule(page).0
    }

    /// The same, and whether it holds for the page's whole granule.
    #[inline]
    pub(super) fn entry_of_granule(&self, page: u64) -> (Entry, bool) {
        let (entry, whole) = self.entries.get(page);
        (Entry(entry), whole)
    }

    /// Whether that is mapped at a page.
    #[inline]
    pub(super) fn has_entry(&self, page: u64, entry: Entry) -> bool {
        self.entries.is(page, entry.0)
    }

    /// Changes the entries of pages within one granule: [`Entries::change`].
    pub(super) fn change(&self, pages: Range<u64>, to: Entry) {
        self.entries.change(pages, to.0);
    }
}
