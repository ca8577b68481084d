//! The words of all page maps, in one reserved array, and the allocation of parts of the array to
//! maps.
//!
//! A page's word keeps its index in this array for as long as its map lives, and a frame's record
//! holds the index of its page's word. A thread can use an index that is out of date. This is safe,
//! because the array is never unmapped, so the thread always loads some word. The thread also
//! notices: the loaded word differs from the resident word that the thread expects, because a
//! resident word is never reused (`page_word`).
//!
//! The array is allocated in *segments* (`segments`). A segment consists of 32 *blocks*, and a
//! block consists of *chunks* of one system page (`chunks`). A block stays closed until a page
//! whose word is in the block is loaded. A closed block takes no memory. Until its segment is made
//! writable, it takes no commit charge either.
//!
//! The states of a block's chunks don't fill a system page. So the segments form groups of
//! neighbours, 64 to a group if a system page has 4 KiB. In each group, the states of the first
//! blocks share a system page, the states of the second blocks share another, and so on
//! ([`Chunks`]). A shared system page is charged while at least one of its blocks is open.
//!
//! Segments are made writable in *strides* of 512, or one by one if the system refuses a whole
//! stride. Strides keep the number of mappings small: to the kernel, each writable part of the
//! array between parts that aren't writable is a separate mapping, and a process may have at most
//! 65,530 mappings.

use std::ops::Range;

use sync::atomic::{AtomicU32, AtomicU64, AtomicUsize, Ordering};
use sync::lock::Mutex;

use crate::budget::Budget;
use crate::chunks::{Chunks, GivingBack, NoRoom, NotEntered, Payment};
use crate::error::ReserveError;
use crate::frame_id::FrameId;
use crate::length::Length;
use crate::page_word::{PageState, PageWord};
use crate::region::{Protection, Region, can_reserve};
use crate::segments::Segments;
use crate::word_geometry::{BLOCKS_SHIFT, WordGeometry};

/// A visit of the sparse (nearly idle) chunks of a segment starts this many chunks further on than
/// the visit before, which may have been to another segment. The step has no factor in common with
/// 512, the number of chunks in a segment, so 512 successive visits start at 512 different
/// positions. With a fixed start, visits that end early would always see the same chunks.
const SPARSE_STEP: usize = 61;

/// A lower limit for `segment_shift`. Maps are at least one segment apart, so the upper bits of the
/// index of a map's first word identify the map.
pub(crate) const MAP_SHIFT: u32 = if cfg!(pagefold_loom) { 1 } else { 18 };

const CLOSED: u32 = 0;
const OPEN: u32 = 1;

/// Log2 of the segments in a stride: a GiB of page words.
const STRIDE_SHIFT: u32 = 9;

/// All page words.
#[derive(Debug)]
pub(crate) struct PageWords {
    pub(crate) words: Region<AtomicU64>,
    pub(crate) chunks: Chunks,
    /// The open blocks of each segment, as a bitmap; changed under the lock of `free`.
    segments: Region<AtomicU32>,
    /// For each system page of states, the number of open blocks that share it. Changed under the
    /// same lock.
    open_in: Region<AtomicU32>,
    /// For each stride, [`OPEN`] if all of it is writable. Open strides are never closed. Changed
    /// under the same lock.
    strides: Region<AtomicU32>,
    /// The lengths of the objects, indexed by the numbers of their maps.
    pub(crate) lengths: Region<Length>,
    /// For each segment that holds the words of one part of an object (`far_words`): the part's
    /// number.
    parts: Region<AtomicU64>,
    /// Held by the thread that allocates a segment for a part of an object (`far_words`).
    pub(crate) growing: Mutex<()>,
    free: Mutex<Segments>,
    /// The position in a segment where the next visit of its sparse chunks begins.
    sparse_hand: AtomicUsize,
    geometry: WordGeometry,
}

impl PageWords {
    /// Reserves the array. Reserves the full size only if the process could then still reserve
    /// `beside` bytes of address space, and also `writable` bytes of writable memory. Otherwise the
    /// process is short of one of these. Then this function reserves a quarter of the largest size
    /// that the system would grant, but at least one segment, and leaves the rest to the process.
    pub(crate) fn reserve(geometry: WordGeometry, beside: u64, writable: u64) -> Result<Self, ReserveError> {
        let with_total = |total_shift| Self::reserve_all(WordGeometry { total_shift, ..geometry });
        let open = Protection::default();
        let closed = Protection { closed: true, ..open };
        let refused = match with_total(geometry.total_shift) {
            Ok(all) if can_reserve(beside, closed) && can_reserve(writable, open) => return Ok(all),
            Ok(_) => None,
            Err(refused) => Some(refused),
        };
        let possible = (geometry.segment_shift..=geometry.total_shift).rev().find(|&shift| with_total(shift).is_ok());
        match (possible, refused) {
            (None, Some(refused)) => Err(refused),
            (possible, _) => with_total(possible.unwrap_or(0).saturating_sub(2).max(geometry.segment_shift)),
        }
    }

