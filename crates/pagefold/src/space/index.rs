//! What is mapped where: the one index of a space, read without a lock.

use std::ops::Range;

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::OnceCell;

use super::address::{ADDRESS_BITS, Pages};
use super::entries::GRANULE_PAGES;
use super::entry::Entry;
use super::region::{LEAF_BYTES, REGION_BYTES, REGION_PAGES, REGION_SHIFT, Region};
use crate::error::Error;
use crate::manager::Manager;

/// Regions below one entry of the root, as a power of two.
const BRANCH_SHIFT: u32 = 9;

type Branch = Box<[OnceCell<Region>]>;

/// The regions of a space, in two steps. Regions come, and stay until the space goes.
pub(super) struct Index {
    root: Box<[OnceCell<Branch>]>,
    /// What was charged to the budget.
    charged: AtomicU64,
}

const BRANCH_BYTES: u64 = (size_of::<OnceCell<Region>>() as u64) << BRANCH_SHIFT;

impl Index {
    pub(super) fn new(manager: &Manager, page_shift: u32) -> Result<Self, Error> {
        let branches = 1_usize << (ADDRESS_BITS - page_shift - REGION_SHIFT - BRANCH_SHIFT);
        let bytes = (branches * size_of::<OnceCell<Branch>>()) as u64;
        manager.charge_metadata(bytes)?;
        Ok(Self { root: (0..branches).map(|_| OnceCell::new()).collect(), charged: AtomicU64::new(bytes) })
    }

    /// The region of a page, if anything was ever mapped there.
    #[inline]
    pub(super) fn region(&self, page: u64) -> Option<&Region> {
        let number = page >> REGION_SHIFT;
        let branch = self.root.get((number >> BRANCH_SHIFT) as usize)?.get()?;
        branch.get(number as usize % (1 << BRANCH_SHIFT))?.get()
    }

    /// Has memory for all entries of `pages`, so that changing them can't fail.
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
        self.charge(manager, REGION_BYTES + BRANCH_BYTES)?;
        let mut unused = REGION_BYTES + BRANCH_BYTES;
        let branch = self.root[(number >> BRANCH_SHIFT) as usize].get_or_init(|| {
            unused -= BRANCH_BYTES;
            (0..1 << BRANCH_SHIFT).map(|_| OnceCell::new()).collect()
        });
        // Made outside of the cell: another one may be faster, and this one is dropped.
        let made = Region::new(manager, number << REGION_SHIFT).map(|region| {
            branch[number as usize % (1 << BRANCH_SHIFT)].get_or_init(|| {
                unused -= REGION_BYTES;
                region
            })
        });
        self.give_back(manager, unused);
        made.map(drop)
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
        self.all().into_iter().find_map(|pages| {
            let region = self.region(pages.first)?;
            let local = word.checked_sub(region.map.first_word()).filter(|&local| local < REGION_PAGES)?;
            Some((region, pages.first + local))
        })
    }

    /// The pages of all regions that are there.
    pub(super) fn all(&self) -> Vec<Pages> {
        let mut all = Vec::new();
        for (branch, at) in self.root.iter().zip(0_u64..) {
            let Some(branch) = branch.get() else { continue };
            for (_, local) in branch.iter().zip(0_u64..).filter(|(region, _)| region.get().is_some()) {
                let first = (at << BRANCH_SHIFT | local) << REGION_SHIFT;
                all.push(Pages { first, end: first + REGION_PAGES });
            }
        }
        all
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
