//! A page that stays in memory, as its user sees it.

use std::ops::Deref;

use frames::PinnedFrame;

/// A page of a file that stays in memory, where it is and as it is, while this lives.
#[derive(Debug)]
pub struct PinnedPage<'a> {
    pub(crate) frame: PinnedFrame<'a>,
    pub(crate) len: usize,
}

impl Deref for PinnedPage<'_> {
    type Target = [u8];

    #[inline]
    fn deref(&self) -> &[u8] {
        &self.frame.bytes()[..self.len]
    }
}
