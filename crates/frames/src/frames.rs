//! The memory manager's ground floor: frames, the words that name them, and the budget for both.

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
use crate::config::{Config, Layout};
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

/// Segments of page words that a short sweep, or a visit of sparse pages, looks at.
const SEGMENTS_LOOKED_AT: usize = 256;

/// All frames of one budget.
///
/// A frame is in exactly one of these states at a time:
///
/// | state | where the frame is |
/// |---|---|
/// | free | on the lists of free frames, with memory; in the extents, without |
/// | owned | with an [`OwnedFrame`]: being loaded, or just evicted |
/// | resident | its page's word leads readers to it; it is on its group's list, or with an [`IsolatedFrame`] |
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
    /// Not inherited by a forked child. It has none of the pages: frames and their records read as
    /// zeros there, and page words as *vacant*. So a lookup in the child finds nothing, goes on to
    /// load, and is refused there by this mark; the hit path pays nothing for it. A guard that the
    /// child's thread had reads as zeros, and goes without a trace.
    fork: ForkMark,
    retired: AtomicUsize,
}

impl Frames {
    /// Reserves address space for as much memory as the budget may ever become; takes no memory
    /// yet, unless [`Config::pretouch`] says so.
    ///
    /// # Errors
    /// When the system refuses the address space or, with `pretouch`, the memory.
    pub fn new(config: &Config) -> Result<Self, ReserveError> {
        let layout = config.layout();
        let nodes = config.nodes.map_or_else(Nodes::detect, Nodes::pretend);
        let words_per_frame = layout.page_size / size_of::<u64>();
        let node_shift = layout.extent_shift + nodes.run_shift(layout.frames >> layout.extent_shift);
        let arena = Protection { huge: layout.huge, undumped: true, ..Protection::default() };
        // Huge pages for the table only where it is large: otherwise they would round its memory up
        // by too much.
        let table = Protection { huge: layout.huge && layout.table_is_large(), ..Protection::default() };
        let words = PageWords::reserve(layout.words)?;
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
        // What the structures themselves take. A budget that can't even hold that was refused by
        // the policy.
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

    /// Bytes in a page, and in a frame.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.layout.page_size
    }

    /// The memory budget, of which frames and page maps are charged here and other metadata by the
    /// policy.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Tables for whatever is looked up without a lock.
    #[inline]
    #[must_use]
    pub fn tables(&self) -> &Tables {
        &self.tables
    }

    /// Whether this is a child process that was forked while the frames were in use. It has none of
    /// their memory.
    #[inline]
    #[must_use]
    pub fn forked(&self) -> bool {
        self.fork.is_child()
    }

    /// The arena's words.
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

