//! What one line of a trace asks for, in any format.

/// What a line asks for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Bytes out of the file.
    Read,
    /// Bytes into the file.
    Write,
    /// What was written is to survive a power cut: all of it, or a range.
    Sync,
}

/// A parsed line.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Line<'a> {
    pub(crate) op: Op,
    pub(crate) offset: u64,
    pub(crate) len: u64,
    pub(crate) group: Option<&'a str>,
    pub(crate) thread: Option<&'a str>,
    /// Index into [`Iolog::files`](crate::trace_iolog::Iolog::files); 0 in the formats that name no files.
    pub(crate) file: usize,
}
