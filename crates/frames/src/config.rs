//! The configuration of [`Frames`](crate::Frames): sizes given by the user, and the layout that
//! follows from them.

use crate::page_word::FRAME_BITS;
use crate::region::{Protection, can_reserve};
use crate::tables::TABLE_BYTES;
use crate::word_geometry::WordGeometry;

/// The parameters of a [`Frames`](crate::Frames).
#[derive(Clone, Debug)]
pub struct Config {
    /// The budget in bytes.
    pub memory: u64,
    /// The size that the budget may grow to later. Address space is reserved for it. A value below
    /// `memory` counts as `memory`.
    pub memory_max: u64,
    /// Bytes in a page: a power of two, at least the system's page size.
    pub page_size: usize,
    /// Uses the system's huge pages if extents are as large as huge pages: if the budget has at
    /// least 64 MiB, or if pages have 2 MiB.
    pub huge_pages: bool,
    /// Takes all memory at once, rather than when it is first used.
    pub pretouch: bool,
    /// Pretends that the CPUs belong to this many NUMA nodes. `None`: uses the system's nodes.
    pub nodes: Option<usize>,
    /// Log2 of the number of page words to reserve address space for. `None`:
    /// 2^[`PAGE_WORDS_SHIFT`](crate::PAGE_WORDS_SHIFT) words, or as many as the system allows.
    pub page_words_shift: Option<u32>,
}

impl Config {
    /// Returns the usual choices for a budget of `memory` bytes in pages of `page_size`.
    #[must_use]
    pub fn new(memory: u64, page_size: usize) -> Self {
        Self {
            memory,
            memory_max: memory,
            page_size,
            huge_pages: true,
            pretouch: false,
            nodes: None,
            page_words_shift: None,
        }
    }

    pub(crate) fn layout(&self) -> Layout {
        assert!(self.page_size.is_power_of_two(), "a page of {} bytes", self.page_size);
        let memory_max = self.memory_max.max(self.memory);
        let page_shift = self.page_size.trailing_zeros();
        // An extent is a huge page, unless the budget would then have fewer than 32 extents. An
        // extent has at least one page.
        let largest = (self.memory / EXTENTS_MIN).max(1).ilog2();
        let extent_bytes_shift = largest.min(HUGE_SHIFT).max(page_shift);
        let extent_shift = extent_bytes_shift - page_shift;
        let frames = ((memory_max >> page_shift).min(FRAMES_MAX) >> extent_shift).max(1) << extent_shift;
        let words = if cfg!(pagefold_loom) {
            WordGeometry { chunk_shift: 1, segment_shift: 1, total_shift: 3 }
        } else {
            WordGeometry::of(rustix::param::page_size(), self.page_words_shift)
        };
        Layout {
            page_size: self.page_size,
            frames: frames as usize,
            frames_at_start: (self.memory >> page_shift) as usize,
            extent_shift,
            huge: self.huge_pages && extent_bytes_shift == HUGE_SHIFT,
            map_reserve: map_reserve(self.memory, words),
            words,
            tables: if cfg!(pagefold_loom) {
                8
            } else {
                (memory_max.saturating_mul(2) >> TABLE_BYTES.ilog2()).max(TABLES_MIN) as usize
            },
        }
    }
}

/// The minimum number of index tables (`tables`) to reserve address space for. For a large budget,
/// more address space is reserved: enough for twice as many tables as would fill `memory_max`.
const TABLES_MIN: u64 = 1 << 14;

/// New frames leave this part of the budget free, so that page maps can still be charged. Without
/// the reserve, a drain that gives back frames to make room for a chunk of a page map could be in
/// vain: other threads could use the room for new frames before the chunk is charged.
///
/// The reserve is the budget divided by `MAP_RESERVE_SHARE`, at most `MAP_RESERVE_MAX`, but always
/// enough for the metadata of one more page.
const MAP_RESERVE_SHARE: u64 = 64;
const MAP_RESERVE_MAX: u64 = 64 << 10;
/// The reserve's minimum is rounded up to a multiple of this.
const MAP_RESERVE_UNIT: u64 = 4 << 10;

fn map_reserve(memory: u64, words: WordGeometry) -> u64 {
    let min = words.room_for_one().next_multiple_of(MAP_RESERVE_UNIT);
    (memory / MAP_RESERVE_SHARE).clamp(min, min.max(MAP_RESERVE_MAX))
}

/// The maximum number of frames.
pub const FRAMES_MAX: u64 = 1 << FRAME_BITS;

/// Returns the maximum cost of one more page in a page map, besides its frame.
#[must_use]
pub fn map_room() -> u64 {
    WordGeometry::of(rustix::param::page_size(), None).room_for_one()
}

