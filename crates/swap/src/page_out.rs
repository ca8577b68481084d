//! A page that is being swapped out.

use sync::SharedBytes;

use crate::slot_word::Owner;

/// A page to be written. Its bytes may change during the write. Then the written copy is invalid.
/// The caller, or the thread that changes the bytes, must make sure that this copy is never read
/// back.
#[derive(Clone, Copy, Debug)]
pub struct PageOut<'a> {
    /// All bytes of the page.
    pub bytes: SharedBytes<'a>,
    /// The number of its frame.
    pub frame: u32,
    /// The number of the page.
    pub owner: Owner,
    /// The group that it is charged to, truncated to [`Note::GROUP_BITS`](crate::Note::GROUP_BITS)
    /// bits.
    pub group: u32,
}
