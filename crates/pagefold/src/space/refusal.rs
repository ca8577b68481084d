//! Errors that say where in the space, and in which area.

use std::ops::Range;

use super::SpaceState;
use super::address::Pages;
use super::entry::Entry;
use super::region::{REGION_PAGES, REGION_SHIFT};
use crate::error::Error;

impl SpaceState {
    /// A page that isn't mapped as it would have to be.
    #[cold]
    pub(super) fn refuse(&self, page: u64, entry: Entry) -> Error {
        let address = page << self.page_shift;
        let area = self.area_of(page);
        match entry.protection() {
            None => Error::NotMapped { address, hole: area },
            Some(protection) => Error::NotPermitted { address, area, protection },
        }
    }

    /// What went wrong at a page, with the page's address and area.
    #[cold]
    pub(super) fn at(&self, page: u64, error: Error) -> Error {
        match error {
            Error::NotMapped { .. }
            | Error::NotPermitted { .. }
            | Error::AddressBusy { .. }
            | Error::AtAddress { .. }
            | Error::SwapReadFailed { .. }
            | Error::SwapCorrupt { .. }
            | Error::Forked => error,
            Error::PageBusy { .. } => self.busy(page),
            error => {
                let (address, area) = (page << self.page_shift, self.area_of(page));
                Error::AtAddress { address, area, error: Box::new(error) }
            }
        }
    }

    /// The run of pages around `page` with the same entry, in bytes; within its region.
    fn area_of(&self, page: u64) -> Range<u64> {
        let base = page >> REGION_SHIFT << REGION_SHIFT;
        let region = Pages { first: base, end: base.saturating_add(REGION_PAGES) };
        let run = self.index.runs(region).map(|(run, _)| run).find(|run| (run.first..run.end).contains(&page));
        let area = run.unwrap_or(region);
        area.first << self.page_shift..area.end.saturating_mul(1 << self.page_shift)
    }
}
