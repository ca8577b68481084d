//! The order in which a write-back cycle visits the pages of a file.

use std::ops::Range;

use frames::PageMap;

/// The pages that a cycle has yet to visit: one range of pages, then another one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Course([Range<u64>; 2]);

impl Course {
    /// Creates a course over a range of pages.
    pub(crate) fn of(pages: Range<u64>) -> Self {
        Self([pages, 0..0])
    }

    /// Creates a course over all pages: from `hand` to the end, then from the beginning to `hand`.
    pub(crate) fn round(hand: u64) -> Self {
        Self([hand..u64::MAX, 0..hand])
    }

    /// Returns the first page.
    pub(crate) fn first(&self) -> Option<u64> {
        self.0.iter().find(|range| !range.is_empty()).map(|range| range.start)
    }

    /// Returns the first page that may differ from the file.
    pub(crate) fn next_written(&self, map: &PageMap) -> Option<u64> {
        self.0.iter().find_map(|range| map.next_written(range.clone()))
    }

    /// Advances past `page`, which must lie ahead.
    pub(crate) fn pass(&mut self, page: u64) {
        for range in &mut self.0 {
            if range.contains(&page) {
                range.start = page + 1;
                break;
            }
            range.start = range.end;
        }
    }

    /// Advances to `page`, which must lie ahead, or to the end. Returns the pages passed.
    pub(crate) fn take_before(&mut self, page: Option<u64>) -> [Range<u64>; 2] {
        let before = self.clone();
        match page {
            Some(page) => {
                self.pass(page);
                let range = self.0.iter_mut().find(|range| range.start == page + 1);
                range.into_iter().for_each(|range| range.start = page);
            }
            None => self.0.iter_mut().for_each(|range| range.start = range.end),
        }
        let [first, second] = before.0;
        [first.start..self.0[0].start, second.start..self.0[1].start]
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    #[test]
    fn it_goes_round_once() {
        let mut course = Course::round(7);
        assert_eq!(course.first(), Some(7));
        course.pass(9);
        assert_eq!(course.take_before(Some(20)), [10..20, 0..0]);
        assert_eq!(course.take_before(Some(3)), [20..u64::MAX, 0..3]);
        assert_eq!((course.first(), course.take_before(Some(3))), (Some(3), [u64::MAX..u64::MAX, 3..3]));
        assert_eq!(course.take_before(None), [u64::MAX..u64::MAX, 3..7]);
        assert_eq!(course.first(), None);
        assert_eq!(course.take_before(None)[1], 7..7);
    }

    #[test]
    fn a_range_is_gone_through_once() {
        let mut course = Course::of(5..8);
        course.pass(7);
        assert_eq!(course, Course([8..8, 0..0]));
        assert_eq!(Course::round(0).first(), Some(0));
    }
}
