//! The memory manager's ground floor: frames, the words that name them, and the budget for both.

use smp_list::Links;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering, fence};
use sync::{ForkMark, SharedBytes};

use crate::budget::Budget;
use crate::config::{Config, Layout};
use crate::error::ReserveError;
use crate::extents::{Drain, Extents};
use crate::frame_table::{FrameId, FrameRecord, FrameTable};
use crate::free_frames::{Batch, FreeFrames};
use crate::numa::Nodes;
use crate::page_map::vacate;
use crate::page_word::PageWord;
use crate::page_words::PageWords;
use crate::region::{Protection, Region};
use crate::wait_table::WaitTable;

/// All frames of one budget.
///
/// A frame is with exactly one of these at a time:
///
/// | | who |
/// |---|---|
/// | free | the lists of free frames, with memory; the extents, without |
/// | owned | an [`OwnedFrame`]: being loaded, or just evicted |
/// | resident | its page's word, which leads readers to it; its group's list, or whoever has it as an [`IsolatedFrame`] |
#[derive(Debug)]
pub struct Frames {
    pub(crate) table: FrameTable,
    bytes: Region<AtomicU64>,
    words_per_frame: usize,
    pub(crate) words: PageWords,
    free: FreeFrames,
    extents: Extents,
    pub(crate) budget: Budget,
    pub(crate) waits: WaitTable,
    layout: Layout,
    /// Not inherited by a forked child. It has none of the frames: their memory isn't copied, and page words read as
    /// *vacant* there. So a lookup in the child finds nothing, goes on to load, and is refused there by this mark; the hit
    /// path pays nothing for it.
    fork: ForkMark,
    retired: AtomicUsize,
}

impl Frames {
    /// Reserves address space for as much memory as the budget may ever become; takes no memory yet, unless
    /// [`Config::pretouch`] says so.
    ///
    /// # Errors
    /// When the system refuses the address space or, with `pretouch`, the memory.
    pub fn new(config: &Config) -> Result<Self, ReserveError> {
        let layout = config.layout();
        let nodes = config.nodes.map_or_else(Nodes::detect, Nodes::pretend);
        let words_per_frame = layout.page_size / size_of::<u64>();
        let node_shift = layout.extent_shift + nodes.run_shift(layout.frames >> layout.extent_shift);
        let arena = Protection { huge: layout.huge, ..Protection::default() };
        // Huge pages for the table only where it is large: otherwise they would round its memory up by too much.
        let table = Protection { huge: layout.huge && layout.table_is_large(), ..Protection::default() };
        let frames = Self {
            table: FrameTable::new(Region::reserve(layout.frames, table)?),
            bytes: Region::reserve(layout.frames * words_per_frame, arena)?,
            words_per_frame,
            words: PageWords::reserve(layout.words)?,
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
        // What the structures themselves take. A budget that can't even hold that was refused by the policy.
        let _ = frames.budget.try_charge(frames.free.bytes() + size_of::<Self>() as u64);
        if config.pretouch {
            frames.pretouch()?;
        }
        Ok(frames)
    }

    fn pretouch(&self) -> Result<(), ReserveError> {
        while let Some(extent) = self.populate() {
            self.bytes.touch(self.words_of_extent(extent))?;
        }
        Ok(())
    }

    /// Bytes in a page, and in a frame.
    #[must_use]
    pub fn page_size(&self) -> usize {
        self.layout.page_size
    }

    /// The memory budget, of which frames and page maps are charged here and other metadata by the policy.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// Whether this is a child process that was forked while the frames were in use. It has none of their memory.
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

    /// A free frame: this CPU's, else one with new memory if the budget allows, else anybody's. `None` when there is
    /// none: something has to be reclaimed.
    #[must_use]
    pub fn allocate(&self) -> Option<OwnedFrame<'_>> {
        let frame = self.free.take(&self.table).or_else(|| self.take_or_populate())?;
        Some(OwnedFrame { frames: self, id: frame, fresh: true })
    }

