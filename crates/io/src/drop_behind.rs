//! Makes the kernel drop pages from its page cache that Pagefold has cached itself.
//!
//! Without direct I/O, each page that is read also stays in the kernel's cache. Dropping each page
//! by a call to the kernel after the read would double the number of system calls. So the ranges
//! that were read are collected in a list, merged, and dropped many at a time. No thread waits for
//! the list: a reader that finds the list locked drops its own range at once.
//!
//! This is an approximation. A range that another process uses is dropped from the kernel's cache
//! for that process too, and the last few ranges stay in the cache until more ranges are added, or
//! until the file is closed.
//!
//! The kernel can drop a written page only after the page was written back, and only a sync
//! guarantees that it was. So [`Written`] records one span, from the first to the last written
//! range. After a sync that succeeded, the whole span is dropped with one call. This also drops
//! pages of the span that weren't written. That is intended: Pagefold is the cache of this file, so
//! the kernel's copies of these pages are second copies, too.

use std::ops::Range;

use sync::lock::Mutex;

/// The most ranges collected.
const RANGES_MAX: usize = 64;

/// Dropping starts when the collected ranges reach this size: the machine can spare that much for
/// second copies.
const BYTES_MAX: u64 = 4 << 20;

/// The ranges of one file that were read and not dropped yet.
#[derive(Debug, Default)]
pub(crate) struct DropBehind {
    list: Mutex<List>,
}

/// The start and end of each range, and the sum of their lengths.
#[derive(Clone, Copy, Debug)]
struct List {
    ranges: [(u64, u64); RANGES_MAX],
    len: usize,
    bytes: u64,
}

impl Default for List {
    fn default() -> Self {
        Self { ranges: [(0, 0); RANGES_MAX], len: 0, bytes: 0 }
    }
}

impl DropBehind {
    /// Records that `range` was read. Calls `drop` for the ranges that should be dropped now.
    pub(crate) fn note(&self, range: Range<u64>, drop: impl FnMut(Range<u64>)) {
        let Some(mut list) = self.list.try_lock() else {
            return [range].into_iter().for_each(drop);
        };
        let at = list.len;
        list.ranges[at] = (range.start, range.end);
        list.len += 1;
        list.bytes = list.bytes.saturating_add(range.end.saturating_sub(range.start));
        if list.len == RANGES_MAX || list.bytes >= BYTES_MAX {
            let full = std::mem::take(&mut *list);
            std::mem::drop(list);
            full.drain(drop);
        }
    }

    /// Calls `drop` for all remaining ranges.
    pub(crate) fn finish(&self, drop: impl FnMut(Range<u64>)) {
        let rest = std::mem::take(&mut *self.list.lock());
        rest.drain(drop);
    }
}

impl List {
    /// Calls `drop` for each range. Ranges that touch or overlap are merged.
    fn drain(mut self, mut drop: impl FnMut(Range<u64>)) {
        let ranges = &mut self.ranges[..self.len];
        ranges.sort_unstable();
        let Some((&(mut start, mut end), later)) = ranges.split_first() else { return };
        for &(next_start, next_end) in later {
            if next_start > end {
                drop(start..end);
                start = next_start;
                end = next_end;
            }
            end = end.max(next_end);
        }
        drop(start..end);
    }
}

/// Only whole pages can be dropped.
const PAGE: u64 = 4096;

/// The span of all bytes written to one file since its last sync that succeeded, in whole pages.
#[derive(Debug, Default)]
pub(crate) struct Written {
    span: Mutex<Option<(u64, u64)>>,
}

impl Written {
    /// Records that some of `range` was written.
    pub(crate) fn note(&self, range: Range<u64>) {
        let (start, end) = (range.start / PAGE * PAGE, range.end.next_multiple_of(PAGE));
        let mut span = self.span.lock();
        let (first, last) = span.unwrap_or((start, end));
        *span = Some((first.min(start), last.max(end)));
    }

    /// Returns the span recorded since the last call.
    pub(crate) fn take(&self) -> Option<Range<u64>> {
        self.span.lock().take().map(|(start, end)| start..end)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn collect(read: &[Range<u64>]) -> (Vec<Range<u64>>, Vec<Range<u64>>) {
        let behind = DropBehind::default();
        let (mut early, mut late) = (Vec::new(), Vec::new());
        read.iter().for_each(|range| behind.note(range.clone(), |range| early.push(range)));
        behind.finish(|range| late.push(range));
        behind.finish(|range| panic!("{range:?} dropped twice"));
        (early, late)
    }

    #[test]
    fn nothing_read_is_nothing_dropped() {
        assert_eq!(collect(&[]), (vec![], vec![]));
    }

    #[test]
    fn touching_and_overlapping_ranges_are_dropped_together() {
        let (early, late) = collect(&[30..40, 0..10, 10..20, 35..37, 60..61]);
        assert_eq!((early, late), (vec![], vec![0..20, 30..40, 60..61]));
    }

    #[test]
    fn a_full_list_is_dropped_and_starts_again() {
        let read: Vec<_> = (0..70).map(|i| i * 100..i * 100 + 10).collect();
        let (early, late) = collect(&read);
        assert_eq!((early.as_slice(), late.as_slice()), read.split_at(RANGES_MAX));
    }

    #[test]
    fn many_bytes_are_dropped_before_the_list_is_full() {
        let (early, late) = collect(&[0..BYTES_MAX - 1, BYTES_MAX..BYTES_MAX + 1, 7..8, 9..10]);
        assert_eq!((early, late), (vec![0..BYTES_MAX - 1, BYTES_MAX..BYTES_MAX + 1], vec![7..8, 9..10]));
    }

    #[test]
    fn who_finds_the_list_taken_drops_its_own_range() {
        let behind = DropBehind::default();
        let taken = behind.list.lock();
        let mut dropped = Vec::new();
        behind.note(5..9, |range| dropped.push(range));
        drop(taken);
        assert_eq!(dropped.as_slice(), std::slice::from_ref(&(5..9)));
    }

    #[test]
    fn the_span_of_what_was_written_is_whole_pages_and_given_once() {
        let written = Written::default();
        assert_eq!(written.take(), None);
        written.note(8192..8193);
        assert_eq!(written.take(), Some(8192..12_288));
        written.note(40_960..45_056);
        written.note(4097..4098);
        written.note(16_384..20_480);
        assert_eq!((written.take(), written.take()), (Some(4096..45_056), None));
    }
}
