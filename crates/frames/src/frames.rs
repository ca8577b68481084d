//! The lowest layer of the memory manager: frames, the page words that name them, and the budget
//! for both.

mod drain;
mod isolated;
mod moving;
mod owned;

pub use drain::FrameDrain;
pub(crate) use isolated::vacate;
pub use isolated::{IsolatedFrame, Refused, Use};
pub use moving::NotMoved;
pub use owned::OwnedFrame;

use smp_list::Links;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::{ForkMark, SharedBytes};

use crate::budget::Budget;
use crate::config::{BESIDE_WORDS, Config, Layout};
use crate::error::ReserveError;
use crate::extents::Extents;
use crate::frame_id::FrameId;
use crate::frame_table::FrameTable;
use crate::free_frames::{Batch, FreeFrames};
use crate::numa::Nodes;
use crate::page_words::{MapPart, PageWords};
use crate::region::{Protection, Region};
use crate::tables::Tables;
use crate::wait_table::WaitTable;

/// A bounded sweep, or a visit of sparse pages, looks at this many segments of page words.
const SEGMENTS_LOOKED_AT: usize = 256;

/// All frames of one budget.
///
/// A frame that isn't retired is in exactly one of these states at a time:
///
/// | state | where the frame is |
/// |---|---|
/// | free | if it has memory: on the lists of free frames, or caught by a drain; otherwise on no list, in an extent without memory |
/// | owned | with an [`OwnedFrame`] or a [`LoadingRun`](crate::LoadingRun): being loaded, or just evicted |
/// | resident | its page's word leads readers to it; it is on its group's list, with an [`IsolatedFrame`], or on no list (`publish_unlisted`) |
#[derive(Debug)]
pub struct Frames {
    pub(crate) table: FrameTable,
    bytes: Region<AtomicU64>,
    words_per_frame: usize,
    pub(crate) words: PageWords,
    tables: Tables,
    free: FreeFrames,
    extents: Extents,
    pub(crate) budget: Budget,
    pub(crate) waits: WaitTable,
    layout: Layout,
    /// Tells whether this is a forked child process. A child inherits none of the pages: frames and
    /// their records read as zeros there, and page words as *vacant*. So a lookup in the child
    /// finds nothing, and the child goes on to load the page. The load checks this mark, and fails
    /// in a child; the hit path doesn't pay for a check.
    ///
    /// If a thread holds a guard (such as a pin) when it forks, reads through the guard return
    /// zeros in the child, and dropping the guard there has no effect.
    fork: ForkMark,
    retired: AtomicUsize,
}

impl Frames {
    /// Reserves address space for the largest size that the budget may ever have. Takes no memory
    /// yet, unless [`Config::pretouch`] is set.
    ///
    /// # Errors
    /// If the system refuses the address space or, with `pretouch`, the memory.
    pub fn new(config: &Config) -> Result<Self, ReserveError> {
        let layout = config.layout();
        let nodes = config.nodes.map_or_else(Nodes::detect, Nodes::pretend);
        let words_per_frame = layout.page_size / size_of::<u64>();
        let node_shift = layout.extent_shift + nodes.run_shift(layout.frames >> layout.extent_shift);
        let arena = Protection { huge: layout.huge, undumped: true, ..Protection::default() };
        // Only a large table gets huge pages: they would round a small table's memory up by too
        // much.
        let table = Protection { huge: layout.huge && layout.table_is_large(), ..Protection::default() };
        let most = layout.frames as u64 * layout.page_size as u64;
        // The last argument is the memory that must be writable: frames and their records.
        let words = PageWords::reserve(layout.words, most.saturating_mul(BESIDE_WORDS), most + most / 32)?;
        let frames = Self {
            tables: Tables::reserve(layout.tables, words.lengths.len())?,
            table: FrameTable::new(Region::reserve(layout.frames, table)?),
            bytes: Region::reserve(layout.frames * words_per_frame, arena)?,
            words_per_frame,
            words,
            extents: Extents::new(layout.frames, layout.extent_shift, node_shift, nodes.count()),
            free: FreeFrames::new(nodes, node_shift, layout.frames_at_start),
            budget: Budget::new(config.memory),
            waits: WaitTable::new(),
            fork: ForkMark::new().map_err(|error| ReserveError {
                bytes: crate::system_page_size() as u64,
                errno: error.raw_os_error().unwrap_or(0),
            })?,
            retired: AtomicUsize::new(0),
            layout,
        };
        // Charges `Frames` itself and the stocks of free frames. The policy has already refused a
        // budget that can't hold them.
        let _ = frames.budget.try_charge(frames.free.bytes() + size_of::<Self>() as u64);
        if config.pretouch {
            frames.pretouch()?;
        }
        Ok(frames)
    }