    fn reserve_all(geometry: WordGeometry) -> Result<Self, ReserveError> {
        // A forked child reads zeros: no page is in memory, and no chunk is present.
        let open = Protection::default();
        let segments = 1_usize << (geometry.total_shift - geometry.segment_shift);
        let states = Region::reserve(1 << (geometry.total_shift - geometry.chunk_shift), open)?;
        let present = Region::reserve(segments, open)?;
        let strides = Region::reserve((segments >> STRIDE_SHIFT).max(1), open)?;
        Ok(Self {
            words: Region::reserve(1 << geometry.total_shift, Protection { closed: true, ..open })?,
            chunks: Chunks::new(states, present, geometry),
            segments: Region::reserve(segments, open)?,
            open_in: Region::reserve((segments >> geometry.group_shift()) << BLOCKS_SHIFT, open)?,
            strides,
            lengths: Region::reserve((1 << geometry.total_shift) >> MAP_SHIFT, open)?,
            parts: Region::reserve(segments, open)?,
            growing: Mutex::new(()),
            free: Mutex::new(Segments::new(segments)),
            sparse_hand: AtomicUsize::new(0),
            geometry,
        })
    }

    fn words_in(&self, segments: Range<usize>) -> Range<usize> {
        segments.start << self.geometry.segment_shift..segments.end << self.geometry.segment_shift
    }

    /// Allocates a part of the array for a map: `roomy` words if plenty of segments are free, else
    /// `words` (see [`Segments::take`]).
    pub(crate) fn allocate(&self, words: u64, roomy: u64) -> Result<Range<usize>, ReserveError> {
        let refused = ReserveError {
            bytes: words.saturating_mul(size_of::<u64>() as u64),
            errno: rustix::io::Errno::NOMEM.raw_os_error(),
        };
        let segments = |words: u64| usize::try_from(words.div_ceil(1 << self.geometry.segment_shift).max(1));
        let wanted = segments(words).map_err(|_| refused)?;
        let roomy = segments(roomy).unwrap_or(wanted);
        let taken = self.free.lock().take(wanted, roomy);
        taken.map(|run| self.words_in(run)).ok_or(refused)
    }

    /// Returns log2 of the words in a segment.
    #[inline]
    pub(crate) fn segment_shift(&self) -> u32 {
        self.geometry.segment_shift
    }

    /// Allocates a segment for a part of an object. Returns `None` if no more segments may be used
    /// for parts (`segments`). The caller holds `growing`.
    pub(crate) fn take_part(&self, part: u64) -> Option<usize> {
        let segment = self.free.lock().take_part()?;
        // Relaxed: the link to the segment is stored with Release (FAR-2 of `far_words`).
        self.parts[segment].store(part, Ordering::Relaxed);
        Some(segment)
    }

    /// Frees the segment of a part of an object, under the same conditions as
    /// [`release`](Self::release).
    pub(crate) fn give_part(&self, segment: usize, budget: &Budget) {
        self.release(self.words_in(segment..segment + 1), budget);
    }

    /// Returns the number of a far page (a page outside the map's first run), given the index of
    /// its word.
    pub(crate) fn page_of_part(&self, word: usize) -> u64 {
        let shift = self.geometry.segment_shift;
        // Relaxed: the store to `parts` came before the Release store of the link to the segment.
        // The caller has loaded that link, with Acquire or under `growing`.
        let part = self.parts[word >> shift].load(Ordering::Relaxed);
        (part << shift) + (word & ((1 << shift) - 1)) as u64
    }

