//! A doubly linked list of frames, through the links in the frame table.
//!
//! The list knows nothing of locks: whoever changes it holds the lock that it lies under (`group_lists`).

use frames::{FrameId, Frames};

/// First in, first out, but for frames that are taken from the middle.
#[derive(Debug, Default)]
pub(crate) struct LruList {
    head: Option<FrameId>,
    tail: Option<FrameId>,
    len: usize,
    /// The frames linked last, in a ring: each learns which frame comes so many steps after it.
    recent: [Option<FrameId>; AHEAD],
    turn: usize,
}

/// How far ahead a walk has records fetched: enough of them at a time to hide what memory takes.
const AHEAD: usize = 8;

impl LruList {
    pub(crate) fn len(&self) -> usize {
        self.len
    }

    pub(crate) fn tail(&self) -> Option<FrameId> {
        self.tail
    }

    /// Links a frame at the hot end.
    pub(crate) fn push_head(&mut self, frames: &Frames, frame: FrameId) {
        if let Some(earlier) = self.recent[self.turn].replace(frame) {
            frames.set_ahead(earlier, frame);
        }
        self.turn = (self.turn + 1) % AHEAD;
        frames.set_prev(frame, None);
        frames.set_next(frame, self.head);
        match self.head {
            Some(head) => frames.set_prev(head, Some(frame)),
            None => self.tail = Some(frame),
        }
        self.head = Some(frame);
        self.len += 1;
    }

    /// Links a frame at the cold end.
    pub(crate) fn push_tail(&mut self, frames: &Frames, frame: FrameId) {
        frames.set_next(frame, None);
        frames.set_prev(frame, self.tail);
        match self.tail {
            Some(tail) => frames.set_next(tail, Some(frame)),
            None => self.head = Some(frame),
        }
        self.tail = Some(frame);
        self.len += 1;
    }

    /// Unlinks a frame of this list.
    pub(crate) fn unlink(&mut self, frames: &Frames, frame: FrameId) {
        let (prev, next) = (frames.prev(frame), frames.next(frame));
        match prev {
            Some(prev) => frames.set_next(prev, next),
            None => self.head = next,
        }
        match next {
            Some(next) => frames.set_prev(next, prev),
            None => self.tail = prev,
        }
        self.len -= 1;
    }
}
