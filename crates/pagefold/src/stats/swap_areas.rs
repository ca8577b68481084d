//! The statistics of swap areas.

use swap::{Placement, PlacementReason};

/// The statistics of a swap area. Sizes are in bytes. `Serialize` needs the feature `serde`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// use pagefold::{Pagefold, Placement, PlacementReason, SwapArea};
///
/// let mm = Pagefold::builder().memory("16MiB").swap_area(SwapArea::memory("4MiB")).build()?;
/// let area = &mm.stats().swap[0];
/// assert_eq!((area.used_bytes, area.is_encrypted), (0, false));
/// assert_eq!((area.placement, &area.placement_reason), (Placement::PerCpu, &PlacementReason::Memory));
/// mm.remove_swap(area.number)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct SwapAreaStats {
    /// The number by which the area is removed.
    pub number: u32,
    /// Its path, `memory` or `compressed`.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// How much fits into the area.
    pub bytes: u64,
    /// How much of the area is in use.
    pub used_bytes: u64,
    /// Whether the area's device seems to have stopped: it has had writes pending for a while, and
    /// has completed none. Then pages are swapped out to other areas, as long as one of them has
    /// room.
    pub is_stalled: bool,
    /// How the area's slots are distributed over CPUs. `Serialize` gives its text.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub placement: Placement,
    /// Why they are distributed like that. `Serialize` gives its text, as in `sda rotates`.
    #[cfg_attr(feature = "serde", serde(serialize_with = "as_text"))]
    pub placement_reason: PlacementReason,
    /// Whether the area's pages are encrypted.
    pub is_encrypted: bool,
    /// The statistics of compression, if the area keeps compressed pages in memory.
    pub compressed: Option<CompressedSwapStats>,
}

/// The statistics of an area that keeps compressed pages in memory. Sizes are in bytes. `Serialize`
/// needs the feature `serde`.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// let mm = pagefold::Pagefold::builder().memory("16MiB").compressed_swap("4MiB").build()?;
/// let stats = mm.stats();
/// let compressed = stats.swap[0].compressed.as_ref().ok_or("a plain area")?;
/// assert_eq!((compressed.limit_bytes, compressed.original_bytes), (4 << 20, 0));
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug, Default)]
#[cfg_attr(feature = "serde", derive(serde::Serialize))]
#[non_exhaustive]
pub struct CompressedSwapStats {
    /// The most memory that the area may take.
    pub limit_bytes: u64,
    /// How much of the budget the area uses, its tables not included. This exceeds
    /// `compressed_bytes` by the area's stock of free memory and the gaps between compressed pages.
    pub memory_bytes: u64,
    /// The original size of the pages in the area.
    pub original_bytes: u64,
    /// The compressed size of the pages in the area.
    pub compressed_bytes: u64,
    /// Pages that the area refused because compression saves less than a quarter of their size.
    pub incompressible_pages: u64,
    /// Pages that the area refused because there was no memory for them.
    pub no_room_pages: u64,
    /// Pages that were moved to other areas, because this area was full and the pages had been in
    /// it longest.
    pub spilled_pages: u64,
    /// Pages in the area that are compressed with LZ4, as all pages are at first.
    pub lz4_pages: u64,
    /// Pages in the area that were recompressed with Zstandard. When there is no room for other
    /// pages, those that have been in the area longest are recompressed.
    pub zstd_pages: u64,
}

#[cfg(feature = "serde")]
fn as_text<S: serde::Serializer>(value: &impl std::fmt::Display, to: S) -> Result<S::Ok, S::Error> {
    to.collect_str(value)
}

impl From<swap::CompressedInfo> for CompressedSwapStats {
    fn from(info: swap::CompressedInfo) -> Self {
        Self {
            limit_bytes: info.limit_bytes,
            memory_bytes: info.memory_bytes,
            original_bytes: info.original_bytes,
            compressed_bytes: info.compressed_bytes,
            incompressible_pages: info.incompressible,
            no_room_pages: info.no_room,
            spilled_pages: info.spilled,
            lz4_pages: info.lz4_pages,
            zstd_pages: info.zstd_pages,
        }
    }
}
