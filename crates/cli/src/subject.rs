//! The target of a run's reads and writes: an open file, or memory without a file.

use pagefold::{Error, File, Group, Protection, ReadRequest, Space, WriteRequest};

use crate::content::Content;
use crate::failure::{Failure, refused};

/// Bytes of memory that are filled at a time.
const PIECE: u64 = 1 << 20;

/// See the module's head.
#[derive(Clone, Debug)]
pub(crate) enum Subject {
    File(File),
    Memory(Memory),
}

/// A range of a space, in which offsets count from its start.
#[derive(Clone, Debug)]
pub(crate) struct Memory {
    space: Space,
    start: u64,
    len: u64,
}

impl Memory {
    /// Creates `len` bytes of memory in the group, filled with `content`. `progress` gets the
    /// number of bytes filled so far.
    ///
    /// # Errors
    /// Errors of Pagefold; errors of `progress`.
    pub(crate) fn filled(
        group: &Group,
        len: u64,
        content: Content,
        mut progress: impl FnMut(u64) -> Result<(), Failure>,
    ) -> Result<Self, Failure> {
        let space = group.space().map_err(refused)?;
        let start = space.map(len, Protection::ReadWrite).map_err(refused)?.start;
        let mut piece = vec![0; PIECE as usize];
        for offset in (0..len).step_by(PIECE as usize) {
            let piece = &mut piece[..PIECE.min(len - offset) as usize];
            content.fill(offset, piece);
            space.write_at(piece, start + offset).map_err(refused)?;
            progress(offset + piece.len() as u64)?;
        }
        Ok(Self { space, start, len })
    }
}

impl Subject {
    pub(crate) fn len(&self) -> u64 {
        match self {
            Self::File(file) => file.len(),
            Self::Memory(memory) => memory.len,
        }
    }

    /// Reads, and returns the number of bytes read.
    pub(crate) fn read_at(&self, into: &mut [u8], offset: u64) -> Result<usize, Error> {
        match self {
            Self::File(file) => file.read_at(into, offset),
            Self::Memory(memory) => {
                let there = into.len().min(usize::try_from(memory.len.saturating_sub(offset)).unwrap_or(usize::MAX));
                memory.space.read_at(&mut into[..there], memory.start + offset)?;
                Ok(there)
            }
        }
    }

    pub(crate) fn write_at(&self, from: &[u8], offset: u64) -> Result<(), Error> {
        match self {
            Self::File(file) => file.write_at(from, offset),
            Self::Memory(memory) => memory.space.write_at(from, memory.start + offset),
        }
    }

    /// Reads several ranges of a file at once. Only for files: memory has no batches.
    pub(crate) fn read_batch(&self, batch: &mut [ReadRequest<'_>]) {
        if let Self::File(file) = self {
            file.read_batch(batch);
        }
    }

    /// Writes several ranges of a file at once.
    pub(crate) fn write_batch(&self, batch: &mut [WriteRequest<'_>]) {
        if let Self::File(file) = self {
            file.write_batch(batch);
        }
    }

    /// Syncs a file. For memory there is nothing to do.
    pub(crate) fn sync(&self) -> Result<(), Error> {
        match self {
            Self::File(file) => file.sync(),
            Self::Memory(_) => Ok(()),
        }
    }

    pub(crate) fn sync_range(&self, range: std::ops::Range<u64>) -> Result<(), Error> {
        match self {
            Self::File(file) => file.sync_range(range),
            Self::Memory(_) => Ok(()),
        }
    }
}
