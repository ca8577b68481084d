//! How the array of page words is divided.

/// Sizes of the array, in words, as powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordGeometry {
    /// Words in a chunk: one system page of them.
    pub(crate) chunk_shift: u32,
    /// Words in a segment.
    pub(crate) segment_shift: u32,
    /// Words altogether, if the system lets us reserve so many; else less.
    pub(crate) total_shift: u32,
}

/// Page words that there are, if the system lets us reserve so many, as a power of two: 2^19
/// segments of 4 KiB pages of words, for 512 TiB of pages. A slot of a swap area has room for the
/// number of one.
pub const PAGE_WORDS_SHIFT: u32 = 37;

/// Blocks in a segment, as a power of two: there is a bit for each.
pub(crate) const BLOCKS_SHIFT: u32 = 5;

impl WordGeometry {
    /// A chunk is a system page of words, a segment has 512 chunks.
    pub(crate) fn of(system_page: usize, total_shift: Option<u32>) -> Self {
        let chunk_shift = system_page.trailing_zeros() - size_of::<u64>().trailing_zeros();
        let segment_shift = chunk_shift + 9;
        let total_shift = total_shift.unwrap_or(PAGE_WORDS_SHIFT).clamp(segment_shift, 40);
        Self { chunk_shift, segment_shift, total_shift }
    }

    /// What a chunk costs.
    pub(crate) fn chunk_cost(&self) -> u64 {
        (size_of::<u64>() as u64) << self.chunk_shift
    }

    /// Words in a block, as a power of two: a segment has 32 blocks, or as many as it has chunks.
    pub(crate) fn block_shift(&self) -> u32 {
        self.segment_shift.saturating_sub(BLOCKS_SHIFT).max(self.chunk_shift)
    }

    /// Segments of which the states of a block fill a system page, as a power of two.
    pub(crate) fn group_shift(&self) -> u32 {
        let states = size_of::<u32>().trailing_zeros() + self.block_shift() - self.chunk_shift;
        let page = size_of::<u64>().trailing_zeros() + self.chunk_shift;
        page.saturating_sub(states).min(self.total_shift - self.segment_shift)
    }

    /// What a system page of states costs: as much as one of words.
    pub(crate) fn states_cost(&self) -> u64 {
        self.chunk_cost()
    }

    /// The most that one more page in a map can cost.
    pub(crate) fn room_for_one(&self) -> u64 {
        self.chunk_cost() + self.states_cost()
    }
}
