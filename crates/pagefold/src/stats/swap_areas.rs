//! The numbers of swap areas.

/// A swap area's numbers. Sizes are in bytes.
#[derive(Clone, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct SwapAreaStats {
    /// By which it is removed.
    pub number: u32,
    /// Its path, `memory` or `compressed`.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// Room for pages.
    pub bytes: u64,
    /// How much of that is in use.
    pub used_bytes: u64,
    /// Its device has had pages to write for a while, and doesn't answer: pages go to other areas,
    /// as long as one has room.
    pub is_stalled: bool,
    /// Its pages are encrypted.
    pub is_encrypted: bool,
    /// If its pages are compressed, in memory.
    pub compressed: Option<CompressedSwapStats>,
}

/// The numbers of an area whose pages are compressed in memory. Sizes are in bytes.
#[derive(Clone, Debug, Default, serde::Serialize)]
#[non_exhaustive]
pub struct CompressedSwapStats {
    /// The most memory that it may take.
    pub limit_bytes: u64,
    /// What it has taken of the budget, besides its tables. What it has more of than
    /// `compressed_bytes` is its stock, and what lies between pages.
    pub memory_bytes: u64,
    /// Pages in it, as they were.
    pub original_bytes: u64,
    /// The same, compressed.
    pub compressed_bytes: u64,
    /// Pages that it refused because they don't shrink to less than three quarters.
    pub incompressible_pages: u64,
    /// And those because there was no memory for them.
    pub no_room_pages: u64,
    /// Pages that went on to other areas, as they had been in it longest when it was full.
    pub spilled_pages: u64,
    /// Pages in it that are compressed with LZ4, as all are at first.
    pub lz4_pages: u64,
    /// Those that are compressed with Zstandard, as they had been in it for long when there was no
    /// room for others.
    pub zstd_pages: u64,
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
