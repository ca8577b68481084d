//! Addresses: which are valid, and which to give out.

use std::ops::Range;

use sync::PerCpu;
use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use super::SpaceState;
use super::region::{REGION_PAGES, REGION_SHIFT};
use crate::error::Error;

/// Bits of an address.
pub(super) const ADDRESS_BITS: u32 = 47;

/// What may be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing: the addresses are taken, that is all.
    None,
    /// It may be read.
    Read,
    /// It may be read and written.
    ReadWrite,
}

/// Pages from `first` up to `end`, at least one, by their number in the space.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Pages {
    pub(super) first: u64,
    pub(super) end: u64,
}

impl Pages {
    pub(super) fn count(self) -> u64 {
        self.end - self.first
    }

    /// As many, `by` further up; wrapping, as it may be down.
    pub(super) fn moved(self, by: u64) -> Self {
        Self { first: self.first.wrapping_add(by), end: self.end.wrapping_add(by) }
    }
}

impl SpaceState {
    /// How many pages `len` bytes take.
    pub(super) fn count(&self, len: u64) -> Result<u64, Error> {
        let bad = |why| Error::BadAddress { address: 0, len, why };
        match len {
            0 => Err(bad("no bytes")),
            _ if len > 1 << ADDRESS_BITS => Err(bad("more than a space has")),
            _ => Ok(len.div_ceil(1 << self.page_shift)),
        }
    }

    /// The pages of a range of bytes that is whole ones.
    pub(super) fn pages(&self, range: &Range<u64>) -> Result<Pages, Error> {
        let bad = |why| {
            let len = range.end.saturating_sub(range.start);
            Err(Error::BadAddress { address: range.start, len, why })
        };
        if range.start >= range.end {
            return bad("no bytes, or the end before the start");
        }
        if range.end > 1 << ADDRESS_BITS {
            return bad("past the end of the space");
        }
        if (range.start | range.end) & ((1 << self.page_shift) - 1) != 0 {
            return bad("not whole pages");
        }
        Ok(Pages { first: range.start >> self.page_shift, end: range.end >> self.page_shift })
    }

    pub(super) fn bytes(&self, pages: Pages) -> Range<u64> {
        pages.first << self.page_shift..pages.end << self.page_shift
    }
}

/// Ranges that a CPU keeps for the next one who wants as much.
const KEPT_MAX: usize = 64;

/// Who gives out addresses. Each CPU has a region of its own for small ranges, so that its users share no line with
/// others'.
#[derive(Debug)]
pub(super) struct Addresses {
    /// Regions never given out. Region 0 isn't, so that no address is 0.
    next: AtomicU64,
    regions: u64,
    local: PerCpu<Mutex<Local>>,
}

#[derive(Debug, Default)]
struct Local {
    /// Pages of the CPU's region that were never given out.
    rest: Option<Pages>,
    /// Ranges that were given back.
    kept: Vec<Pages>,
}

impl Addresses {
    pub(super) fn new(page_shift: u32) -> Self {
        let regions = 1 << (ADDRESS_BITS - page_shift - REGION_SHIFT);
        Self { next: AtomicU64::new(1), regions, local: PerCpu::new(Mutex::default) }
    }

    /// A range that nobody else is given, of `count` pages. `None` if there is none left.
    pub(super) fn take(&self, count: u64) -> Option<Pages> {
        let mut local = self.local.here().lock();
        if let Some(at) = local.kept.iter().rposition(|kept| kept.count() == count) {
            return Some(local.kept.swap_remove(at));
        }
        if local.rest.is_none_or(|rest| rest.count() < count) {
            let Some(fresh) = self.take_regions(count) else {
                drop(local);
                return self.take_kept(count);
            };
            if let Some(rest) = local.rest.filter(|rest| rest.count() > 0) {
                local.kept.push(rest);
            }
            local.rest = Some(fresh);
        }
        let rest = local.rest.as_mut()?;
        let first = rest.first;
        rest.first += count;
        Some(Pages { first, end: first + count })
    }

    fn take_regions(&self, count: u64) -> Option<Pages> {
        let wanted = count.div_ceil(REGION_PAGES);
        let take = |next: u64| (next + wanted <= self.regions).then_some(next + wanted);
        // Relaxed: a number that nobody else gets.
        let first = self.next.fetch_update(Ordering::Relaxed, Ordering::Relaxed, take).ok()?;
        Some(Pages { first: first * REGION_PAGES, end: (first + wanted) * REGION_PAGES })
    }

    /// The beginning of some range that was given back, when there is nothing else.
    fn take_kept(&self, count: u64) -> Option<Pages> {
        self.local.iter().find_map(|local| {
            let mut local = local.lock();
            let at = local.kept.iter().position(|kept| kept.count() >= count)?;
            let kept = &mut local.kept[at];
            let first = kept.first;
            kept.first += count;
            if kept.count() == 0 {
                local.kept.swap_remove(at);
            }
            Some(Pages { first, end: first + count })
        })
    }

    /// Takes a range back that isn't mapped any more. Too many of them are forgotten: addresses are plenty.
    pub(super) fn give(&self, pages: Pages) {
        let mut local = self.local.here().lock();
        if local.kept.len() < KEPT_MAX {
            local.kept.push(pages);
        }
    }
}
