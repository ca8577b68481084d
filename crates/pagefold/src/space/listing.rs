//! What is mapped, as a list.

use std::fmt;
use std::ops::Range;

use range_lock::LockRange;

use super::address::Pages;
use super::index::Entry;
use super::{Protection, Space};
use crate::size::Size;

/// A run of addresses with the same protection: what `/proc/PID/smaps` calls a mapping.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Area {
    /// Its bytes.
    pub range: Range<u64>,
    /// What may be done with them.
    pub protection: Protection,
    /// Bytes of it that are in memory.
    pub resident: u64,
    /// Bytes of it that were swapped out.
    pub swapped: u64,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match self.protection {
            Protection::None => "--",
            Protection::Read => "r-",
            Protection::ReadWrite => "rw",
        };
        let size = Size(self.range.end - self.range.start);
        write!(
            f,
            "{:012x}-{:012x} {flags} {size}, resident {}",
            self.range.start,
            self.range.end,
            Size(self.resident)
        )?;
        if self.swapped > 0 {
            write!(f, ", swapped {}", Size(self.swapped))?;
        }
        Ok(())
    }
}

impl Space {
    /// All areas in order of address, as they are at one moment: maps, unmaps and changes of protection wait meanwhile.
    #[must_use]
    pub fn areas(&self) -> Vec<Area> {
        let state = &*self.state;
        let _guard = state.lock.read(LockRange::FULL);
        let mut runs: Vec<(Pages, Entry)> = Vec::new();
        for region in state.index.all() {
            let mut page = region.first;
            while page < region.end {
                let (entry, end) = state.index.run(page);
                match runs.last_mut() {
                    Some((run, same)) if run.end == page && *same == entry => run.end = end,
                    _ if entry == Entry::NONE => {}
                    _ => runs.push((Pages { first: page, end }, entry)),
                }
                page = end;
            }
        }
        let area = |(pages, entry): (Pages, Entry)| {
            let (mut resident, mut swapped) = (0, 0);
            for (region, local) in state.index.regions(pages) {
                for page in region.map.pages_in_memory(local) {
                    let is_swapped = matches!(region.map.state(page), frames::PageState::Swapped { .. });
                    *(if is_swapped { &mut swapped } else { &mut resident }) += 1_u64 << state.page_shift;
                }
            }
            let protection = entry.protection()?;
            Some(Area { range: state.bytes(pages), protection, resident, swapped })
        };
        runs.into_iter().filter_map(area).collect()
    }
}
