//! Giving memory back to the system, an extent at a time.

use super::Frames;
use crate::extents::Drain;
use crate::frame_table::FrameId;

/// An extent of frames on its way back to the system. While one lives, another drain waits.
#[derive(Debug)]
#[must_use = "dropped unfinished, it gives nothing back"]
pub struct FrameDrain<'a> {
    frames: &'a Frames,
    drain: Drain<'a>,
}

impl Frames {
    /// Starts to give an extent of frames back to the system; `None` when no extent has memory. The caller then takes
    /// every page out of it that [`FrameDrain::frames`] names, and calls [`FrameDrain::finish`].
    #[must_use]
    pub fn begin_drain(&self) -> Option<FrameDrain<'_>> {
        let drain = self.extents.begin_drain()?;
        self.free.sift(&self.table, |frame| self.extents.catch(&self.table, frame));
        Some(FrameDrain { frames: self, drain })
    }
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
