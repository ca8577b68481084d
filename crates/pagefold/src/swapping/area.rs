//! Swap areas in the public interface: creating, adding, removing and counting them.

use std::path::PathBuf;

use frames::Frames;
use swap::{AreaOptions, Placement, Source};
use sync::Arc;
use sync::atomic::Ordering;

use crate::error::Error;
use crate::memory::Memory;
use crate::size::{IntoSize, Size, SizeError};
use crate::stats::swap_areas::SwapAreaStats;
use crate::swapping::Swapping;
use crate::swapping::compressed::BudgetMemory;

/// A place for anonymous pages that are swapped out when the budget is full, or a group has reached
/// its limit. Passed to [`Builder::swap_area`](crate::Builder::swap_area) or
/// [`Pagefold::add_swap`](crate::Pagefold::add_swap). The contents don't outlive the process.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # let directory = tempfile::tempdir()?;
/// use pagefold::{Pagefold, SwapArea};
///
/// let mm = Pagefold::builder()
///     .memory("16MiB")
///     .swap_area(SwapArea::compressed("4MiB")) // Filled first,
///     .swap_area(SwapArea::unlinked(directory.path(), "64MiB").priority(-1)) // then this.
///     .build()?;
/// assert_eq!(mm.stats().swap.len(), 2);
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
pub struct SwapArea {
    place: Place,
    pub(crate) options: AreaOptions,
}

#[derive(Clone, Debug)]
enum Place {
    Unlinked { at: PathBuf, size: Result<Size, SizeError> },
    Path(PathBuf),
    Memory { size: Result<Size, SizeError> },
    Compressed { limit: Result<Size, SizeError> },
}

impl SwapArea {
    fn new(place: Place) -> Self {
        Self { place, options: AreaOptions::default() }
    }

    /// Creates an area in a new file of `size`, with mode 0600 and without a name. `path` is the
    /// directory in which the file is created. It may also be an unused name in an existing
    /// directory; then the file is created in that directory, and the name stays unused. The file
    /// takes room on the disk only as the area fills. The system frees this room when the process
    /// ends.
    #[must_use]
    pub fn unlinked(path: impl Into<PathBuf>, size: impl IntoSize) -> Self {
        Self::new(Place::Unlinked { at: path.into(), size: size.into_size() })
    }

    /// Uses an entire file or block device as an area. The file or device must have been one of
    /// Pagefold's areas before, unless [`overwrite`](Self::overwrite) is set. Pagefold never reads
    /// a page that an earlier process wrote there.
    ///
    /// While the area is in use, the file or device is locked (`flock`, and `O_EXCL` for a device).
    /// Adding the area fails if the file or device is in use already, as an area of any process or
    /// as a mounted file system.
    ///
    /// Pages are written unencrypted. They stay on the disk after they were read back, and even
    /// after the area is removed, until other bytes are written there. So any user who may read the
    /// file or the disk can see what was swapped out. Give the file mode 0600; Pagefold logs any
    /// other mode. If that isn't enough, have the area [encrypted](Self::encrypted).
    #[must_use]
    pub fn path(path: impl Into<PathBuf>) -> Self {
        Self::new(Place::Path(path.into()))
    }

    /// Creates an area in memory outside the budget, for tests and measurements.
    #[must_use]
    pub fn memory(size: impl IntoSize) -> Self {
        Self::new(Place::Memory { size: size.into_size() })
    }

    /// Creates an area in memory that keeps pages compressed (LZ4) and uses at most `limit` of the
    /// budget. The area takes memory as it fills, and gives memory back as it empties, except for a
    /// stock of free memory that it keeps. The stock is about as large as the unit in which
    /// Pagefold takes memory from the system: 2 MiB, or less with a small budget.
    ///
    /// The area keeps a page only if compression saves at least a quarter of the page. Other pages
    /// go to another area, or stay in memory. When the area is full, the pages that have been in it
    /// longest are recompressed more densely (Zstandard, with the feature `zstd`). If these pages
    /// stay unused for long after that, they move to other areas. The default priority is 100, so
    /// that this area is filled first.
    ///
    /// Choose a limit that leaves most of the budget to uncompressed pages; a limit above the
    /// budget is an error. The area's memory isn't charged to groups.
    /// [`GroupBuilder::swap_max`](crate::GroupBuilder::swap_max) limits how much each group may
    /// have in swap areas.
    ///
    /// When the budget is [lowered](crate::Pagefold::resize), the area's limit is lowered in
    /// proportion. Pages beyond the new limit move to other areas. If there are no other areas,
    /// these pages stay until they are used.
    #[must_use]
    pub fn compressed(limit: impl IntoSize) -> Self {
        Self::new(Place::Compressed { limit: limit.into_size() }).priority(COMPRESSED_PRIORITY)
    }

