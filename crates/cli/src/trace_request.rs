//! A request of a trace line, in any format.

/// The kind of a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Op {
    /// Reads bytes from the file.
    Read,
    /// Writes bytes to the file.
    Write,
    /// Makes earlier writes durable: all of them, or those in a range.
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
