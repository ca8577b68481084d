//! A tree under a lock: a reader finds the page and counts itself under the lock, and copies after
//! releasing it.

use super::PageCache;
use super::memory::Memory;
use super::seam::Ordering;
use super::tree::Tree;

/// A lock that readers of the tree take.
pub(super) trait ReadLock: Default + Send + Sync {
    /// Waits for the lock.
    fn lock(&self);
    /// Gives it back.
    fn unlock(&self);
    /// Waits until no other task has the lock.
    fn lock_alone(&self) {
        self.lock();
    }
    /// Gives that back.
    fn unlock_alone(&self) {
        self.unlock();
    }
}

/// A cached file.
pub(super) struct Locked<L> {
    lock: L,
    tree: Tree,
    memory: Memory,
}

impl<L: ReadLock> Locked<L> {
    /// With so many pages, all in memory.
    pub(super) fn new(pages: u64, _: usize) -> Self {
        Self { lock: L::default(), tree: Tree::new(pages), memory: Memory::new(pages) }
    }
}

impl<L: ReadLock> PageCache for Locked<L> {
    #[inline]
    fn read(&self, index: u64, into: &mut [u8]) {
        self.lock.lock();
        // Relaxed: the lock orders it.
        let page = self.tree.slot(index).and_then(|slot| self.tree.page(slot.load(Ordering::Relaxed)));
        if let Some(page) = page {
            page.get();
        }
        self.lock.unlock();
        if let Some(page) = page {
            self.memory.copy(page.number, into);
            page.put();
        }
    }

    fn change(&self, _: usize, page: u64) {
        self.lock.lock_alone();
        self.tree.change(page);
        self.lock.unlock_alone();
    }
}