    /// Sets the priority. Areas of higher priority are filled first, areas of equal priority in
    /// round robin. Default: 0.
    #[must_use]
    pub fn priority(mut self, priority: i32) -> Self {
        self.options.priority = priority;
        self
    }

    /// Sets how slots are distributed over CPUs.
    ///
    /// By default this depends on the disk that the file or device is on. On a disk that rotates,
    /// slots are allocated one after the other ([`Placement::Sequential`]). On any other disk, and
    /// in memory, each CPU has a cluster of slots of its own ([`Placement::PerCpu`]). A virtual
    /// disk counts as one that doesn't rotate, even if the kernel says that it rotates, because the
    /// kernel is often wrong about virtual disks. `placement` and `placement_reason` in
    /// [`SwapAreaStats`] say what was chosen, and why.
    ///
    /// Set the placement if the default is wrong, for example if the host keeps a virtual disk on a
    /// rotating disk.
    ///
    /// ```
    /// # fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # let directory = tempfile::tempdir()?;
    /// use pagefold::{Pagefold, Placement, SwapArea};
    ///
    /// let area = SwapArea::unlinked(directory.path(), "64MiB").placement(Placement::Sequential);
    /// let mm = Pagefold::builder().memory("16MiB").swap_area(area).build()?;
    /// let area = &mm.stats().swap[0];
    /// assert_eq!(format!("{} ({})", area.placement, area.placement_reason), "sequential (as requested)");
    /// # Ok(())
    /// # }
    /// ```
    #[must_use]
    pub fn placement(mut self, placement: Placement) -> Self {
        self.options.placement = Some(placement);
        self
    }

    /// Makes the file or device an area, even if it holds other data, which is lost. Default: no.
    #[must_use]
    pub fn overwrite(mut self, yes: bool) -> Self {
        self.options.overwrite = yes;
        self
    }

    /// Encrypts each page that is written to the area (AES-256-GCM). The key is created when the
    /// area is added, and exists only in memory. So after the process has ended, the pages on the
    /// disk can't be read. A [compressed](Self::compressed) area keeps its pages in memory, and
    /// doesn't encrypt them. But it moves old pages to other areas, if there are any: encrypt those
    /// areas, too.
    ///
    /// Reading a page back fails with an error if the page was changed on the disk, or replaced by
    /// an older one. Without encryption, only accidental changes are detected; with encryption,
    /// deliberate changes are detected as well.
    ///
    /// An encrypted area takes 24 bytes of the budget for each of its pages. It also takes 256 KiB
    /// for each CPU, less if the area is below 16 MiB. At least 4 and at most 16 CPUs are counted.
    ///
    /// Adding the area fails with [`Error::SwapRefused`] if Pagefold was built without the feature
    /// `encrypted-swap`.
    #[must_use]
    pub fn encrypted(mut self) -> Self {
        self.options.encrypted = true;
        self
    }

    pub(crate) fn source(self, frames: &Arc<Frames>) -> Result<Source, Error> {
        Ok(match self.place {
            Place::Unlinked { at, size } => Source::Unlinked { at, bytes: size?.0 },
            Place::Path(path) => Source::Path(path),
            Place::Memory { size } => Source::Memory { bytes: size?.0 },
            Place::Compressed { limit } => {
                let memory = Arc::new(BudgetMemory(Arc::clone(frames)));
                Source::Compressed { limit: limit?.0, reserve: frames.extent_bytes(), memory }
            }
        })
    }
}

/// The default priority of compressed areas: above that of other areas.
const COMPRESSED_PRIORITY: i32 = 100;

impl Swapping {
    /// Records whether there are areas. Called after an area was added or removed. The lock orders
    /// concurrent calls, so the last call sees all changes.
    pub(crate) fn note_areas(&self, memory: &Memory) {
        let _turn = self.area_changes.lock();
        // Relaxed: see `swaps`.
        memory.lists_anonymous.store(!self.areas.is_empty(), Ordering::Relaxed);
    }

    pub(crate) fn stats(&self, memory: &Memory) -> Vec<SwapAreaStats> {
        self.areas.release_idle();
        let page_bytes = memory.frames.page_size() as u64;
        let stats = |area: swap::AreaInfo| SwapAreaStats {
            number: area.number,
            name: area.name,
            priority: area.priority,
            bytes: area.slots * page_bytes,
            used_bytes: area.used * page_bytes,
            is_stalled: area.is_stalled,
            placement: area.placement,
            placement_reason: area.placement_reason,
            is_encrypted: area.is_encrypted,
            compressed: area.compressed.map(Into::into),
        };
        self.areas.areas().into_iter().map(stats).collect()
    }
}