    /// A free frame: this CPU's, else one with new memory if the budget allows, else one of a few
    /// others'. `None` when there is none: something has to be reclaimed, or all stocks to be
    /// [gathered](Self::gather).
    #[must_use]
    pub fn allocate(&self) -> Option<OwnedFrame<'_>> {
        let mut allocated = None;
        self.allocate_each(1, |frame| allocated = Some(frame));
        allocated
    }

    /// Up to `wanted` free frames, as [`allocate`](Self::allocate) finds them. Says how many.
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
                // There are no more than were wanted.
                next = if got < wanted { own.pop(&self.table) } else { None };
            }
        }
        got
    }

    /// Makes what CPUs have in stock available to all. Says how many frames are, roughly: none if
    /// memory is all in use.
    #[must_use]
    pub fn gather(&self) -> usize {
        self.free.gather(&self.table)
    }

    #[cold]
    fn take_or_populate(&self) -> Option<FrameId> {
        let anywhere = || self.free.take_anywhere(&self.table, |batch| self.extents.catch_all(&self.table, batch));
        let there = if self.free.in_depots() > 0 { anywhere() } else { None };
        there.or_else(|| self.take_new()).or_else(anywhere)
    }

    /// A frame of an extent that wasn't in use; the others go to the depots.
    fn take_new(&self) -> Option<FrameId> {
        let (_, mut frames) = self.populate()?;
        let frame = frames.pop(&self.table);
        self.free.put_all(&self.table, frames);
        frame
    }

    /// Takes memory for an extent into use, if the budget has room for it. Says which extent, and
    /// gives its frames.
    fn populate(&self) -> Option<(usize, Batch)> {
        let rest = self.layout.map_reserve;
        if self.budget.room() < self.layout.extent_cost(false) {
            return None; // Most often: without waiting for the lock of the extents.
        }
        let charge = |first_time| self.budget.try_charge_leaving(self.layout.extent_cost(first_time), rest);
        let node = self.free.node_here();
        let extent = self.extents.populate(node, charge)?;
        if self.extents.nodes() > 1 {
            self.bytes.prefer_node(self.words_of_extent(extent), self.extents.node_of(extent));
        }
        let mut batch = Batch::default();
        // `put_all` turns the chain round: frames are then taken in the order of their addresses.
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

    /// Frames that can be had without reclaim, roughly: what CPUs have in stock isn't counted.
    #[must_use]
    pub fn available(&self) -> usize {
        self.free.in_depots() + self.unpopulated()
    }

    /// Frames that pages can have at most beside everything else that is charged to the budget now,
    /// roughly.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.extents.populated() * self.extents.frames_each() + self.unpopulated()
    }

    /// Frames of extents that there is room for.
    fn unpopulated(&self) -> usize {
        let room = self.budget.room().saturating_sub(self.layout.map_reserve) / self.layout.extent_cost(true);
        // Saturating: a drain that ends lowers the number after its extent may have been populated
        // again.
        let unpopulated = self.extents.count().saturating_sub(self.extents.populated());
        (room as usize).min(unpopulated) * self.extents.frames_each()
    }

    /// Counts for reports.
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

    /// Ends a frame's stay. True if it is free now; false if it is retired, or caught by a drain.
    fn end_stay(&self, frame: FrameId) -> bool {
        if self.table.next_generation(frame) {
            return !self.extents.catch(&self.table, frame);
        }
        self.retired.fetch_add(1, Ordering::Relaxed);
        #[cfg(not(pagefold_loom))]
        {
            let start = frame.index() * self.words_per_frame;
            // Where the system refuses, the frame keeps its memory for nothing; its extent is
            // charged for it in any case.
            let _ = self.bytes.discard(start..start + self.words_per_frame);
        }
        false
    }

    /// Frees owned frames, together. Says how many there were.
    pub fn free_all<'a>(&'a self, owned: impl IntoIterator<Item = OwnedFrame<'a>>) -> usize {
        // Chained first, because a drain's lock comes before a stock's.
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

    /// Changes the budget's limit. Lowering it gives nothing back by itself:
    /// [`begin_drain`](Self::begin_drain).
    pub fn set_budget(&self, bytes: u64) {
        self.budget.set_max(bytes);
    }

    /// Begins to lower the budget's limit to `bytes`: it comes down with each extent that is given
    /// back. So what is needed for page maps and the like can be had meanwhile.
    /// [`set_budget`](Self::set_budget) ends it.
    pub fn lower_budget(&self, bytes: u64) {
        self.budget.lower_to(bytes, self.layout.map_reserve);
    }

    /// The largest budget that there is address space for.
    #[must_use]
    pub fn budget_max(&self) -> u64 {
        self.layout.budget_max()
    }

    /// Extents that have memory: how often [`begin_drain`](Self::begin_drain) has something new to
    /// offer.
    #[must_use]
    pub fn extents(&self) -> usize {
        self.extents.populated()
    }

    /// Bytes of an extent's frames.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        (self.extents.frames_each() * self.page_size()) as u64
    }

    /// Charges so much to the budget, if what is kept free for page maps can still be charged
    /// afterwards.
    #[must_use]
    pub fn try_charge_beside_maps(&self, bytes: u64) -> bool {
        self.budget.try_charge_leaving(bytes, self.layout.map_reserve)
    }

    /// All frames that have memory, in use or not.
    pub fn populated(&self) -> impl Iterator<Item = FrameId> + '_ {
        let extents = self.extents.with_memory().into_iter();
        extents.flat_map(|extent| self.extents.frames_of(extent)).map(|number| FrameId::new(number as u32))
    }

    /// Gives back up to `wanted` parts of page maps in which no page has been in memory for a
    /// while. Returns how many.
    pub fn sweep_maps(&self, wanted: usize) -> usize {
        self.words.sweep(wanted, usize::MAX, &self.budget)
    }

    /// The same with a bounded number of looks: the next call goes on from there.
    pub fn sweep_some_maps(&self, wanted: usize) -> usize {
        self.words.sweep(wanted, SEGMENTS_LOOKED_AT, &self.budget)
    }

    /// Visits pages that keep a part of a page map from being idle, each with one other at most,
    /// until `visit` returns false or there were a bounded number of looks: the next call goes on
    /// from there. A page may have left its frame when that is visited.
    pub fn visit_sparse_pages(&self, visit: impl FnMut(FrameId, MapPart) -> bool) {
        self.words.visit_sparse(SEGMENTS_LOOKED_AT, visit);
    }

    /// Gives back a part of a page map if no page in it is in memory. Returns whether it has.
    pub fn give_back(&self, part: MapPart) -> bool {
        self.words.give_back(part, &self.budget)
    }

    /// The word of the page that an isolated frame holds.
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

    /// Fetches the record of the frame noted by [`set_ahead`](Self::set_ahead) into the CPU's
    /// cache: following the links alone, a walk would wait for memory at every step.
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
    /// Those of them that are free.
    pub free_frames: usize,
    /// Frames whose generations are used up.
    pub retired_frames: usize,
    /// Bytes that page maps take.
    pub map_bytes: u64,
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
