//! Memory that virtual threads freed; see `allocator`.

use std::alloc::{GlobalAlloc as _, Layout, System};

/// Bytes in a line.
pub(crate) const LINE: usize = 64;
/// Larger blocks are allocated from the host, and returned to it.
pub(crate) const KEPT_MAX: usize = 8192;
/// Maximum number of blocks on each list.
const LIST_MAX: usize = 64;

/// Free blocks, by CPU and size.
pub(crate) struct FreeBlocks {
    /// For each CPU and each number of lines, the addresses of free blocks. A CPU that freed
    /// nothing has no lists yet.
    lists: Vec<Vec<Vec<*mut u8>>>,
}

impl FreeBlocks {
    pub(crate) fn new(cpus: usize) -> Self {
        Self { lists: vec![Vec::new(); cpus] }
    }

    /// Takes a block of `lines` lines off a CPU's list.
    pub(crate) fn take(&mut self, cpu: usize, lines: usize) -> Option<*mut u8> {
        self.lists[cpu].get_mut(lines)?.pop()
    }

    /// Puts a block of `lines` lines on a CPU's list. Returns false if the list is full.
    pub(crate) fn keep(&mut self, cpu: usize, lines: usize, block: *mut u8) -> bool {
        let lists = &mut self.lists[cpu];
        if lists.is_empty() {
            lists.resize(KEPT_MAX / LINE + 1, Vec::new());
        }
        let list = &mut lists[lines];
        let has_room = list.len() < LIST_MAX;
        if has_room {
            list.push(block);
        }
        has_room
    }
}

impl Drop for FreeBlocks {
    fn drop(&mut self) {
        for (lines, list) in self.lists.iter_mut().flat_map(|lists| lists.iter_mut().enumerate()) {
            for block in list.drain(..) {
                // SAFETY: A2 of `allocator`: the block came from `System` with this layout.
                unsafe { System.dealloc(block, Layout::from_size_align_unchecked(lines * LINE, LINE)) };
            }
        }
    }
}