    /// Frees a part of the array that [`allocate`](Self::allocate) returned. If leaked guards still
    /// use pages in it, the part is leaked with them.
    ///
    /// If the system refuses to take back the memory of a chunk, the chunk stays present, so its
    /// block must stay open. If the block were closed, the next map that gets the segment would use
    /// the chunk without opening the block, and searches for the map's pages would skip the block.
    pub(crate) fn release(&self, range: Range<usize>, budget: &Budget) {
        // If the policy has paid for parts, it gives them back itself before it drops the map.
        let occupied = self.give_back_all(range.clone(), budget, &mut |_| debug_assert!(false, "a part is paid for"));
        if occupied > 0 {
            return;
        }
        let shift = self.geometry.segment_shift;
        let run = range.start >> shift..range.end >> shift;
        let mut free = self.free.lock();
        for segment in run.clone() {
            // Relaxed: changed under the lock. The next map gets the segment under the same lock,
            // so its threads see which blocks were closed.
            let blocks = self.segments[segment].load(Ordering::Relaxed);
            let closes = |&block: &usize| self.chunks.are_absent(self.words_of_block(segment, block));
            let closing = bits_of(blocks).filter(closes).fold(0, |closing, block| closing | 1 << block);
            self.segments[segment].store(blocks & !closing, Ordering::Relaxed);
            if blocks != CLOSED && blocks == closing {
                free.set_open(segment, false);
            }
            bits_of(closing).for_each(|block| self.uncharge_states(segment, block, budget));
        }
        free.give(run);
    }