    fn pretouch(&self) -> Result<(), ReserveError> {
        while let Some((extent, frames)) = self.populate() {
            self.free.put_all(&self.table, frames);
            self.bytes.touch(self.words_of_extent(extent))?;
        }
        Ok(())
    }

    /// Returns the size in bytes of a page, and of a frame.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.layout.page_size
    }

    /// Returns the memory budget. This crate charges frames and page maps to it; the policy charges
    /// other metadata.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Returns the tables for indexes that readers search without a lock.
    #[inline]
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Returns whether this is a child process that was forked while the frames were in use. The
    /// child has none of their memory.
    #[inline]
    #[must_use]
    pub fn forked(&self) -> bool {
        self.fork.is_child()
    }

    /// Returns the arena as words.
    #[cfg(not(pagefold_loom))]
    pub(crate) fn arena(&self) -> &[AtomicU64] {
        &self.bytes
    }

    #[inline]
    pub(crate) fn bytes(&self, frame: FrameId) -> SharedBytes<'_> {
        let start = frame.index() * self.words_per_frame;
        SharedBytes::new(&self.bytes[start..start + self.words_per_frame])
    }

    // ---- free frames

    /// Allocates a free frame. Searches, in this order: the free frames that this CPU keeps (its
    /// *stock*); the depots, each shared by CPUs of a node; new memory, if the budget allows;
    /// and the stocks of a few other CPUs. Returns `None` if it finds no frame; then the caller
    /// must reclaim pages, or [gather](Self::gather) all stocks.
    #[must_use]
    pub fn allocate(&self) -> Option<OwnedFrame<'_>> {
        let mut allocated = None;
        self.allocate_each(1, |frame| allocated = Some(frame));
        allocated
    }

    /// Allocates up to `wanted` free frames from the same sources as [`allocate`](Self::allocate).
    /// Returns the number of frames.
    pub fn allocate_each<'a>(&'a self, wanted: usize, mut give: impl FnMut(OwnedFrame<'a>)) -> usize {
        let mut got = 0;
        while got < wanted {
            let mut own = self.free.take(&self.table, wanted - got);
            let mut next = own.pop(&self.table).or_else(|| self.take_or_populate());
            if next.is_none() {
                break;
            }
            while let Some(frame) = next {
                give(OwnedFrame::unused(self, frame));
                got += 1;
                // `own` holds at most as many frames as are still wanted.
                next = if got < wanted { own.pop(&self.table) } else { None };
            }
        }
        got
    }

    /// Moves the free frames in the stocks of all CPUs to the depots, where every thread can take
    /// them. Returns the approximate number of free frames; 0 if all frames are in use.
    #[must_use]
    pub fn gather(&self) -> usize {
        self.free.gather(&self.table)
    }

    #[cold]
    fn take_or_populate(&self) -> Option<FrameId> {
        let anywhere = || self.free.take_anywhere(&self.table, |batch| self.extents.catch_all(&self.table, batch));
        let new = || self.take_new();
        // Another thread may have put frames of a new extent into the depots meanwhile.
        anywhere().or_else(new).or_else(anywhere).or_else(|| self.free.take_of_others(&self.table))
    }

    /// Takes memory for another extent and returns one of its frames; the others go to the depots.
    fn take_new(&self) -> Option<FrameId> {
        let (_, mut frames) = self.populate()?;
        let frame = frames.pop(&self.table);
        self.free.put_all(&self.table, frames);
        frame
    }

    /// Takes an extent without memory into use, if the budget has room for its memory. Returns the
    /// extent and its frames.
    fn populate(&self) -> Option<(usize, Batch)> {
        let rest = self.layout.map_reserve;
        if self.budget.room() < self.layout.extent_cost(false) {
            return None; // The usual case: returns without waiting for the lock of the extents.
        }
        let charge = |first_time| self.budget.try_charge_leaving(self.layout.extent_cost(first_time), rest);
        let node = self.free.node_here();
        let extent = self.extents.populate(node, charge)?;
        if self.extents.nodes() > 1 {
            self.bytes.prefer_node(self.words_of_extent(extent), self.extents.node_of(extent));
        }
        let mut batch = Batch::default();
        // `put_all` reverses the chain, so frames are later taken in the order of their addresses.
        for number in self.extents.frames_of(extent) {
            let frame = FrameId::new(number as u32);
            if self.table.is_retired(frame) {
                continue;
            }
            self.table.first_owner(frame);
            batch.push(&self.table, frame);
        }
        Some((extent, batch))
    }

    fn words_of_extent(&self, extent: usize) -> std::ops::Range<usize> {
        let frames = self.extents.frames_of(extent);
        frames.start * self.words_per_frame..frames.end * self.words_per_frame
    }

    /// Returns approximately how many frames can be allocated without reclaim. Frames in the stocks
    /// of CPUs aren't counted.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.in_depots() + self.unpopulated()
    }

    /// Returns approximately how many frames can hold pages, given everything else that is charged
    /// to the budget now.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.extents.populated() * self.extents.frames_each() + self.unpopulated()
    }

    /// Returns how many frames the budget has room for in extents that have no memory yet.
    fn unpopulated(&self) -> usize {
        let room = self.budget.room().saturating_sub(self.layout.map_reserve) / self.layout.extent_cost(true);
        // Saturating: `populated` may be too high for a moment. A drain first gives an extent back,
        // and then lowers `populated`. In between, another thread may populate the extent again.
        let unpopulated = self.extents.count().saturating_sub(self.extents.populated());
        (room as usize).min(unpopulated) * self.extents.frames_each()
    }

    /// Returns counts for reports.
    #[must_use]
    pub fn stats(&self) -> FrameStats {
        let populated = self.extents.populated() * self.extents.frames_each();
        FrameStats {
            frames: populated,
            free_frames: self.free.count(),
            retired_frames: self.retired.load(Ordering::Relaxed),
            map_bytes: self.words.chunks.bytes(),
        }
    }

    fn free(&self, frame: FrameId) {
        if self.end_stay(frame) {
            self.free.put(&self.table, frame);
        }
    }

    /// Ends a frame's stay. Returns true if the frame is free now; false if the frame is retired or
    /// a drain has caught it.
    fn end_stay(&self, frame: FrameId) -> bool {
        if self.table.next_generation(frame) {
            return !self.extents.catch(&self.table, frame);
        }
        self.retired.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(pagefold_loom))]
        {
            let start = frame.index() * self.words_per_frame;
            // If the system refuses, the frame's memory is wasted. The extent is charged for it in
            // any case.
            let _ = self.bytes.discard(start..start + self.words_per_frame);
        }
        false
    }

    /// Frees owned frames together. Returns their number.
    pub fn free_all<'a>(&'a self, owned: impl IntoIterator<Item = OwnedFrame<'a>>) -> usize {
        // Chains the frames before it takes the stock's lock: `end_stay` may take the lock of the
        // caught frames, which precedes a stock's lock in the lock order.
        let mut batch = Batch::default();
        let mut count = 0;
        for frame in owned.into_iter().map(OwnedFrame::forget) {
            count += 1;
            if self.end_stay(frame) {
                batch.push(&self.table, frame);
            }
        }
        self.free.put_each(&self.table, batch);
        count
    }

    // ---- giving memory back

    /// Changes the budget's limit. Lowering the limit doesn't free any memory; use
    /// [`begin_drain`](Self::begin_drain) for that.
    pub fn set_budget(&self, bytes: u64) {
        self.budget.set_max(bytes);
    }

    /// Begins to lower the budget's limit to `bytes`. At first the limit falls to the memory in use
    /// plus a reserve. As extents are given back, the limit falls further, but never below `bytes`.
    /// Because of the reserve, page maps and other metadata can still be charged meanwhile. Call
    /// [`set_budget`](Self::set_budget) to complete the change.
    pub fn lower_budget(&self, bytes: u64) {
        self.budget.lower_to(bytes, self.layout.map_reserve);
    }

    /// Returns the largest budget that the reserved address space allows.
    #[must_use]
    pub fn budget_max(&self) -> u64 {
        self.layout.budget_max()
    }

    /// Returns the number of extents that have memory. Once calls of
    /// [`begin_drain`](Self::begin_drain) have examined that many extents, further calls examine
    /// the same extents again.
    #[must_use]
    pub fn extents(&self) -> usize {
        self.extents.populated()
    }

    /// Returns the size in bytes of an extent's frames.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        (self.extents.frames_each() * self.page_size()) as u64
    }

    /// Charges `bytes` to the budget if the reserve for page maps still fits afterwards. Returns
    /// whether the bytes were charged.
    #[must_use]
    pub fn try_charge_beside_maps(&self, bytes: u64) -> bool {
        self.budget.try_charge_leaving(bytes, self.layout.map_reserve)
    }

    /// Returns all frames that have memory, in use or not.
    pub fn populated(&self) -> impl Iterator<Item = FrameId> + '_ {
        let extents = self.extents.with_memory().into_iter();
        extents.flat_map(|extent| self.extents.frames_of(extent)).map(|number| FrameId::new(number as u32))
    }

    /// Gives back up to `wanted` parts of page maps that haven't been in use for a while. (A part
    /// is in use while one of its pages is in memory, in swap or being loaded.) Returns the number
    /// of parts given back. If a part was paid for ([`Payment`](crate::Payment)), calls `returned`
    /// with the index of the part's first word. `returned` must not load pages, and must not wait
    /// for a thread that may load one.
    pub fn sweep_maps(&self, wanted: usize, mut returned: impl FnMut(u64)) -> usize {
        self.words.sweep(wanted, usize::MAX, &self.budget, &mut returned)
    }

    /// Gives back parts of page maps like [`sweep_maps`](Self::sweep_maps), but looks at a bounded
    /// number of segments of page words. The next call continues where this one ended.
    pub fn sweep_some_maps(&self, wanted: usize, mut returned: impl FnMut(u64)) -> usize {
        self.words.sweep(wanted, SEGMENTS_LOOKED_AT, &self.budget, &mut returned)
    }

    /// Calls `visit` for the resident pages of nearly idle parts of page maps. A part is nearly
    /// idle if at most two of its pages are in use, none of them written; once these pages are
    /// evicted, the part can be given back. When `visit` is called with a frame, the page may
    /// already have left this frame.
    ///
    /// Ends when `visit` returns false, or after a bounded number of segments of page words. The
    /// next call continues where this one ended.
    pub fn visit_sparse_pages(&self, visit: impl FnMut(FrameId, MapPart) -> bool) {
        self.words.visit_sparse(SEGMENTS_LOOKED_AT, visit);
    }

    /// Gives back a part of a page map if the part isn't in use. Returns whether the part was given
    /// back. See [`sweep_maps`](Self::sweep_maps) for parts in use, and for `returned`.
    pub fn give_back(&self, part: MapPart, mut returned: impl FnMut(u64)) -> bool {
        self.words.give_back(part, &self.budget, &mut returned)
    }

    /// Gives back up to `wanted` parts of a map that aren't in use now. `word` is the index of one
    /// of the map's words; if the map has several segments of words, only parts of this word's
    /// segment are given back. Returns the number of parts given back. See
    /// [`sweep_maps`](Self::sweep_maps) for parts in use, and for `returned`.
    pub fn give_back_idle_parts(&self, word: u64, wanted: usize, mut returned: impl FnMut(u64)) -> usize {
        self.words.give_back_idle_of(word as usize, wanted, &self.budget, &mut returned)
    }

    /// Returns the memory in bytes that a part of a page map takes.
    #[must_use]
    pub fn map_part_bytes(&self) -> u64 {
        self.words.chunks.chunk_bytes()
    }

    /// Returns the word of the page that an isolated frame holds, and the word's index.
    pub(crate) fn word_of(&self, frame: FrameId) -> (usize, &AtomicU64) {
        let index = self.table.word(frame) as usize;
        (index, &self.words.words[index])
    }
}

/// Frames are the nodes of the policy's lists.
impl smp_list::Nodes for Frames {
    #[inline]
    fn links(&self, number: u32) -> &Links {
        self.table.links(FrameId::new(number))
    }

    /// [`set_ahead`](Self::set_ahead) notes another frame for frame `number`; this prefetches that
    /// frame's record. A walk of an LRU list will probably reach the frame a few steps later. The
    /// walk learns the next frame only from the links of the current one, so without the prefetch
    /// it would have a cache miss at every step.
    #[inline]
    fn prefetch_ahead(&self, number: u32) {
        if let Some(ahead) = self.table.ahead(FrameId::new(number)) {
            self.table.prefetch(ahead);
        }
    }
}

/// Counts of a [`Frames`].
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct FrameStats {
    /// Frames that have memory.
    pub frames: usize,
    /// Frames with memory that are free.
    pub free_frames: usize,
    /// Frames whose generations are used up.
    pub retired_frames: usize,
    /// Bytes that page maps take.
    pub map_bytes: u64,
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
