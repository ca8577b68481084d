//! The words of all page maps, in one reserved array, and which part of it belongs to which map.
//!
//! A page's word has a number in this array for as long as its map lives, and a frame's record holds that number. The
//! array is never unmapped, so a number that went stale still leads to a word, and to one that can't equal the one
//! expected (`page_word`).
//!
//! The array is handed out in *segments*. They are closed at first, which costs the system nothing, not even a commit
//! charge; a segment is opened, and the states of its chunks are charged, when the first page in it is loaded.

use std::collections::BTreeMap;
use std::ops::Range;

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::lock::Mutex;

use crate::budget::Budget;
use crate::chunks::{Chunks, NoRoom};
use crate::error::ReserveError;
use crate::length::Length;
use crate::region::{Protection, Region};

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

/// No segment is shorter, as a power of two: so the upper bits of a map's first word tell all maps apart.
pub(crate) const MAP_SHIFT: u32 = if cfg!(pagefold_loom) { 1 } else { 18 };

const CLOSED: u32 = 0;
const OPEN: u32 = 1;

/// All page words.
#[derive(Debug)]
pub(crate) struct PageWords {
    pub(crate) words: Region<AtomicU64>,
    pub(crate) chunks: Chunks,
    /// [`CLOSED`] or [`OPEN`]; changed under the lock of `free`.
    segments: Region<AtomicU32>,
    /// Of the objects, by their maps' numbers.
    pub(crate) lengths: Region<Length>,
    /// Runs of segments that belong to no map: start → length.
    free: Mutex<BTreeMap<usize, usize>>,
    geometry: WordGeometry,
}

impl PageWords {
    /// Reserves the array, or what the system allows of it, down to one segment. Where it doesn't allow all, address
    /// space is short, and most of it is left to the rest of the process: no more than a quarter is taken of what there
    /// is.
    pub(crate) fn reserve(geometry: WordGeometry) -> Result<Self, ReserveError> {
        let with_total = |total_shift| Self::reserve_all(WordGeometry { total_shift, ..geometry });
        let refused = match with_total(geometry.total_shift) {
            Ok(all) => return Ok(all),
            Err(refused) => refused,
        };
        let possible = (geometry.segment_shift..geometry.total_shift).rev().find(|&shift| with_total(shift).is_ok());
        let modest = possible.ok_or(refused)?.saturating_sub(2).max(geometry.segment_shift);
        with_total(modest)
    }

    fn reserve_all(geometry: WordGeometry) -> Result<Self, ReserveError> {
        // A child that was forked finds zeros: no page is in memory, no chunk is there.
        let open = Protection { zeros_in_child: true, ..Protection::default() };
        let segments = 1_usize << (geometry.total_shift - geometry.segment_shift);
        let states = Region::reserve(1 << (geometry.total_shift - geometry.chunk_shift), open)?;
        Ok(Self {
            words: Region::reserve(1 << geometry.total_shift, Protection { closed: true, ..open })?,
            chunks: Chunks::new(states, geometry.chunk_shift),
            segments: Region::reserve(segments, open)?,
            lengths: Region::reserve((1 << geometry.total_shift) >> MAP_SHIFT, open)?,
            free: Mutex::new(BTreeMap::from([(0, segments)])),
            geometry,
        })
    }

    fn words_in(&self, segments: Range<usize>) -> Range<usize> {
        segments.start << self.geometry.segment_shift..segments.end << self.geometry.segment_shift
    }

    /// Bytes that the chunk states of a segment take.
    fn segment_cost(&self) -> u64 {
        (size_of::<u32>() as u64) << (self.geometry.segment_shift - self.geometry.chunk_shift)
    }

    /// Gives `words` words of the array to a map: the first run of free segments that is long enough.
    pub(crate) fn allocate(&self, words: u64) -> Result<Range<usize>, ReserveError> {
        let refused = ReserveError {
            bytes: words.saturating_mul(size_of::<u64>() as u64),
            errno: rustix::io::Errno::NOMEM.raw_os_error(),
        };
        let wanted = words.div_ceil(1 << self.geometry.segment_shift).max(1);
        let wanted = usize::try_from(wanted).map_err(|_| refused)?;
        let mut free = self.free.lock();
        let (&start, &len) = free.iter().find(|&(_, &len)| len >= wanted).ok_or(refused)?;
        free.remove(&start);
        if len > wanted {
            free.insert(start + wanted, len - wanted);
        }
        Ok(self.words_in(start..start + wanted))
    }

    /// Takes back what [`allocate`](Self::allocate) gave. If pages are still in use, by guards that were leaked, their
    /// part of the array is leaked with them.
    pub(crate) fn release(&self, range: Range<usize>, budget: &Budget) {
        if self.chunks.clear(range.clone(), &self.words, budget) > 0 {
            return;
        }
        let shift = self.geometry.segment_shift;
        let (mut start, mut end) = (range.start >> shift, range.end >> shift);
        let mut free = self.free.lock();
        for segment in start..end {
            // Relaxed here and below: changed under the lock; who reads without it looks again under it.
            if self.segments[segment].swap(CLOSED, Ordering::Relaxed) == OPEN {
                budget.uncharge(self.segment_cost());
            }
        }
        if let Some((&before, &len)) = free.range(..start).next_back()
            && before + len == start
        {
            free.remove(&before);
            start = before;
        }
        if let Some(len) = free.remove(&end) {
            end += len;
        }
        free.insert(start, end - start);
    }

