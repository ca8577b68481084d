//! An area in memory: for tests, and for measurements of swapping without a device's latency.

use io::{BackingFile, Identity, IoError};
use sync::{SharedBytes, SparseWords};

/// Bytes in memory. The system provides memory for a page when the page is first written.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    words: SparseWords,
}

impl MemoryFile {
    /// Creates a file of `bytes` zeros, rounded down to whole words; `None` if there is no memory
    /// for them.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        Some(Self { words: SparseWords::dense(usize::try_from(bytes / 8).ok()?)? })
    }

    /// Returns `len` bytes from `offset` on, or fewer at the end of the file.
    fn at(&self, offset: u64, len: usize) -> SharedBytes<'_> {
        let word = usize::try_from(offset / 8).unwrap_or(usize::MAX).min(self.words.len());
        let bytes = SharedBytes::new(self.words.part(word..self.words.len()));
        bytes.prefix(len.min(bytes.len()))
    }
}

impl BackingFile for MemoryFile {
    fn identity(&self) -> Identity {
        // The identity is the address, like that of a simulated disk.
        Identity { device: self.words.part(0..0).as_ptr().addr() as u64, inode: 0 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(self.words.len() as u64 * 8)
    }

    fn reads_by_copy(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let mut done = 0;
        for slice in into {
            let from = self.at(offset + done as u64, slice.len());
            slice.prefix(from.len()).copy_from_shared(from);
            done += from.len();
        }
        Ok(done)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let mut done = 0;
        for slice in from {
            let into = self.at(offset + done as u64, slice.len().min(len - done));
            // Bypasses the caches, because these bytes aren't read soon.
            into.stream_from_shared(slice.prefix(into.len()));
            done += into.len();
            if into.len() < slice.len() {
                break;
            }
        }
        if done == 0 && len > 0 { Err(IoError::NO_SPACE) } else { Ok(done) }
    }

    fn sync(&self) -> Result<(), IoError> {
        Ok(())
    }
}
