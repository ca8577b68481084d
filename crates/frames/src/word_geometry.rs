//! The division of the array of page words into chunks, blocks and segments.

/// Sizes in words, as powers of two.
#[derive(Clone, Copy, Debug)]
pub(crate) struct WordGeometry {
    /// Words in a chunk: one system page.
    pub(crate) chunk_shift: u32,
    /// Words in a segment.
    pub(crate) segment_shift: u32,
    /// Words in the whole array; fewer if the system refuses to reserve that many.
    pub(crate) total_shift: u32,
}

/// Log2 of the number of page words if the system lets us reserve that many. 2^37 words are 2^19
/// segments of 2^18 words, for 512 TiB of 4 KiB pages. The limit comes from swap: for each slot, a
/// swap area stores the index of a page word in a fixed number of bits.
pub const PAGE_WORDS_SHIFT: u32 = 37;

/// Log2 of the blocks in a segment: a `u32` has a bit for each.
pub(crate) const BLOCKS_SHIFT: u32 = 5;

impl WordGeometry {
    /// Computes the sizes: a chunk is a system page of words, a segment has 512 chunks.
    pub(crate) fn of(system_page: usize, total_shift: Option<u32>) -> Self {
        let chunk_shift = system_page.trailing_zeros() - size_of::<u64>().trailing_zeros();
        let segment_shift = chunk_shift + 9;
        let total_shift = total_shift.unwrap_or(PAGE_WORDS_SHIFT).clamp(segment_shift, 40);
        Self { chunk_shift, segment_shift, total_shift }
    }

    /// Returns the charge for a chunk.
    pub(crate) fn chunk_cost(&self) -> u64 {
        (size_of::<u64>() as u64) << self.chunk_shift
    }

    /// Returns log2 of the words in a block: a segment has 32 blocks, or one per chunk if it has
    /// fewer than 32 chunks.
    pub(crate) fn block_shift(&self) -> u32 {
        self.segment_shift.saturating_sub(BLOCKS_SHIFT).max(self.chunk_shift)
    }

    /// Returns log2 of the number of segments in a group. The segments of a group share system
    /// pages of states (see `page_words`).
    pub(crate) fn group_shift(&self) -> u32 {
        let states = size_of::<u32>().trailing_zeros() + self.block_shift() - self.chunk_shift;
        let page = size_of::<u64>().trailing_zeros() + self.chunk_shift;
        page.saturating_sub(states).min(self.total_shift - self.segment_shift)
    }

    /// Returns the charge for a system page of states: the same as for a chunk.
    pub(crate) fn states_cost(&self) -> u64 {
        self.chunk_cost()
    }

    /// Returns the maximum charge for one more page in a map.
    pub(crate) fn room_for_one(&self) -> u64 {
        self.chunk_cost() + self.states_cost()
    }
}