/// The process must be able to reserve this many times the size that the budget may grow to. Of
/// eight such sizes, frames take one and tables take two. Page words take up to two if address
/// space is scarce (`PageWords::reserve`). The rest is left to the process.
const ADDRESS_SHARE: u64 = 8;
/// Of these eight sizes, page words must leave this many.
pub(crate) const BESIDE_WORDS: u64 = 6;
/// The minimum ratio of the process's writable memory to the size that the budget may grow to.
const WRITABLE_SHARE: u64 = 2;

/// Returns the size that a budget of `memory` bytes may grow to: `wanted`, halved until the process
/// has room for it, but at least `memory`. The process has room for a size if it can reserve eight
/// times that size of address space, and twice that size of writable memory. Frames are reserved as
/// writable memory, so they take at most half of what the process may have. (Writable memory counts
/// against `RLIMIT_DATA`, and with `vm.overcommit_memory=2` against the system's commit limit.)
#[must_use]
pub fn room_to_grow(memory: u64, wanted: u64) -> u64 {
    let can_reserve = |bytes, closed| can_reserve(bytes, Protection { closed, ..Protection::default() });
    let is_there = |bytes: u64| {
        can_reserve(bytes.saturating_mul(ADDRESS_SHARE), true)
            && can_reserve(bytes.saturating_mul(WRITABLE_SHARE), false)
    };
    let mut most = wanted;
    while most > memory && !is_there(most) {
        most /= 2;
    }
    most.max(memory)
}

/// The system's huge page: 2 MiB.
const HUGE_SHIFT: u32 = 21;
/// The minimum number of extents in a budget, unless an extent would then be smaller than a page.
const EXTENTS_MIN: u64 = 32;
/// A frame table of at least this many bytes gets huge pages if the frames do.
const TABLE_LARGE: usize = 16 << 20;

/// Sizes that follow from a [`Config`].
#[derive(Clone, Debug)]
pub(crate) struct Layout {
    pub(crate) page_size: usize,
    /// The number of frames that have address space; a multiple of the frames in an extent.
    pub(crate) frames: usize,
    /// The number of frames that the initial budget could hold.
    pub(crate) frames_at_start: usize,
    pub(crate) extent_shift: u32,
    pub(crate) huge: bool,
    /// Bytes of the budget that frames leave free for page maps.
    pub(crate) map_reserve: u64,
    pub(crate) words: WordGeometry,
    pub(crate) tables: usize,
}

/// Bytes of the frame table per frame.
const RECORD: u64 = 64;

impl Layout {
    /// Returns the charge for an extent: its frames, and its share of the frame table. When the
    /// extent's memory is given back, its share of the table stays in memory, so this share is
    /// charged only the first time.
    pub(crate) fn extent_cost(&self, first_time: bool) -> u64 {
        let record = if first_time { RECORD } else { 0 };
        (self.page_size as u64 + record) << self.extent_shift
    }

    pub(crate) fn table_is_large(&self) -> bool {
        self.frames_at_start * RECORD as usize >= TABLE_LARGE
    }

    pub(crate) fn budget_max(&self) -> u64 {
        self.frames as u64 * self.page_size as u64
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Regression: with system pages of 16 or 64 KiB, a single chunk was larger than the reserve
    /// for page maps. Now the reserve has room for at least a chunk and its states.
    #[test]
    fn frames_leave_room_for_a_chunk_and_its_states_whatever_the_systems_page() {
        for system_page in [4 << 10, 16 << 10, 64 << 10] {
            let (words, cost) = (WordGeometry::of(system_page, None), 2 * system_page as u64);
            assert_eq!(words.room_for_one(), cost);
            for memory in [1 << 20, 16 << 20, 1 << 40] {
                let reserve = map_reserve(memory, words);
                assert!((cost..cost.max(MAP_RESERVE_MAX) + MAP_RESERVE_UNIT).contains(&reserve), "{reserve}");
            }
        }
        let usual = WordGeometry::of(4 << 10, None);
        assert_eq!([1 << 18, 1 << 20, 1 << 40].map(|memory| map_reserve(memory, usual)), [8 << 10, 16 << 10, 64 << 10]);
    }

    #[test]
    fn extents_are_huge_pages_where_the_budget_allows() {
        let gib = Config::new(1 << 30, 4096).layout();
        assert_eq!((gib.extent_shift, gib.frames, gib.huge), (9, 1 << 18, true));
        let mib = Config::new(1 << 20, 4096).layout();
        assert_eq!((mib.extent_shift, mib.frames, mib.huge), (3, 256, false));
        let large_pages = Config::new(1 << 26, 2 << 20).layout();
        assert_eq!((large_pages.extent_shift, large_pages.frames, large_pages.huge), (0, 32, true));
        let odd = Config::new(1_000_000, 4096).layout();
        assert_eq!(odd.frames % (1 << odd.extent_shift), 0);
    }
}
