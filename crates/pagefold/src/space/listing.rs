//! The list of what is mapped in a space.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;

use frames::Usage;
use span_lock::LockRange;
use sync::Arc;

use super::address::Pages;
use super::entry::Entry;
use super::index::Index;
use super::mapped::Mapped;
use super::{Space, SpaceState};
use crate::protection::Protection;
use crate::read_ahead::advice::Advice;
use crate::size::Size;

/// A run of addresses that are mapped alike: what `/proc/PID/smaps` calls a mapping. `Display`
/// gives one line, which begins like a mapping's first line in that file.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let space = group.space()?;
/// use pagefold::Protection;
///
/// let range = space.map(1 << 20, Protection::ReadWrite)?;
/// space.protect(range.start..range.start + 4096, Protection::Read)?;
/// let areas: Vec<_> = space.areas().into_iter().map(|area| (area.range, area.protection)).collect();
/// assert_eq!(areas.len(), 2);
/// assert_eq!(areas[0], (range.start..range.start + 4096, Protection::Read));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
#[non_exhaustive]
pub struct Area {
    /// Its addresses.
    pub range: Range<u64>,
    /// The accesses that are permitted.
    pub protection: Protection,
    /// The accesses to come: [`Advice::Normal`], [`Advice::Random`] or [`Advice::Sequential`].
    pub advice: Advice,
    /// The part of a file that is mapped there, if any.
    pub file: Option<AreaFile>,
    /// Bytes of the area that are in memory, or being loaded. For a file, these include pages that
    /// other users of the file have loaded.
    pub resident: u64,
    /// Bytes of it that are swapped out.
    pub swapped: u64,
    /// Bytes in memory whose pages were used since reclaim last looked at them.
    pub referenced: u64,
    /// Bytes in memory that differ from the file. Anonymous memory has none.
    pub dirty: u64,
}

/// A part of a file that is mapped in a space.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// # let space = group.space()?;
/// let file = group.open("data")?;
/// space.map_file(&file, 8192, 4096, pagefold::Protection::Read)?;
/// let areas = space.areas();
/// let mapped = areas[0].file.as_ref().ok_or("anonymous")?;
/// assert_eq!((mapped.path.as_path(), mapped.offset), (file.path(), 8192));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaFile {
    /// The path that the file was first opened with.
    pub path: PathBuf,
    /// The offset of the area's first byte in the file.
    pub offset: u64,
}

impl fmt::Display for Area {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let flags = match self.protection {
            Protection::None => "---s",
            Protection::Read => "r--s",
            Protection::ReadWrite => "rw-s",
        };
        let size = Size(self.range.end - self.range.start);
        write!(f, "{:012x}-{:012x} {flags}", self.range.start, self.range.end)?;
        if let Some(file) = &self.file {
            write!(f, " {:08x} {}", file.offset, file.path.display())?;
        }
        let [resident, referenced, dirty] = [self.resident, self.referenced, self.dirty].map(Size);
        write!(f, ": size {size}, resident {resident}, referenced {referenced}, dirty {dirty}")?;
        if self.swapped > 0 {
            write!(f, ", swapped {}", Size(self.swapped))?;
        }
        match self.advice {
            Advice::Normal => Ok(()),
            advice => write!(f, ", {}", format!("{advice:?}").to_lowercase()),
        }
    }
}

/// An area that is being collected.
struct Run {
    pages: Pages,
    entry: Entry,
    file: Option<Arc<Mapped>>,
}

impl Run {
    /// Returns whether the pages that follow belong to the same area.
    fn goes_on(&self, pages: Pages, entry: Entry, file: Option<&Mapped>) -> bool {
        let same_file = match (&self.file, file) {
            (Some(mine), Some(other)) => mine.continues(other),
            (None, None) => true,
            _ => false,
        };
        self.pages.end == pages.first && same_file && self.entry.is_like(entry)
    }
}

impl Space {
    /// Returns all areas in order of address, as of one moment. This call locks the whole space for
    /// reading, so concurrent calls that map, unmap, move or protect wait until it returns. In a
    /// forked child, returns an empty list.
    #[must_use]
    pub fn areas(&self) -> Vec<Area> {
        let state = &*self.state;
        if state.manager().memory.frames.forked() {
            return Vec::new(); // Another thread may have held the lock at the fork.
        }
        let _guard = state.lock.read(LockRange::FULL);
        let mut runs: Vec<Run> = Vec::new();
        for (pages, entry) in state.index.runs(Index::ALL).filter(|(_, entry)| *entry != Entry::NONE) {
            let file = entry.file().and_then(|number| state.mapped(number));
            match runs.last_mut() {
                Some(last) if last.goes_on(pages, entry, file.as_deref()) => last.pages.end = pages.end,
                _ => runs.push(Run { pages, entry, file }),
            }
        }
        runs.into_iter().filter_map(|run| state.area(&run)).collect()
    }
}

impl SpaceState {
    fn area(&self, run: &Run) -> Option<Area> {
        let pages = run.pages;
        let mut usage = Usage::default();
        let file = run.file.as_ref().map(|mapped| {
            let first = mapped.page_of(pages.first);
            usage = mapped.file().map.usage(first..first + pages.count());
            AreaFile { path: mapped.file().path.clone(), offset: first << self.page_shift }
        });
        if file.is_none() {
            for (region, local) in self.index.regions(pages) {
                let part = region.map.usage(local);
                usage.resident += part.resident;
                usage.swapped += part.swapped;
                usage.referenced += part.referenced;
            }
        }
        let [resident, swapped, referenced, dirty] =
            [usage.resident, usage.swapped, usage.referenced, usage.unclean].map(|pages| pages << self.page_shift);
        let (protection, advice) = (run.entry.protection()?, run.entry.advice());
        Some(Area { range: self.bytes(pages), protection, advice, file, resident, swapped, referenced, dirty })
    }
}
