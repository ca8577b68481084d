//! An area in memory: for tests, and for measuring what a device that takes no time leaves over.

use io::{BackingFile, Identity, IoError};
use sync::SharedBytes;
use sync::atomic::AtomicU64;
use sync::zeroed::zeroed;

/// Bytes that are copied at once: fewer would zero a smaller buffer for a page that is read, and take longer.
const PART: usize = 4096;

/// Bytes in memory, which takes the system's where it is written.
#[derive(Debug)]
pub(crate) struct MemoryFile {
    words: Box<[AtomicU64]>,
}

impl MemoryFile {
    /// So many zeros, rounded down to whole words; `None` if there is no memory for them.
    pub(crate) fn new(bytes: u64) -> Option<Self> {
        Some(Self { words: zeroed(usize::try_from(bytes / 8).ok()?)? })
    }

    /// The part that begins at `offset`, and has room.
    fn part(&self, offset: u64) -> SharedBytes<'_> {
        let word = (offset / 8) as usize;
        SharedBytes::new(&self.words[word..word + PART / 8])
    }

    /// The bytes from `offset` on, and how many of `len` there are.
    fn at(&self, offset: u64, len: usize) -> (SharedBytes<'_>, usize) {
        let word = usize::try_from(offset / 8).unwrap_or(usize::MAX).min(self.words.len());
        let bytes = SharedBytes::new(&self.words[word..]);
        (bytes, len.min(bytes.len()))
    }
}

/// Passes `len` bytes on, by way of a buffer that stays in the nearest cache.
fn copy(from: SharedBytes<'_>, len: usize, buffer: &mut [u8], mut put: impl FnMut(usize, &[u8])) {
    for at in (0..len).step_by(buffer.len()) {
        let most = buffer.len().min(len - at);
        let part = &mut buffer[..most];
        from.copy_to(at, part);
        put(at, part);
    }
}

impl BackingFile for MemoryFile {
    fn identity(&self) -> Identity {
        // Its address, as a simulated disk has.
        Identity { device: self.words.as_ptr().addr() as u64, inode: 0 }
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(self.words.len() as u64 * 8)
    }

    fn reads_by_copy(&self) -> bool {
        true
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let (mut done, mut buffer) = (0, [0; PART]);
        for slice in into {
            let (from, part) = self.at(offset + done as u64, slice.len());
            copy(from, part, &mut buffer, |at, bytes| slice.copy_from(at, bytes));
            done += part;
        }
        Ok(done)
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        let (mut done, mut buffer) = (0, [0; PART]);
        for slice in from {
            let (into, part) = self.at(offset + done as u64, slice.len().min(len - done));
            copy(*slice, part, &mut buffer, |at, bytes| match bytes.len() {
                // Past the caches: nobody looks at it soon.
                PART => self.part(offset + (done + at) as u64).stream_from(bytes),
                _ => into.copy_from(at, bytes),
            });
            done += part;
            if part < slice.len() {
                break;
            }
        }
        if done == 0 && len > 0 { Err(IoError::NO_SPACE) } else { Ok(done) }
    }

    fn sync(&self) -> Result<(), IoError> {
        Ok(())
    }
}
