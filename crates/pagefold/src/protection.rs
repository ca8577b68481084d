//! What may be done with memory.

/// What may be done with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Protection {
    /// Nothing: the addresses are taken, that is all.
    None,
    /// It may be read.
    Read,
    /// It may be read and written.
    ReadWrite,
}
