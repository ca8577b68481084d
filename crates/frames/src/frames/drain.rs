//! Gives memory back to the system, an extent at a time.

use super::Frames;
use crate::extents::Drain;
use crate::frame_id::FrameId;

/// Extents whose frames are being given back to the system. While this lives, another drain waits.
#[derive(Debug)]
#[must_use = "dropped unfinished, it gives nothing back"]
pub struct FrameDrain<'a> {
    frames: &'a Frames,
    drain: Drain<'a>,
}

impl Frames {
    /// Starts to give back up to `wanted` extents of frames to the system. Examines the next
    /// `looks` extents that have memory, and chooses those with the fewest pages in memory. Extents
    /// in which a page is being changed come last. Never chooses an extent with a frame that
    /// `may_move` rejects. Returns `None` if no extent can be chosen.
    ///
    /// The caller must then evict or move every page in the frames that [`FrameDrain::frames`]
    /// returns, and call [`FrameDrain::finish`] for each extent. Meanwhile no thread can allocate
    /// free frames of these extents.
    ///
    /// This call searches all free frames once, for the frames of all chosen extents together. So
    /// one drain of many extents costs less than many drains of one extent each.
    #[must_use]
    pub fn begin_drain(
        &self,
        wanted: usize,
        looks: usize,
        may_move: impl Fn(FrameId) -> bool,
    ) -> Option<FrameDrain<'_>> {
        let rank = |extent| {
            let frames = || self.extents.frames_of(extent).map(|number| FrameId::new(number as u32));
            frames().all(&may_move).then(|| {
                // A user who is changing a page may keep the guard for any length of time, so an
                // extent with such a page comes last. But it isn't left out: most changes take a
                // moment, and in a small budget each extent may have a page that is being changed.
                let is_being_changed = frames().any(|frame| self.table.is_being_changed(frame));
                let pages = frames().filter(|&frame| !self.table.is_frozen(frame)).count();
                pages + if is_being_changed { frames().len() } else { 0 }
            })
        };
        let drain = FrameDrain { frames: self, drain: self.extents.begin_drain(wanted, looks, rank)? };
        drain.sift();
        Some(drain)
    }

    /// Returns whether the frame holds a page that is pinned.
    #[must_use]
    pub fn has_pinned(&self, frame: FrameId) -> bool {
        self.table.is_pinned(frame)
    }

    /// Returns whether the frame holds a page that isn't clean: its file may lack some of its
    /// bytes.
    #[must_use]
    pub fn has_unclean(&self, frame: FrameId) -> bool {
        !self.table.is_frozen(frame) && !self.table.record(frame).write_state.is_clean()
    }
}

impl FrameDrain<'_> {
    /// Returns the number of extents that are being given back.
    #[must_use]
    #[expect(clippy::len_without_is_empty, reason = "there is at least one")]
    pub fn len(&self) -> usize {
        self.drain.len()
    }

    /// Returns all frames of the extent at position `at`, in use or not. Positions begin at 0; the
    /// extents come in the order of [`begin_drain`](Frames::begin_drain)'s choice. If a frame
    /// counts as listed, the caller must isolate it ([`Frames::isolate`]), and evict or move its
    /// page.
    pub fn frames(&self, at: usize) -> impl Iterator<Item = FrameId> + use<> {
        self.frames.extents.frames_of(self.drain.extent(at)).map(|number| FrameId::new(number as u32))
    }

    /// Catches free frames that threads freed before they could see this drain (E1 of `extents`).
    pub fn sift(&self) {
        let Self { frames, .. } = self;
        frames.free.sift(&frames.table, |batch| frames.extents.catch_all(&frames.table, batch));
    }

    /// Returns whether a thread seems to hold a frame of an extent. Such a frame is neither listed
    /// nor free nor retired: its page is being loaded, or the thread has isolated the frame.
    #[must_use]
    pub fn has_held(&self, at: usize) -> bool {
        let table = &self.frames.table;
        let others = self.frames(at).filter(|&frame| !table.is_listed(frame) && !table.is_retired(frame)).count();
        others > self.drain.caught(at)
    }

    /// Returns whether a thread seems to be changing a page of an extent, or keeps a guard for
    /// changing it. Until the change or the guard ends, the page can't leave its frame.
    #[must_use]
    pub fn is_being_changed(&self, at: usize) -> bool {
        self.frames(at).any(|frame| self.frames.table.is_being_changed(frame))
    }

    /// Returns whether the memory of an extent was given back.
    #[must_use]
    pub fn is_finished(&self, at: usize) -> bool {
        self.drain.is_over(at)
    }

    /// Gives an extent's memory back and uncharges it. If the budget is being lowered, also lowers
    /// its limit. Returns false, and changes nothing, if a frame of the extent is still in use, or
    /// if the system refuses to take the memory back.
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
        // An extent that `finish` has given back has no caught frames any more.
        self.drain.stop(|caught| self.frames.free.put_all(&self.frames.table, caught));
    }
}