    /// Before a word is changed from *vacant*: see [`Chunks::enter`].
    pub(crate) fn enter(&self, word: usize, budget: &Budget) -> Result<(), NoRoom> {
        self.chunks.enter(word, budget, |word| self.open_segment(word >> self.geometry.segment_shift, budget))
    }

    fn open_segment(&self, segment: usize, budget: &Budget) -> Result<(), NoRoom> {
        if self.segments[segment].load(Ordering::Acquire) == OPEN {
            return Ok(());
        }
        let _free = self.free.lock();
        if self.segments[segment].load(Ordering::Relaxed) == OPEN {
            return Ok(());
        }
        if !budget.try_charge(self.segment_cost()) {
            return Err(NoRoom);
        }
        // Once open, a segment stays writable; a later owner of it opens it again to no effect.
        if self.words.open(self.words_in(segment..segment + 1)).is_err() {
            budget.uncharge(self.segment_cost());
            return Err(NoRoom);
        }
        self.segments[segment].store(OPEN, Ordering::Release);
        Ok(())
    }

    /// Words from the first to behind the last that any map has.
    fn used(&self) -> Range<usize> {
        let free = self.free.lock();
        let segments = self.segments.len();
        let end =
            free.last_key_value().filter(|&(start, len)| start + len == segments).map_or(segments, |(start, _)| *start);
        let start = free.get(&0).copied().unwrap_or(0);
        self.words_in(start.min(end)..end)
    }

    /// Gives back up to `wanted` chunks that have held nothing but shadows for a while.
    pub(crate) fn sweep(&self, wanted: usize, budget: &Budget) -> usize {
        let used = self.used();
        if used.is_empty() { 0 } else { self.chunks.sweep(used, wanted, &self.words, budget) }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    /// Eight segments.
    fn words() -> (PageWords, usize) {
        let geometry = WordGeometry { chunk_shift: 9, segment_shift: 18, total_shift: 21 };
        (PageWords::reserve(geometry).unwrap(), 1 << geometry.segment_shift)
    }

    #[test]
    fn runs_of_segments_grow_together_again() {
        let (words, segment) = words();
        let budget = Budget::new(0);
        let mut parts: Vec<_> = [1, segment as u64, segment as u64 + 1, 3 * segment as u64, 0]
            .into_iter()
            .map(|pages| words.allocate(pages).unwrap())
            .collect();
        let starts: Vec<_> = parts.iter().map(|part| part.start / segment).collect();
        assert_eq!((starts, parts[4].end), (vec![0, 1, 2, 4, 7], 8 * segment));
        assert!(words.allocate(1).is_err(), "all is given");
        assert_eq!(words.used(), 0..8 * segment);
        // Behind, before, and between what is free already.
        for part in [1, 3, 2] {
            words.release(parts[part].clone(), &budget);
        }
        assert_eq!(*words.free.lock(), BTreeMap::from([(1, 6)]));
        let again = words.allocate(6 * segment as u64).unwrap();
        assert_eq!(again, segment..7 * segment);
        words.release(again, &budget);
        words.release(parts.remove(0), &budget);
        assert_eq!(words.used(), 7 * segment..8 * segment);
        words.release(parts.pop().unwrap(), &budget);
        assert_eq!(*words.free.lock(), BTreeMap::from([(0, 8)]));
        assert!(words.used().is_empty());
    }

    #[test]
    fn a_segment_is_charged_while_its_map_lives() {
        let (words, segment) = words();
        let cost = 512 * 4 + 4096;
        let budget = Budget::new(cost);
        let part = words.allocate(2 * segment as u64).unwrap();
        assert_eq!(words.enter(part.start, &budget), Ok(()));
        assert_eq!(words.enter(part.start + 1, &budget), Ok(()), "of the same chunk");
        assert_eq!(words.enter(part.start + segment, &budget), Err(NoRoom));
        assert_eq!(budget.used(), cost);
        words.chunks.leave(part.start, false);
        words.chunks.leave(part.start + 1, false);
        words.release(part, &budget);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_page_left_in_memory_keeps_its_words() {
        let (words, segment) = words();
        let budget = Budget::new(1 << 20);
        let part = words.allocate(1).unwrap();
        words.enter(part.start, &budget).unwrap();
        words.words[part.start].store(crate::page_word::PageWord::loading().bits(), Ordering::Relaxed);
        words.release(part, &budget);
        assert_eq!(words.allocate(1).unwrap().start, segment, "the first segment is nobody's any more");
    }
}
