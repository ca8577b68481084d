//! Identifiers of frames.

use core::fmt;

/// A frame's number in the arena.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct FrameId(u32);

impl FrameId {
    /// Creates the id from the frame's number as a list node.
    #[inline]
    #[must_use]
    pub fn new(number: u32) -> Self {
        Self(number)
    }

    /// Returns the frame's number as a list node.
    #[inline]
    #[must_use]
    pub fn number(self) -> u32 {
        self.0
    }

    /// Returns the frame's number as an index.
    #[inline]
    #[must_use]
    pub fn index(self) -> usize {
        self.0 as usize
    }

    pub(crate) fn to_link(link: Option<Self>) -> u32 {
        link.map_or(0, |frame| frame.0 + 1)
    }

    pub(crate) fn from_link(link: u32) -> Option<Self> {
        link.checked_sub(1).map(Self)
    }
}

impl fmt::Debug for FrameId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "frame {}", self.0)
    }
}