    fn giving_back<'a>(&'a self, budget: &'a Budget, returned: &'a mut dyn FnMut(u64)) -> GivingBack<'a> {
        GivingBack { words: &self.words, budget, returned }
    }

    /// Gives back all chunks of a map whose pages no thread loads any more. Returns the number of
    /// chunks that it didn't give back because one of their pages is still in memory. See also
    /// [`Chunks::clear`].
    pub(crate) fn give_back_all(&self, range: Range<usize>, budget: &Budget, returned: &mut dyn FnMut(u64)) -> usize {
        let mut to = self.giving_back(budget, returned);
        self.open_parts(range).map(|part| self.chunks.clear(part, &mut to)).sum()
    }

    /// Gives back up to `wanted` idle chunks of a word's segment. Returns their number.
    pub(crate) fn give_back_idle_of(
        &self,
        word: usize,
        wanted: usize,
        budget: &Budget,
        returned: &mut dyn FnMut(u64),
    ) -> usize {
        if self.chunks.are_absent_around(word) {
            return 0;
        }
        let segment = word >> self.geometry.segment_shift;
        let parts = self.open_parts(self.words_in(segment..segment + 1));
        let mut to = self.giving_back(budget, returned);
        parts.fold(0, |given, part| given + self.chunks.give_back_all_idle(part, wanted - given, &mut to))
    }

    /// Returns whether any chunk of the words in `range` is idle.
    pub(crate) fn any_idle(&self, range: Range<usize>) -> bool {
        self.open_parts(range).any(|part| self.chunks.any_idle(part))
    }

    fn words_of_block(&self, segment: usize, block: usize) -> Range<usize> {
        let first = (segment << self.geometry.segment_shift) + (block << self.geometry.block_shift());
        first..first + (1 << self.geometry.block_shift())
    }

    /// Returns the parts of `range` that lie in open blocks. Closed blocks can be skipped, because
    /// their map has loaded no page in them.
    ///
    /// Acquire pairs with the Release in `open_block`. This call may still miss a block that was
    /// opened just now. A caller that must find a certain page has to synchronize with the thread
    /// that loaded the page.
    fn open_parts(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        let segment_shift = self.geometry.segment_shift;
        let open = move |segment: usize| {
            let blocks = self.segments[segment].load(Ordering::Acquire);
            bits_of(blocks).map(move |block| self.words_of_block(segment, block))
        };
        (range.start >> segment_shift..range.end.div_ceil(1 << segment_shift))
            .flat_map(open)
            .map(move |block| block.start.max(range.start)..block.end.min(range.end))
            .filter(|part| !part.is_empty())
    }

    /// Returns the words, within `range`, of each chunk in which a page is loading, resident or
    /// swapped.
    pub(crate) fn in_use(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        self.open_parts(range).flat_map(|part| self.chunks.in_use(part))
    }

    /// Returns the words, within `range`, of each chunk in which a page is written.
    pub(crate) fn with_written(&self, range: Range<usize>) -> impl Iterator<Item = Range<usize>> + '_ {
        self.open_parts(range).flat_map(|part| self.chunks.with_written(part))
    }

    /// Must be called before a word is changed from *vacant*: see [`Chunks::enter`].
    #[inline]
    pub(crate) fn enter(&self, word: usize, payment: &mut Payment, budget: &Budget) -> Result<(), NotEntered> {
        self.chunks.enter(word, payment, budget, |word| self.open_block(word, budget))
    }

    fn open_block(&self, word: usize, budget: &Budget) -> Result<(), NoRoom> {
        let segment = word >> self.geometry.segment_shift;
        let first = segment << self.geometry.segment_shift;
        let block = (word - first) >> self.geometry.block_shift();
        let blocks = &self.segments[segment];
        if blocks.load(Ordering::Acquire) >> block & 1 != 0 {
            return Ok(());
        }
        let mut free = self.free.lock();
        let open = blocks.load(Ordering::Relaxed);
        if open >> block & 1 != 0 {
            return Ok(());
        }
        self.charge_states(segment, block, budget)?;
        // A segment that was made writable stays writable, even if all its blocks are closed later.
        // Making it writable again has no effect.
        if open == CLOSED && !self.open_stride(segment) && self.words.open(self.words_in(segment..segment + 1)).is_err()
        {
            self.uncharge_states(segment, block, budget);
            return Err(NoRoom);
        }
        if open == CLOSED {
            free.set_open(segment, true);
        }
        blocks.store(open | 1 << block, Ordering::Release);
        Ok(())
    }

    /// Returns the count of open blocks whose states are in the same system page as those of this
    /// block.
    fn open_in(&self, segment: usize, block: usize) -> &AtomicU32 {
        &self.open_in[(segment >> self.geometry.group_shift() << BLOCKS_SHIFT) + block]
    }

    /// Charges the memory for the states of a block that is about to be opened. Relaxed, here and
    /// in `uncharge_states`: the counts change only under the lock of `free`, which the caller must
    /// hold.
    fn charge_states(&self, segment: usize, block: usize, budget: &Budget) -> Result<(), NoRoom> {
        let open = self.open_in(segment, block);
        if open.load(Ordering::Relaxed) == 0 && !budget.try_charge(self.geometry.states_cost()) {
            return Err(NoRoom);
        }
        open.fetch_add(1, Ordering::Relaxed);
        Ok(())
    }

    /// Uncharges the states of a block that isn't open any more.
    fn uncharge_states(&self, segment: usize, block: usize, budget: &Budget) {
        if self.open_in(segment, block).fetch_sub(1, Ordering::Relaxed) == 1 {
            budget.uncharge(self.geometry.states_cost());
        }
    }

    /// Makes the stride of a segment writable. Returns false if the system refuses, for example
    /// because it doesn't overcommit memory.
    fn open_stride(&self, segment: usize) -> bool {
        let stride = segment >> STRIDE_SHIFT;
        // Relaxed: the caller holds the lock of `free`.
        if self.strides[stride].load(Ordering::Relaxed) == OPEN {
            return true;
        }
        let first = stride << STRIDE_SHIFT;
        let end = self.segments.len().min(first + (1 << STRIDE_SHIFT));
        let opened = self.words.open(self.words_in(first..end)).is_ok();
        if opened {
            self.strides[stride].store(OPEN, Ordering::Relaxed);
        }
        opened
    }

    /// Gives back chunks that are idle now and that the previous sweep also found idle. Returns the
    /// number of chunks given back. The sweep visits the open segments in turn, from where the
    /// previous call ended (the *hand*). It ends when it has given back `wanted` chunks, made two
    /// rounds, or visited `segments_max` segments, whichever comes first.
    pub(crate) fn sweep(
        &self,
        wanted: usize,
        segments_max: usize,
        budget: &Budget,
        returned: &mut dyn FnMut(u64),
    ) -> usize {
        let turns = (2 * self.free.lock().open_count()).min(segments_max);
        let (mut given, mut to) = (0, self.giving_back(budget, returned));
        for _ in 0..turns {
            if given >= wanted {
                break;
            }
            let Some(segment) = self.free.lock().next_open() else { break };
            given += self.chunks.sweep(self.words_in(segment..segment + 1), wanted - given, &mut to);
        }
        given
    }

    /// Calls `visit` for the frames of the resident pages of nearly idle chunks: those with at most
    /// two words in use, none of them written. If the caller evicts these pages, and no page of the
    /// chunk is loading or swapped out, the chunk becomes idle and can be given back. Ends when
    /// `visit` returns false, after one round over the open segments, or after `segments_max`
    /// segments.
    ///
    /// The visit continues after the segment at which the previous call, or the previous sweep,
    /// ended. In each segment it begins `SPARSE_STEP` chunks further on than in the segment visited
    /// before.
    pub(crate) fn visit_sparse(&self, segments_max: usize, mut visit: impl FnMut(FrameId, MapPart) -> bool) {
        let turns = self.free.lock().open_count().min(segments_max);
        for _ in 0..turns {
            let Some(segment) = self.free.lock().next_open() else { return };
            // Relaxed: no other thread depends on the starting point.
            let first = self.sparse_hand.fetch_add(SPARSE_STEP, Ordering::Relaxed);
            for chunk in self.chunks.nearly_idle(self.words_in(segment..segment + 1), first) {
                let part = MapPart(chunk.start);
                // Relaxed: the visitor checks the frame again.
                let states =
                    self.words[chunk].iter().map(|word| PageWord::from_bits(word.load(Ordering::Relaxed)).state());
                for state in states {
                    if let PageState::Resident { frame } = state
                        && !visit(frame, part)
                    {
                        return;
                    }
                }
            }
        }
    }

    pub(crate) fn give_back(&self, MapPart(word): MapPart, budget: &Budget, returned: &mut dyn FnMut(u64)) -> bool {
        self.chunks.give_back_idle(word, &mut self.giving_back(budget, returned))
    }
}

