//! Giving memory back to the system, an extent at a time.

use super::Frames;
use crate::extents::Drain;
use crate::frame_id::FrameId;

/// Extents of frames on their way back to the system. While one of these lives, another drain
/// waits.
#[derive(Debug)]
#[must_use = "dropped unfinished, it gives nothing back"]
pub struct FrameDrain<'a> {
    frames: &'a Frames,
    drain: Drain<'a>,
}

impl Frames {
    /// Starts to give up to `wanted` extents of frames back to the system: of the next `looks` that
    /// have memory, those with the fewest pages in memory, and none with a frame that `may_move`
    /// refuses. `None` when there is no such extent.
    ///
    /// The caller then takes every page out of them that [`FrameDrain::frames`] names, and calls
    /// [`FrameDrain::finish`] for each. Frames of theirs that are free can't be allocated
    /// meanwhile. All free frames are looked at once, however many extents are wanted.
    #[must_use]
    pub fn begin_drain(
        &self,
        wanted: usize,
        looks: usize,
        may_move: impl Fn(FrameId) -> bool,
    ) -> Option<FrameDrain<'_>> {
        let pages = |extent| {
            let frames = || self.extents.frames_of(extent).map(|number| FrameId::new(number as u32));
            frames().all(&may_move).then(|| frames().filter(|&frame| !self.table.is_frozen(frame)).count())
        };
        let drain = FrameDrain { frames: self, drain: self.extents.begin_drain(wanted, looks, pages)? };
        drain.sift();
        Some(drain)
    }

    /// Whether there is a page in the frame that is pinned.
    #[must_use]
    pub fn has_pinned(&self, frame: FrameId) -> bool {
        self.table.is_pinned(frame)
    }

    /// Whether there is a page in the frame whose bytes are nowhere else.
    #[must_use]
    pub fn has_unclean(&self, frame: FrameId) -> bool {
        !self.table.is_frozen(frame) && !self.table.record(frame).write_state.is_clean()
    }
}

impl FrameDrain<'_> {
    /// How many extents are being given back.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.drain.len()
    }

    /// An extent's frames, in use or not; extents with the fewest pages come first. Isolate each
    /// that is listed, and evict it.
    pub fn frames(&self, at: usize) -> impl Iterator<Item = FrameId> + use<> {
        self.frames.extents.frames_of(self.drain.extent(at)).map(|number| FrameId::new(number as u32))
    }

    /// Looks for frames that were freed by threads which didn't know of the drain yet (E1 of
    /// `extents`).
    pub fn sift(&self) {
        let Self { frames, .. } = self;
        frames.free.sift(&frames.table, |batch| frames.extents.catch_all(&frames.table, batch));
    }

    /// Whether the memory of an extent was given back.
    #[must_use]
    pub fn is_finished(&self, at: usize) -> bool {
        self.drain.is_over(at)
    }

    /// Gives an extent's memory back and uncharges it, for good if the budget is being lowered.
    /// False, and all is as before, if a frame of the extent is still in use, or the system
    /// refuses.
    #[must_use]
    pub fn finish(&self, at: usize) -> bool {
        let Self { frames, ref drain } = *self;
        let extent = drain.extent(at);
        let numbers = frames.extents.frames_of(extent);
        let retired = numbers.filter(|&number| frames.table.is_retired(FrameId::new(number as u32))).count();
        let cost = frames.layout.extent_cost(false);
        let give_back = || {
            let is_discarded = frames.bytes.discard(frames.words_of_extent(extent));
            if is_discarded {
                frames.budget.give_up(cost, frames.layout.map_reserve);
            }
            is_discarded
        };
        drain.end(at, retired, give_back)
    }
}

impl Drop for FrameDrain<'_> {
    fn drop(&mut self) {
        // Nothing of extents that `finish` has given back.
        self.drain.stop(|caught| self.frames.free.put_all(&self.frames.table, caught));
    }
}
