//! Exclusive access to a page, held without a borrow of the frames.

use std::mem::ManuallyDrop;

use sync::Arc;

use crate::frame_id::FrameId;
use crate::frames::Frames;
use crate::writing::Writing;

/// Exclusive access to a page, like [`Writing`], for a guard that its user keeps.
#[derive(Debug)]
pub struct KeptWriting {
    frames: Arc<Frames>,
    frame: FrameId,
    /// As in [`Writing`].
    unwritten: Option<usize>,
}

impl KeptWriting {
    /// Keeps the access to a page in `frames` beyond its borrow.
    ///
    /// # Panics
    /// If the page is in other frames.
    #[must_use]
    pub fn of(frames: &Arc<Frames>, writing: Writing<'_>) -> Self {
        let (frame, unwritten) = writing.in_frames(frames).into_parts();
        Self { frames: Arc::clone(frames), frame, unwritten }
    }

    /// Calls `f` with the page.
    pub fn with<R>(&mut self, f: impl FnOnce(&mut Writing<'_>) -> R) -> R {
        let writing = ManuallyDrop::new(Writing::of_parts(&self.frames, self.frame, self.unwritten));
        let mut lent = Lent { writing, unwritten: &mut self.unwritten };
        f(&mut lent.writing)
    }
}

/// A page that is lent to a closure. Remembers, even after a panic, whether it was written to.
struct Lent<'a> {
    writing: ManuallyDrop<Writing<'a>>,
    unwritten: &'a mut Option<usize>,
}

impl Drop for Lent<'_> {
    fn drop(&mut self) {
        *self.unwritten = self.writing.unwritten();
    }
}

impl Drop for KeptWriting {
    fn drop(&mut self) {
        self.frames.table.unfreeze(self.frame, 0);
    }
}