/// Returns the positions of the bits that are set.
fn bits_of(bits: u32) -> impl Iterator<Item = usize> {
    (0..u32::BITS as usize).filter(move |bit| bits >> bit & 1 != 0)
}

/// A part of a page map that has memory of its own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapPart(
    /// The index of its first word.
    usize,
);

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;

    /// 2^10 segments: two strides.
    fn words() -> (PageWords, usize) {
        let geometry = WordGeometry { chunk_shift: 9, segment_shift: 18, total_shift: 28 };
        (PageWords::reserve(geometry, 0, 0).unwrap(), 1 << geometry.segment_shift)
    }

    fn enter(words: &PageWords, word: usize, budget: &Budget) -> Result<(), NotEntered> {
        words.enter(word, &mut Payment::NotDue, budget)
    }

    #[test]
    fn a_segment_is_charged_while_its_map_lives() {
        let (words, segment) = words();
        let cost = 2 * 4096;
        let budget = Budget::new(cost);
        let part = words.allocate(2 * segment as u64, 0).unwrap();
        assert_eq!(enter(&words, part.start, &budget), Ok(()));
        assert_eq!(enter(&words, part.start + 1, &budget), Ok(()), "of the same chunk");
        assert_eq!(enter(&words, part.start + segment, &budget), Err(NotEntered::NoRoom));
        assert_eq!(enter(&words, part.start + segment / 32, &budget), Err(NotEntered::NoRoom), "of another block");
        assert_eq!(budget.used(), cost);
        words.chunks.leave(part.start, false);
        words.chunks.leave(part.start + 1, false);
        words.release(part, &budget);
        assert_eq!(budget.used(), 0);
    }

    /// Regression: a small file took 2 KiB of chunk states, and was charged for them: as much as a
    /// file of 1 GiB. Now 64 small files share 4 KiB of states.
    #[test]
    fn a_large_map_is_charged_for_what_is_used_of_it() {
        let (words, segment) = words();
        let budget = Budget::new(1 << 20);
        let part = words.allocate(2 * segment as u64, 0).unwrap();
        let block = segment / 32;
        let used = [0, block + 7, 31 * block, segment + block];
        for word in used {
            enter(&words, part.start + word, &budget).unwrap();
        }
        assert_eq!(budget.used(), 4 * 4096 + 3 * 4096, "two have their states side by side");
        let chunks = used.map(|word| part.start + word / 512 * 512..part.start + word / 512 * 512 + 512);
        assert!(words.in_use(part.clone()).eq(chunks));
        let within = words.in_use(part.start + block + 3..part.start + 31 * block + 2);
        assert!(within.eq([
            part.start + block + 3..part.start + block + 512,
            part.start + 31 * block..part.start + 31 * block + 2
        ]));
        used.into_iter().for_each(|word| words.chunks.leave(part.start + word, false));
        words.release(part, &budget);
        assert_eq!(budget.used(), 0);
    }

    #[test]
    fn a_page_left_in_memory_keeps_its_words() {
        let (words, segment) = words();
        let budget = Budget::new(1 << 20);
        let part = words.allocate(1, 0).unwrap();
        enter(&words, part.start, &budget).unwrap();
        words.words[part.start].store(crate::page_word::PageWord::loading().bits(), Ordering::Relaxed);
        words.release(part, &budget);
        assert_eq!(words.allocate(1, 0).unwrap().start, segment, "the first segment is free again");
    }

    /// Regression: segments were opened one by one. With every other segment open, the array took
    /// 131,072 mappings, but the system allows a process only 65,530. Once a process had reached
    /// this limit, the system refused to open another segment, so pages couldn't be loaded.
    #[test]
    fn segments_become_writable_by_strides() {
        let (words, segment) = words();
        let budget = Budget::new(1 << 30);
        let parts: Vec<_> = (0..1024).map(|_| words.allocate(1, 0).unwrap()).collect();
        let near = || {
            let addresses = words.words.as_ptr_range();
            let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
            let starts = maps.lines().filter_map(|line| usize::from_str_radix(line.split('-').next()?, 16).ok());
            starts.filter(|start| (addresses.start.addr()..addresses.end.addr()).contains(start)).count()
        };
        assert_eq!(near(), 1);
        for part in parts.iter().step_by(2) {
            enter(&words, part.start, &budget).unwrap();
            words.words[part.start + segment - 1].store(0, Ordering::Relaxed);
        }
        assert!(near() <= 3, "{} mappings", near());
    }

    #[test]
    fn a_sweep_looks_at_chunks_that_are_there_alone() {
        let (words, segment) = words();
        let budget = Budget::new(1 << 20);
        let parts = [0, 1].map(|_| words.allocate(segment as u64, 0).unwrap());
        let idle = |word: usize| {
            enter(&words, word, &budget).unwrap();
            words.chunks.leave(word, false);
        };
        idle(parts[0].start + 3 * 512);
        idle(parts[1].start);
        enter(&words, parts[1].start + 512, &budget).unwrap();
        assert!(words.in_use(0..4 * segment).flatten().eq(parts[1].start + 512..parts[1].start + 1024));
        let sweep = |wanted| words.sweep(wanted, 99, &budget, &mut |_| panic!("no part is paid for"));
        assert_eq!((sweep(1), sweep(9), sweep(9)), (1, 1, 0));
        assert_eq!(words.chunks.bytes(), 4096);
    }

    /// A part that is paid for is returned once, whichever thread gives it back. A load that hasn't
    /// paid makes no part.
    #[test]
    fn what_is_paid_for_is_returned_once() {
        let (words, segment) = words();
        let budget = Budget::new(1 << 20);
        let part = words.allocate(segment as u64, 0).unwrap();
        let mut returned = Vec::new();
        let mut payment = Payment::Due;
        assert_eq!(words.enter(part.start, &mut payment, &budget), Err(NotEntered::Unpaid));
        assert_eq!((words.chunks.bytes(), budget.used()), (0, 0));
        let chunks = [0, 1, 2, 40].map(|chunk| part.start + chunk * 512);
        for word in chunks {
            payment = Payment::Made;
            assert_eq!(words.enter(word, &mut payment, &budget), Ok(()));
            assert_eq!(payment, Payment::Due, "it is used up");
            payment = Payment::Made;
            assert_eq!(words.enter(word + 1, &mut payment, &budget), Ok(()));
            assert_eq!(payment, Payment::Made, "the part is there already");
            assert_eq!(words.enter(word + 2, &mut Payment::Due, &budget), Ok(()));
            (word..word + 3).for_each(|word| words.chunks.leave(word, false));
        }
        let mut give = |word: u64| returned.push(word as usize);
        assert!(words.give_back(MapPart(chunks[1]), &budget, &mut give));
        assert_eq!(words.sweep(1, 99, &budget, &mut give), 1);
        words.enter(chunks[2], &mut Payment::Due, &budget).unwrap();
        assert!(words.chunks.is_used(chunks[2]) && !words.chunks.is_used(chunks[3]));
        assert!(!words.any_idle(part.start..chunks[3]) && words.any_idle(chunks[3] + 7..part.end));
        assert_eq!(words.give_back_idle_of(part.start, 0, &budget, &mut give), 0, "none is wanted");
        assert_eq!(words.give_back_idle_of(part.start, 9, &budget, &mut give), 1, "one is in use");
        words.chunks.leave(chunks[2], false);
        assert_eq!(words.give_back_all(part.clone(), &budget, &mut give), 0);
        returned.sort_unstable();
        assert_eq!(returned, chunks);
        // No room: the payment isn't used up.
        let none = Budget::new(0);
        payment = Payment::Made;
        assert_eq!(words.enter(part.start, &mut payment, &none), Err(NotEntered::NoRoom));
        assert_eq!(payment, Payment::Made);
        words.release(part, &budget);
        assert_eq!(budget.used(), 0);
    }
}
