//! A page on its way to swap.

use sync::SharedBytes;

use crate::slot_word::Owner;

/// A page that is to be written. If its bytes change meanwhile, what is written is worthless: the
/// caller, or the thread that changes them, has to see to it that it is never read back.
#[derive(Clone, Copy, Debug)]
pub struct PageOut<'a> {
    /// All of its bytes.
    pub bytes: SharedBytes<'a>,
    /// The number of the frame that it is in.
    pub frame: u32,
    /// Whose page it is.
    pub owner: Owner,
    /// The group that it is charged to, cut off to [`Note::GROUP_BITS`](crate::Note::GROUP_BITS).
    pub group: u32,
}
