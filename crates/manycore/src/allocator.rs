//! An allocator that keeps the host's heap out of the results.
//!
//! The addresses of values determine whether two values share a cache line, and whether fresh
//! memory is warm in some core's cache. The addresses that the host's allocator chooses depend on
//! the whole history of the process. With
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: manycore::Allocator = manycore::Allocator;
//! ```
//!
//! the layout within lines depends only on the sizes, and the reuse of memory depends only on the
//! virtual threads' own calls:
//!
//! - L1. Every allocation begins and ends on a line boundary. So no two allocations share a line,
//!   and there is no false sharing *between* allocations. False sharing within an allocation is
//!   modelled. (False sharing between allocations can't be reproduced with the host's allocator
//!   either: see the page on the model.)
//! - L2. Memory that comes from the host is cold, whatever was at its address before.
//! - L3. When a virtual thread frees a block of up to 8 KiB, the block goes on the list that the
//!   thread's CPU has for this size, unless the list is full. The CPU's next allocation of the same
//!   size reuses the block, and finds in the caches the lines that are still there, as with the
//!   per-CPU caches of a real allocator.
//!
//! Allocation itself costs no virtual time.
//!
//! Invariants:
//! - A1. Every block comes from `System` with the layout `whole_lines(layout)`, whose size and
//!   alignment are at least those requested. `whole_lines(layout)` depends on `layout` alone,
//!   so the block is also returned to `System` with the layout that it was allocated with.
//! - A2. A block is on a list only after it was freed, and is removed from the list before it is
//!   allocated again. Each list has blocks of one size, and all blocks on lists are aligned to a
//!   line.
//! - A3. No code here panics, or allocates through this allocator, while it has borrowed a list,
//!   with one exception: a list that grows allocates. `free_blocks` is borrowed at that time, so
//!   the nested allocation can't borrow a list, and goes to `System`.

use crate::free_blocks::{KEPT_MAX, LINE};
use crate::world;
use std::alloc::{GlobalAlloc, Layout, System};

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// Returns the layout that is really allocated: whole lines.
fn whole_lines(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_next_multiple_of(LINE)?.max(LINE);
    Layout::from_size_align(size, layout.align().max(LINE)).ok()
}

/// Returns the index of the list for blocks of this layout, which is their number of lines. Returns
/// `None` if no list has such blocks.
fn list_of(layout: Layout) -> Option<usize> {
    (layout.align() == LINE && layout.size() <= KEPT_MAX).then_some(layout.size() / LINE)
}

// SAFETY: A1 to A3 of the module's head.
unsafe impl GlobalAlloc for Allocator {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(layout) = whole_lines(layout) else { return std::ptr::null_mut() };
        let world = world::current();
        if let (Some(world), Some(lines)) = (world, list_of(layout))
            && let Some(block) = world.take_block(lines)
        {
            return block;
        }
        // SAFETY: the size isn't zero.
        let block = unsafe { System.alloc(layout) };
        if let Some(world) = world {
            world.forget(block.addr(), layout.size());
        }
        block
    }

    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        let Some(layout) = whole_lines(layout) else { return };
        if let (Some(world), Some(lines)) = (world::current(), list_of(layout))
            && world.keep_block(lines, block)
        {
            return;
        }
        // SAFETY: A1.
        unsafe { System.dealloc(block, layout) }
    }
}

impl world::World {
    /// Takes a free block of `lines` lines from the running CPU's list.
    fn take_block(&self, lines: usize) -> Option<*mut u8> {
        let cpu = self.state.try_borrow().ok()?.cpu;
        self.free_blocks.try_borrow_mut().ok()?.take(cpu, lines)
    }

    /// Puts a block on the running CPU's list. Returns false if the list is full, or if the
    /// machine's own code frees the block (it has borrowed the state then).
    fn keep_block(&self, lines: usize, block: *mut u8) -> bool {
        let Ok(cpu) = self.state.try_borrow().map(|state| state.cpu) else { return false };
        self.free_blocks.try_borrow_mut().is_ok_and(|mut blocks| blocks.keep(cpu, lines, block))
    }

    /// Records that the memory at this address is new.
    fn forget(&self, address: usize, bytes: usize) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.directory.forget(address, bytes);
            state.blocks.forget(address, bytes);
        }
    }
}