    #[cold]
    fn take_or_populate(&self) -> Option<FrameId> {
        let mut may_be_more = self.free.in_depots() > 0 || self.populate().is_some();
        loop {
            let frame = self.free.take(&self.table).or_else(|| self.free.take_anywhere(&self.table));
            if frame.is_some() || !may_be_more {
                return frame;
            }
            // Others have taken what was there, or it is still on its way into a depot. Ends when memory is all in use.
            may_be_more = self.populate().is_some();
        }
    }

    /// Takes memory for an extent into use, if the budget has room for it.
    fn populate(&self) -> Option<usize> {
        let rest = self.layout.map_reserve;
        if self.budget.room() < self.layout.extent_cost(false) {
            return None; // Most often: without asking for anybody's turn.
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
        self.free.put_all(&self.table, batch);
        Some(extent)
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

    /// Frames that pages can have at most beside everything else that is charged to the budget now, roughly.
    #[must_use]
    pub fn capacity(&self) -> usize {
        self.extents.populated() * self.extents.frames_each() + self.unpopulated()
    }

    /// Frames of extents that there is room for.
    fn unpopulated(&self) -> usize {
        let room = self.budget.room().saturating_sub(self.layout.map_reserve) / self.layout.extent_cost(true);
        let unpopulated = self.extents.count() - self.extents.populated();
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
            self.bytes.discard(start..start + self.words_per_frame);
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

    /// Changes the budget's limit. Lowering it gives nothing back by itself: [`begin_drain`](Self::begin_drain).
    pub fn set_budget(&self, bytes: u64) {
        self.budget.set_max(bytes);
    }

    /// The largest budget that there is address space for.
    #[must_use]
    pub fn budget_max(&self) -> u64 {
        self.layout.budget_max()
    }

    /// Starts to give an extent of frames back to the system; `None` when no extent has memory. The caller then takes
    /// every page out of it that [`FrameDrain::frames`] names, and calls [`FrameDrain::finish`].
    #[must_use]
    pub fn begin_drain(&self) -> Option<FrameDrain<'_>> {
        let drain = self.extents.begin_drain()?;
        self.free.sift(&self.table, |frame| self.extents.catch(&self.table, frame));
        Some(FrameDrain { frames: self, drain })
    }

    /// Extents that have memory: how often [`begin_drain`](Self::begin_drain) has something new to offer.
    #[must_use]
    pub fn extents(&self) -> usize {
        self.extents.populated()
    }

    /// Bytes of an extent's frames.
    #[must_use]
    pub fn extent_bytes(&self) -> u64 {
        (self.extents.frames_each() * self.page_size()) as u64
    }

    /// Charges so much to the budget, if what is kept free for page maps can still be charged afterwards.
    #[must_use]
    pub fn try_charge_beside_maps(&self, bytes: u64) -> bool {
        self.budget.try_charge_leaving(bytes, self.layout.map_reserve)
    }

    /// All frames that have memory, in use or not.
    pub fn populated(&self) -> impl Iterator<Item = FrameId> + '_ {
        let extents = self.extents.with_memory().into_iter();
        extents.flat_map(|extent| self.extents.frames_of(extent)).map(|number| FrameId::new(number as u32))
    }

    /// Gives back up to `wanted` parts of page maps in which no page has been in memory for a while. Says how many.
    pub fn sweep_maps(&self, wanted: usize) -> usize {
        self.words.sweep(wanted, &self.budget)
    }

    // ---- isolated frames

    /// Takes the right to unlink a listed frame. `None` if somebody else has it, or it isn't listed.
    #[must_use]
    pub fn isolate(&self, frame: FrameId) -> Option<IsolatedFrame> {
        self.table.isolate(frame).then_some(IsolatedFrame(frame))
    }

    /// Ends isolation: the frame counts as listed from here on. Call it once its links are published.
    ///
    /// # Errors
    /// The frame, if its page was removed meanwhile: unlink and drop it.
    pub fn put_back(&self, frame: IsolatedFrame) -> Result<(), OwnedFrame<'_>> {
        if self.table.put_back(frame.0) { Ok(()) } else { Err(self.adopt(frame)) }
    }

