//! Buffers with copies of pages, for devices that read the bytes of a write more than once.
//!
//! A page may change while it is being written, but some devices [need stable
//! bytes](crate::BackingFile::needs_stable_bytes). For such a device, the page is first copied into
//! one of a small fixed set of buffers, and then written from the copy. Copies never take more
//! memory than these buffers: if no buffer is free, the write waits until another write completes.
//!
//! A copy may be torn, that is, contain old and new bytes. If a page is written without a copy, the
//! bytes that reach the device may be torn, too. This does no harm: a page that changes while it is
//! being copied or written becomes dirty again, and so is written again.

use std::fmt;

use sync::atomic::AtomicU64;
use sync::lock::{Condvar, Mutex};
use sync::time::{Duration, Instant};
use sync::zeroed::zeroed;
use sync::{Arc, SharedBytes, StableBytes};

/// The size of one copy (at least one page), and of all copies together.
const EACH: usize = 256 << 10;
const IN_ALL: usize = 1 << 20;
/// The alignment of addresses that direct I/O requires.
const ALIGNMENT: usize = if cfg!(pagefold_loom) { 8 } else { 4096 };
const WORD: usize = size_of::<u64>();

/// A set of buffers for copies, all of the same size.
pub struct Copies {
    idle: Mutex<Vec<Box<[AtomicU64]>>>,
    given_back: Condvar,
    bytes: usize,
}

impl Copies {
    /// Creates four buffers of 256 KiB. If pages are larger than that, creates fewer buffers, each
    /// of the size of a page: as many as fit into 1 MiB, but at least one. Returns `None` if there
    /// is no memory for them.
    #[must_use]
    pub fn for_pages(page_size: usize) -> Option<Arc<Self>> {
        let bytes = EACH.max(page_size);
        Self::new(IN_ALL / bytes, bytes)
    }

    /// Creates `count` buffers, and at least one. `bytes` must be a multiple of 8.
    fn new(count: usize, bytes: usize) -> Option<Arc<Self>> {
        let buffers = (0..count.max(1)).map(|_| zeroed((bytes + ALIGNMENT) / WORD));
        let idle = Mutex::new(buffers.collect::<Option<Vec<_>>>()?);
        Some(Arc::new(Self { idle, given_back: Condvar::new(), bytes }))
    }

    /// Returns the capacity of one copy in bytes.
    #[must_use]
    pub fn room(&self) -> usize {
        self.bytes
    }

    /// Returns a free buffer, if there is one.
    #[must_use]
    pub fn take(self: &Arc<Self>) -> Option<Copy> {
        self.idle.lock().pop().map(|words| Copy { words, len: 0, of: Arc::clone(self) })
    }

    /// Waits for a free buffer. Each buffer is returned when its write has completed.
    #[must_use]
    pub fn wait(self: &Arc<Self>) -> Copy {
        loop {
            if let Some(copy) = self.wait_for(Duration::MAX) {
                return copy;
            }
        }
    }

    /// Waits for a free buffer. Returns `None` if none became free in `patience`.
    #[must_use]
    pub fn wait_for(self: &Arc<Self>, patience: Duration) -> Option<Copy> {
        let mut idle = self.idle.lock();
        let mut begun = None;
        loop {
            if let Some(words) = idle.pop() {
                return Some(Copy { words, len: 0, of: Arc::clone(self) });
            }
            let waited = begun.get_or_insert_with(Instant::now).elapsed();
            let left = patience.checked_sub(waited).filter(|left| !left.is_zero())?;
            self.given_back.wait_for(&mut idle, left);
        }
    }
}

impl fmt::Debug for Copies {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copies").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

/// A buffer whose bytes don't change while they are written. Returned to its set when dropped.
pub struct Copy {
    words: Box<[AtomicU64]>,
    /// The number of bytes copied into the buffer.
    len: usize,
    of: Arc<Copies>,
}

impl Copy {
    /// Copies slices into the buffer, one after the other. Stops at the first slice that doesn't
    /// fit as a whole ([`room`](Copies::room)). Returns the number of slices copied.
    pub fn fill<'a>(&mut self, from: impl Iterator<Item = SharedBytes<'a>>) -> usize {
        self.len = 0;
        let mut slices = 0;
        for slice in from {
            if slice.len() > self.of.bytes - self.len {
                break;
            }
            self.all().suffix(self.len).prefix(slice.len()).copy_from_shared(slice);
            self.len += slice.len();
            slices += 1;
        }
        slices
    }

    /// Returns the bytes that were copied last.
    #[must_use]
    pub fn bytes(&self) -> SharedBytes<'_> {
        self.all().prefix(self.len)
    }

    fn all(&self) -> SharedBytes<'_> {
        let start = self.words.as_ptr().addr().wrapping_neg() % ALIGNMENT;
        SharedBytes::new(&self.words[start / WORD..][..self.of.bytes / WORD])
    }
}

// SAFETY: the words are on the heap, and don't move until this is dropped. The set of words that
// `each` passes changes only through `&mut self`.
#[allow(unsafe_code)]
unsafe impl StableBytes for Copy {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        f(self.bytes());
    }
}

impl Drop for Copy {
    fn drop(&mut self) {
        self.of.idle.lock().push(std::mem::take(&mut self.words));
        self.of.given_back.notify_one();
    }
}

impl fmt::Debug for Copy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Copy").field("len", &self.len).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    #[test]
    fn copies_are_aligned_and_few_and_come_back() {
        let copies = Copies::new(2, 8192).unwrap();
        let pages: Vec<Box<[u64]>> = (1..4).map(|page| vec![page; 512].into()).collect();
        let mut pages = pages.into_iter().map(|page| page.into_iter().map(AtomicU64::new).collect::<Box<[_]>>());
        let pages: [Box<[AtomicU64]>; 3] = std::array::from_fn(|_| pages.next().unwrap());
        let (mut one, two) = (copies.take().unwrap(), copies.take().unwrap());
        assert!(copies.take().is_none());
        assert_eq!(one.fill(pages.iter().map(|page| SharedBytes::new(page))), 2, "there is no room for the third");
        assert!(one.bytes().as_ptr().addr().is_multiple_of(4096));
        let mut bytes = vec![0; 8192];
        one.bytes().copy_to(0, &mut bytes);
        assert_eq!((one.bytes().len(), bytes[0], bytes[4095], bytes[4096]), (8192, 1, 0, 2));
        assert_eq!(one.fill(pages[2..].iter().map(|page| SharedBytes::new(page))), 1);
        assert_eq!((one.bytes().len(), two.bytes().len()), (4096, 0));
        drop(one);
        assert!(copies.wait().bytes().is_empty());
    }
}
