//! No lock: a reader counts itself among the page's users, and then checks that the page is still
//! in its slot, as in Linux since 2.6.27.

use super::memory::Memory;
use super::tree::Tree;
use super::{PageCache, measure};
use crate::experiments::older::spin_lock::SpinLock;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "counted",
    about: "lock-free: walk the tree, raise the page's count, look again; drop the count after the copy",
    hidden: false,
    measure: |job| measure(job, Counted::new),
};

struct Counted {
    /// For those that change the tree.
    lock: SpinLock,
    tree: Tree,
    memory: Memory,
}

impl Counted {
    fn new(pages: u64, _: usize) -> Self {
        Self { lock: SpinLock::default(), tree: Tree::new(pages), memory: Memory::new(pages) }
    }
}

impl PageCache for Counted {
    #[inline]
    fn read(&self, index: u64, into: &mut [u8]) {
        if let Some(page) = self.tree.get_page(index) {
            self.memory.copy(page.number, into);
            page.put();
        }
    }

    fn change(&self, _: usize, page: u64) {
        self.lock.with(|| self.tree.change(page));
    }
}