    fn adopt(&self, orphan: IsolatedFrame) -> OwnedFrame<'_> {
        self.table.adopt(orphan.0);
        OwnedFrame::used(self, orphan.0)
    }

    /// Whether the page was used since this was last asked. For whoever has the frame isolated: so it isn't freed.
    ///
    /// Pages are loaded for their first use, which doesn't show here. If one was read ahead, its first use comes later, and
    /// doesn't either, nor do others that came with it.
    #[must_use]
    pub fn take_referenced(&self, frame: FrameId) -> bool {
        let first = self.table.record(frame).write_state.take_first_use();
        self.take_reference(frame) && !first
    }

    fn take_reference(&self, frame: FrameId) -> bool {
        let stay = PageWord::resident(frame, self.table.generation(frame)).with_referenced(true);
        let (_, word) = self.word_of(frame);
        if PageWord::from_bits(word.load(Ordering::Relaxed)) == stay.with_written() {
            return self.table.record(frame).write_state.take_referenced();
        }
        // Relaxed: the bit publishes nothing.
        word.load(Ordering::Relaxed) == stay.bits()
            && word
                .compare_exchange(stay.bits(), stay.with_referenced(false).bits(), Ordering::Relaxed, Ordering::Relaxed)
                .is_ok()
    }

    /// Evicts an isolated page, leaving `shadow` in its word. The frame can be copied from; to hold another page it has
    /// to be freed and allocated.
    ///
    /// # Errors
    /// The isolated frame again, if the page is in use, was removed by somebody else, or its file doesn't have it.
    pub fn evict(&self, frame: IsolatedFrame, shadow: u64) -> Result<OwnedFrame<'_>, Refused> {
        if !self.table.freeze(frame.0) {
            return Err(Refused { frame, unclean: false });
        }
        // Frozen: so nobody has removed the page (`detach` never unfreezes), and the word is this stay's.
        let (index, word) = self.word_of(frame.0);
        // Relaxed: the Acquire of `freeze`.
        let stay = PageWord::from_bits(word.load(Ordering::Relaxed));
        debug_assert_eq!(stay.frame(), Some(frame.0), "a frozen frame's word names another");
        if stay.is_written() && !self.table.record(frame.0).write_state.is_clean() {
            self.table.unfreeze(frame.0, 0);
            return Err(Refused { frame, unclean: true });
        }
        let vacated = vacate(word, stay, shadow);
        debug_assert!(vacated, "a frozen frame's word changed");
        self.words.chunks.leave(index, stay.is_written());
        Ok(OwnedFrame::used(self, frame.0))
    }

    /// Whether somebody has the page pinned now.
    #[must_use]
    pub fn is_pinned(&self, frame: &IsolatedFrame) -> bool {
        self.table.is_pinned(frame.0)
    }

    /// The group that the frame's page is charged to.
    #[must_use]
    pub fn group(&self, frame: FrameId) -> u32 {
        self.table.group(frame)
    }

    /// Changes the group of an isolated page that nobody uses or removes at this moment, and that is clean. False, and nothing
    /// is done, otherwise.
    #[must_use]
    pub fn set_group(&self, frame: &IsolatedFrame, group: u32) -> bool {
        if !self.table.freeze(frame.0) {
            return false;
        }
        // Frozen: so no writer makes it unclean now.
        let is_clean = self.table.record(frame.0).write_state.is_clean();
        if is_clean {
            self.table.set_group(frame.0, group);
        }
        self.table.unfreeze(frame.0, 0);
        is_clean
    }

    /// Whether the page that the frame holds, or held last, was read ahead and nobody has used it.
    #[must_use]
    pub fn is_unused_ahead(&self, frame: FrameId) -> bool {
        self.table.record(frame).write_state.is_ahead()
    }

    /// Whether reclaim should pass the page over because it was read ahead and its use is still to come. Says so once.
    #[must_use]
    pub fn spare_ahead(&self, frame: FrameId) -> bool {
        self.table.record(frame).write_state.spare_ahead()
    }

    /// Whose page it is.
    #[must_use]
    pub fn owner(&self, frame: FrameId) -> u32 {
        self.table.owner(frame)
    }

    /// The policy's rank of the page.
    #[must_use]
    pub fn rank(&self, frame: FrameId) -> u32 {
        self.table.rank(frame)
    }

    /// Changes the rank. For whoever has the frame isolated.
    pub fn set_rank(&self, frame: FrameId, rank: u32) {
        self.table.set_rank(frame, rank);
    }

    /// Fetches the word of an isolated frame's page into the CPU's cache ahead of use.
    #[inline]
    pub fn prefetch_word(&self, frame: &IsolatedFrame) {
        let (_, word) = self.word_of(frame.0);
        crate::prefetch::prefetch(word);
    }

    /// Notes that a walk of a list from its cold end meets `ahead` a few steps after `frame`.
    pub fn set_ahead(&self, frame: FrameId, ahead: FrameId) {
        self.table.set_ahead(frame, ahead);
    }
}

