//! What is mapped where: the one index of a space, read without a lock.

use std::ops::Range;

use sync::atomic::{AtomicU64, Ordering};

use super::address::Pages;
use super::entries::GRANULE_PAGES;
use super::entry::Entry;
use super::lazy_table::LazyTable;
use super::region::{LEAF_BYTES, REGION_BYTES, REGION_PAGES, REGION_SHIFT, Region};
use crate::error::Error;
use crate::manager::Manager;

/// Enough for all regions of a space of pages of 4 KiB.
type Regions = LazyTable<Region, 512>;

/// The regions of a space. Regions come, and stay until the space goes.
pub(super) struct Index {
    regions: Regions,
    /// What was charged to the budget.
    charged: AtomicU64,
}

impl Index {
    pub(super) fn new(manager: &Manager) -> Result<Self, Error> {
        manager.charge_metadata(Regions::BYTES)?;
        Ok(Self { regions: Regions::new(), charged: AtomicU64::new(Regions::BYTES) })
    }

    /// The region of a page, if anything was ever mapped there.
    #[inline]
    pub(super) fn region(&self, page: u64) -> Option<&Region> {
        self.regions.get(page >> REGION_SHIFT)
    }

    /// Has memory for entries of `pages`, so that changing all of them to one can't fail. (Several have to be prepared each.)
    pub(super) fn prepare(&self, manager: &Manager, pages: Pages) -> Result<(), Error> {
        for number in pages.first >> REGION_SHIFT..=(pages.end - 1) >> REGION_SHIFT {
            if self.region(number << REGION_SHIFT).is_none() {
                self.prepare_region(manager, number)?;
            }
        }
        for page in [pages.first, pages.end] {
            // A granule that the range cuts.
            if page.is_multiple_of(GRANULE_PAGES) {
                continue;
            }
            let (Some(region), page) = (self.region(page), page % REGION_PAGES) else { continue };
            if !region.entries.has_leaf(page) {
                self.charge(manager, LEAF_BYTES)?;
                if !region.entries.prepare_leaf(page) {
                    self.give_back(manager, LEAF_BYTES);
                }
            }
        }
        Ok(())
    }

    #[cold]
    fn prepare_region(&self, manager: &Manager, number: u64) -> Result<(), Error> {
        self.charge(manager, REGION_BYTES + Regions::PART_BYTES)?;
        let mut unused = REGION_BYTES;
        if !self.regions.prepare(number) {
            unused += Regions::PART_BYTES;
        }
        // Another one may be faster, and this one is dropped.
        let made = Region::new(manager, number << REGION_SHIFT).map(|region| {
            if self.regions.fill(number, region) {
                unused -= REGION_BYTES;
            }
        });
        self.give_back(manager, unused);
        made
    }

    fn charge(&self, manager: &Manager, bytes: u64) -> Result<(), Error> {
        manager.charge_metadata(bytes)?;
        // Relaxed: read when the space goes.
        self.charged.fetch_add(bytes, Ordering::Relaxed);
        Ok(())
    }

    fn give_back(&self, manager: &Manager, bytes: u64) {
        self.charged.fetch_sub(bytes, Ordering::Relaxed);
        manager.frames.budget().uncharge(bytes);
    }

    /// When the space goes.
    pub(super) fn uncharge(&self, manager: &Manager) {
        manager.frames.budget().uncharge(self.charged.load(Ordering::Relaxed));
    }

    /// The regions that `pages` touch and that are there, and which of their pages.
    pub(super) fn regions(&self, pages: Pages) -> impl Iterator<Item = (&Region, Range<u64>)> {
        (pages.first >> REGION_SHIFT..=(pages.end - 1) >> REGION_SHIFT).filter_map(move |number| {
            let base = number << REGION_SHIFT;
            let local = pages.first.max(base) - base..pages.end.min(base + REGION_PAGES) - base;
            Some((self.region(base)?, local))
        })
    }

    /// The region that has the page word with that number, and the page.
    pub(super) fn of_word(&self, word: u64) -> Option<(&Region, u64)> {
        self.regions.iter().find_map(|region| {
            let local = word.checked_sub(region.map.first_word()).filter(|&local| local < REGION_PAGES)?;
            Some((region, region.first + local))
        })
    }

    /// The pages of all regions that are there.
    pub(super) fn all(&self) -> impl Iterator<Item = Pages> {
        self.regions.iter().map(|region| Pages { first: region.first, end: region.first + REGION_PAGES })
    }

    /// Changes the entries of pages that are prepared, and locked.
    pub(super) fn change(&self, pages: Pages, to: Entry) {
        for (region, local) in self.regions(pages) {
            let mut first = local.start;
            while first < local.end {
                let end = local.end.min((first / GRANULE_PAGES + 1) * GRANULE_PAGES);
                region.change(first..end, to);
                first = end;
            }
        }
    }

    /// The runs of pages with the same entry, in order, those with none among them.
    pub(super) fn runs(&self, pages: Pages) -> impl Iterator<Item = (Pages, Entry)> {
        let mut at = pages.first;
        std::iter::from_fn(move || {
            let first = at;
            let mut same = None;
            while at < pages.end {
                let (entry, end) = self.run(at);
                if *same.get_or_insert(entry) != entry {
                    break;
                }
                at = end.min(pages.end);
            }
            Some((Pages { first, end: at }, same?))
        })
    }

    /// A page's entry, and the end of the pages after it that are known to have the same.
    pub(super) fn run(&self, page: u64) -> (Entry, u64) {
        let Some(region) = self.region(page) else {
            return (Entry::NONE, (page >> REGION_SHIFT << REGION_SHIFT) + REGION_PAGES);
        };
        let (entry, whole) = region.entry_of_granule(page % REGION_PAGES);
        (entry, if whole { (page / GRANULE_PAGES + 1) * GRANULE_PAGES } else { page + 1 })
    }
}
