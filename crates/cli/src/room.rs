//! How much memory a run has: a budget, or room for a number of pages.

use crate::units;

/// Bytes of the budget that each page takes besides its data, for example for its frame's record.
const FRAME_BYTES: u64 = 128;

/// Bytes of the budget for each page of the file: twice the size of a page word, because page maps
/// grow in chunks, which may be half empty.
const WORD_BYTES: u64 = 16;

/// Bytes of the budget for each group.
const GROUP_BYTES: u64 = 64 << 10;

/// Bytes of the budget for everything else,
const OTHER_BYTES: u64 = 8 << 20;

/// and pages, for free frames that CPUs keep.
const OTHER_PAGES: u64 = 64;

/// The memory of a run.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Room {
    /// The budget in bytes.
    pub(crate) budget: u64,
    /// The bytes that the groups share: all of the budget, or what the pages of `--pages` take.
    pub(crate) shared: u64,
    /// The value of `--pages`.
    pub(crate) pages: Option<u64>,
}

impl Room {
    /// Creates a budget of so many bytes.
    pub(crate) fn of_bytes(budget: u64) -> Self {
        Self { budget, shared: budget, pages: None }
    }

    /// Creates room for `pages` pages of `page_bytes` bytes each. The budget also has room for the
    /// metadata of `groups` groups and of a file of `file_bytes` bytes.
    pub(crate) fn of_pages(pages: u64, page_bytes: u64, file_bytes: u64, groups: usize) -> Self {
        let shared = pages.saturating_mul(page_bytes);
        // Some frames are free, or on their way from one group to another.
        let spare = (shared / 4).saturating_add(OTHER_PAGES * page_bytes);
        let words = file_bytes.div_ceil(page_bytes).saturating_mul(WORD_BYTES);
        let budget = [pages.saturating_mul(FRAME_BYTES), words, groups as u64 * GROUP_BYTES, OTHER_BYTES, spare]
            .into_iter()
            .fold(shared, u64::saturating_add);
        Self { budget, shared, pages: Some(pages) }
    }

    /// Returns the name of the option that the user gave.
    pub(crate) fn option_name(self) -> &'static str {
        if self.pages.is_some() { "--pages" } else { "--memory" }
    }
}

/// Returns the name of a run: its budget, or its room in pages.
pub(crate) fn shown(memory_bytes: u64, pages: Option<u64>) -> String {
    pages.map_or_else(|| units::bytes(memory_bytes), |pages| units::plural(pages, "page"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_number_of_pages_has_a_larger_budget() {
        let room = Room::of_pages(100, 4096, 1 << 30, 4);
        assert_eq!((room.shared, room.pages), (100 * 4096, Some(100)));
        assert!(room.budget > room.shared + (1 << 30) / 4096 * 8, "{room:?}");
        assert_eq!(Room::of_pages(u64::MAX, 4096, 1, 1).budget, u64::MAX);
        assert_eq!((shown(1 << 20, None), shown(1 << 20, Some(1))), ("1 MiB".to_owned(), "1 page".to_owned()));
    }
}