/// Frames are the nodes of the policy's lists.
impl smp_list::Nodes for Frames {
    #[inline]
    fn links(&self, number: u32) -> &Links {
        self.table.links(FrameId::new(number))
    }

    /// Fetches the record of the frame noted by [`set_ahead`](Self::set_ahead) into the CPU's cache: following the
    /// links alone, a walk would wait for memory at every step.
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

/// A frame that nobody else can reach: free, until its owner publishes a page in it. Dropped, it is freed.
#[derive(Debug)]
pub struct OwnedFrame<'a> {
    frames: &'a Frames,
    id: FrameId,
    /// Its generation hasn't been used for a stay yet (I4).
    fresh: bool,
}

impl<'a> OwnedFrame<'a> {
    /// A frame whose page was just taken out of memory.
    pub(crate) fn used(frames: &'a Frames, id: FrameId) -> Self {
        Self { frames, id, fresh: false }
    }

    /// A frame that a run of loads had, and no page yet.
    pub(crate) fn unused(frames: &'a Frames, id: FrameId) -> Self {
        Self { frames, id, fresh: true }
    }

    /// The frame.
    #[must_use]
    pub fn id(&self) -> FrameId {
        self.id
    }

    /// Lets `fill` write the frame's bytes. What it leaves unwritten is some other page's: it has to write all of
    /// them, or publish nothing.
    pub fn fill<T>(&self, fill: impl FnOnce(SharedBytes<'_>) -> T) -> T {
        // Pairs with the fence in `PageMap::read`: whoever copies one of the bytes written now sees that the frame's
        // last stay is over.
        fence(Ordering::Release);
        fill(self.frames.bytes(self.id))
    }

    /// Copies from the frame.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.frames.bytes(self.id).copy_to(offset, into);
    }

    /// Has the frame hold another page with the bytes that it has, as if it had been freed and allocated. False, and nothing is
    /// changed, if its generations are nearly used up.
    #[must_use]
    pub fn renew(&mut self) -> bool {
        self.fresh = self.fresh || self.frames.table.begin_next_stay(self.id);
        self.fresh
    }

    fn forget(self) -> FrameId {
        let id = self.id;
        std::mem::forget(self);
        id
    }

    /// Hands the frame over to a page in `frames`.
    pub(crate) fn give_up(self, frames: &Frames) -> FrameId {
        assert!(self.fresh, "{:?} wasn't freed after its last page", self.id);
        assert!(std::ptr::eq(self.frames, frames), "{:?} is another budget's", self.id);
        self.forget()
    }
}

