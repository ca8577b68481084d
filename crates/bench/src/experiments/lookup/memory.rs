//! The bytes of the pages of the older designs.

use sync::SharedBytes;
use sync::atomic::AtomicU64;

use super::{PAGE, contents};

const WORDS: usize = PAGE / 8;

/// Page by page.
pub(super) struct Memory {
    words: Box<[AtomicU64]>,
}

impl Memory {
    /// So many pages with the contents that readers expect.
    pub(super) fn new(pages: u64) -> Self {
        let page = |page| (0..WORDS).map(move |word| AtomicU64::new(if word == 0 { contents(page) } else { 0 }));
        Self { words: (0..pages).flat_map(page).collect() }
    }

    /// Copies the beginning of page `number`, as Pagefold copies out of its frames.
    #[inline]
    pub(super) fn copy(&self, number: usize, into: &mut [u8]) {
        SharedBytes::new(&self.words[number * WORDS..][..WORDS]).copy_to(0, into);
    }
}
