//! Pins that aren't bound to a borrow of the map.

use sync::Arc;

use super::{PageMap, PinnedFrame};
use crate::frame_id::FrameId;
use crate::frames::Frames;

/// A pin that isn't bound to a borrow of the map. It is used if the requester of a page may be gone
/// when the load ends, and for guards that users store.
#[derive(Debug)]
pub struct KeptPin {
    frames: Arc<Frames>,
    frame: Option<FrameId>,
}

impl KeptPin {
    /// Keeps a pin of a page in `frames` beyond its borrow.
    ///
    /// # Panics
    /// If the pin is of other frames.
    #[must_use]
    pub fn of(frames: &Arc<Frames>, pin: PinnedFrame<'_>) -> Self {
        let frame = frames.table.frame_of(pin.record()).expect("a frame of these");
        Self::new(frames, frame, pin)
    }

    /// Keeps `pin`, of `frame`, beyond its borrow.
    pub(crate) fn new(frames: &Arc<Frames>, frame: FrameId, pin: PinnedFrame<'_>) -> Self {
        pin.give_up();
        Self { frames: Arc::clone(frames), frame: Some(frame) }
    }

    /// Returns the page's bytes.
    #[cfg(not(pagefold_loom))]
    #[must_use]
    pub fn bytes(&self) -> &[u8] {
        let Some(frame) = self.frame else { return &[] };
        // SAFETY: the frame is pinned, so its bytes don't change while `self` lives (I2 of
        // `frame_table`). The Acquire of the pin orders the loader's writes before this read.
        unsafe { self.frames.bytes(frame).as_slice() }
    }

    /// Converts this pin into one that borrows the page's map. If `map` is a map of other frames,
    /// drops the pin and returns `None`.
    #[must_use]
    pub fn lend(mut self, map: &PageMap) -> Option<PinnedFrame<'_>> {
        let frames = &map.shared.frames;
        let frame = self.frame.filter(|_| Arc::ptr_eq(&self.frames, frames))?;
        self.frame = None;
        Some(PinnedFrame::new(frames.table.record(frame), frames.bytes(frame)))
    }
}

impl Drop for KeptPin {
    fn drop(&mut self) {
        if let Some(frame) = self.frame {
            self.frames.table.record(frame).unpin();
        }
    }
}