impl Drop for OwnedFrame<'_> {
    fn drop(&mut self) {
        self.frames.free(self.id);
    }
}

/// A page that can't be evicted now.
#[derive(Debug)]
pub struct Refused {
    /// It is still isolated.
    pub frame: IsolatedFrame,
    /// Because its file doesn't have it; otherwise because it is in use.
    pub unclean: bool,
}

/// A resident frame that is on no list, and that only its holder may list again or evict. It must not be forgotten:
/// end it with [`Frames::put_back`] or [`Frames::evict`].
#[derive(Debug)]
#[must_use = "a forgotten frame is never reclaimed"]
pub struct IsolatedFrame(FrameId);

impl IsolatedFrame {
    pub(crate) fn new(id: FrameId) -> Self {
        Self(id)
    }

    /// The frame.
    #[must_use]
    pub fn id(&self) -> FrameId {
        self.0
    }
}

/// A resident frame whose page stays, unchanged, while this lives.
#[derive(Debug)]
pub struct PinnedFrame<'a> {
    record: &'a FrameRecord,
    bytes: SharedBytes<'a>,
}

impl<'a> PinnedFrame<'a> {
    /// A frame that was just pinned, and its bytes.
    #[inline]
    pub(crate) fn new(record: &'a FrameRecord, bytes: SharedBytes<'a>) -> Self {
        Self { record, bytes }
    }

    pub(crate) fn record(&self) -> &'a FrameRecord {
        self.record
    }

    /// The page's bytes.
    #[cfg(not(pagefold_loom))]
    #[inline]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        // SAFETY: the frame is pinned, so its bytes don't change while `self` lives (I2 of `frame_table`); the Acquire
        // of the pin put the loader's writes before this.
        unsafe { self.bytes.as_slice() }
    }

    /// Copies from the page.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.bytes.copy_to(offset, into);
    }
}

impl PinnedFrame<'_> {
    /// Leaves the pin to somebody else.
    pub(crate) fn give_up(self) {
        std::mem::forget(self);
    }
}

impl Drop for PinnedFrame<'_> {
    #[inline]
    fn drop(&mut self) {
        self.record.unpin();
    }
}

/// An extent of frames on its way back to the system. While one lives, another drain waits.
#[derive(Debug)]
#[must_use = "dropped unfinished, it gives nothing back"]
pub struct FrameDrain<'a> {
    frames: &'a Frames,
    drain: Drain<'a>,
}

impl FrameDrain<'_> {
    /// The extent's frames, in use or not. Isolate each that is listed, and evict it.
    pub fn frames(&self) -> impl Iterator<Item = FrameId> + use<> {
        self.frames.extents.frames_of(self.drain.extent()).map(|number| FrameId::new(number as u32))
    }

    /// Whether a page in the extent is pinned, so that draining it would only cost the others their pages.
    #[must_use]
    pub fn is_pinned(&self) -> bool {
        self.frames().any(|frame| self.frames.table.is_pinned(frame))
    }

    /// Gives the extent's memory back and uncharges it. False, and all is as before, if a frame of it is still in use.
    #[must_use]
    pub fn finish(self) -> bool {
        let Self { frames, ref drain } = self;
        let extent = drain.extent();
        frames.free.sift(&frames.table, |frame| frames.extents.catch(&frames.table, frame));
        let numbers = frames.extents.frames_of(extent);
        let retired = numbers.filter(|&number| frames.table.is_retired(FrameId::new(number as u32))).count();
        let give_back = || {
            frames.bytes.discard(frames.words_of_extent(extent));
            frames.budget.uncharge(frames.layout.extent_cost(false));
        };
        drain.end(retired, give_back)
    }
}

impl Drop for FrameDrain<'_> {
    fn drop(&mut self) {
        // Nothing, if `finish` has given the extent back.
        self.frames.free.put_all(&self.frames.table, self.drain.stop());
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests;
