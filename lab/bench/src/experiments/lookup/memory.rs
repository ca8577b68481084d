//! The bytes of the pages of the older designs.

use sync::SharedBytes;
use sync::atomic::AtomicU64;

use super::{PAGE, contents};

const WORDS: usize = PAGE / 8;

/// A page's bytes, aligned to a page like Pagefold's frames, because the model assumes that caches
/// hold whole pages.
#[repr(align(4096))]
struct Bytes([AtomicU64; WORDS]);

/// Page by page.
pub(super) struct Memory {
    pages: Box<[Bytes]>,
}

impl Memory {
    /// So many pages with the contents that readers expect.
    pub(super) fn new(pages: u64) -> Self {
        let word = |page, word| AtomicU64::new(if word == 0 { contents(page) } else { 0 });
        Self { pages: (0..pages).map(|page| Bytes(std::array::from_fn(|at| word(page, at)))).collect() }
    }

    /// Copies the beginning of page `number`, as Pagefold copies out of its frames.
    #[inline]
    pub(super) fn copy(&self, number: usize, into: &mut [u8]) {
        SharedBytes::new(&self.pages[number].0).copy_to(0, into);
    }
}
