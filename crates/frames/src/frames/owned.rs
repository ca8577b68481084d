//! Frames that hold no page and belong to one thread.

use sync::SharedBytes;
use sync::atomic::{Ordering, fence};

use super::Frames;
use crate::frame_id::FrameId;

/// A frame that only its owner can reach. It holds no page until the owner publishes one in it.
/// Dropping it frees the frame.
#[derive(Debug)]
pub struct OwnedFrame<'a> {
    frames: &'a Frames,
    id: FrameId,
    /// Whether the frame's generation hasn't been used for a stay yet (I4).
    fresh: bool,
}

impl<'a> OwnedFrame<'a> {
    /// Wraps a frame whose page was just taken out of memory.
    pub(crate) fn used(frames: &'a Frames, id: FrameId) -> Self {
        Self { frames, id, fresh: false }
    }

    /// Wraps a frame that hasn't held a page since it was allocated.
    pub(crate) fn unused(frames: &'a Frames, id: FrameId) -> Self {
        Self { frames, id, fresh: true }
    }

    /// Returns the frame.
    #[must_use]
    pub fn id(&self) -> FrameId {
        self.id
    }

    /// Lets `fill` write the frame's bytes. `fill` must write all of them, or the caller must not
    /// publish the frame: bytes that `fill` doesn't write still belong to the frame's previous
    /// page.
    pub fn fill<T>(&self, fill: impl FnOnce(SharedBytes<'_>) -> T) -> T {
        // Pairs with the fences in `Lookup::copy_and_look` and `copy_version`: if a reader copies a
        // byte that `fill` has written, the reader's second load of the page word shows that the
        // stay from which the reader meant to copy is over. So the reader discards its copy.
        fence(Ordering::Release);
        fill(self.frames.bytes(self.id))
    }

    /// Lets `fill` write the bytes of several frames at once. See also [`fill`](Self::fill).
    pub fn fill_all<'b, T>(frames: impl IntoIterator<Item = &'b Self>, fill: impl FnOnce(&[SharedBytes<'_>]) -> T) -> T
    where
        'a: 'b,
    {
        fence(Ordering::Release); // As in `fill`.
        let bytes: Vec<_> = frames.into_iter().map(|frame| frame.frames.bytes(frame.id)).collect();
        fill(&bytes)
    }

    /// Copies from the frame.
    pub fn copy_to(&self, offset: usize, into: &mut [u8]) {
        self.frames.bytes(self.id).copy_to(offset, into);
    }

    /// Prepares the frame for another page. This has the same effect as freeing the frame and
    /// allocating it again, but the frame keeps its bytes. Returns false, and changes nothing, if
    /// the frame's generations are nearly used up.
    #[must_use]
    pub fn renew(&mut self) -> bool {
        self.fresh = self.fresh || self.frames.table.begin_next_stay(self.id);
        self.fresh
    }

    pub(super) fn forget(self) -> FrameId {
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
