//! Errors that name the address in the space, and the area.

use std::ops::Range;

use super::SpaceState;
use super::entry::Entry;
use super::index::Index;
use crate::error::Error;

/// The most words of the index that are looked at on each side of a page, to find its area.
const LOOKS_MAX: u32 = 1024;

impl SpaceState {
    /// Returns the error for a page whose entry doesn't permit an access.
    #[cold]
    pub(super) fn refuse(&self, page: u64, entry: Entry) -> Error {
        let address = page << self.page_shift;
        let area = self.area_of(page);
        match entry.protection() {
            None => Error::NotMapped { address, hole: area },
            Some(protection) => Error::NotPermitted { address, area, protection },
        }
    }

    /// Adds the page's address and area to an error that happened at the page.
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
                let source = error.device_failure();
                Error::AtAddress { address, area, error: Box::new(error), source }
            }
        }
    }

    /// Returns the area around a page, in bytes, as far as a bounded search finds its ends.
    fn area_of(&self, page: u64) -> Range<u64> {
        let (entry, mut end) = self.index.run(page);
        let (_, mut first) = self.index.run_back(page);
        let is_like = |other: Entry| other.is_like(entry) && other.file() == entry.file();
        for _ in 0..LOOKS_MAX {
            let (next, next_end) = self.index.run(end);
            if !is_like(next) || end >= Index::ALL.end {
                break;
            }
            end = next_end;
        }
        for _ in 0..LOOKS_MAX {
            let Some(before) = first.checked_sub(1) else { break };
            let (next, next_first) = self.index.run_back(before);
            if !is_like(next) {
                break;
            }
            first = next_first;
        }
        first << self.page_shift..end.saturating_mul(1 << self.page_shift)
    }
}
