//! An allocator that keeps the host's heap out of the results.
//!
//! Whether two values share a cache line, and whether fresh memory is warm in some core's cache,
//! depends on where the host's allocator puts them, which depends on everything the process ever
//! did. With
//!
//! ```
//! #[global_allocator]
//! static ALLOCATOR: manycore::Allocator = manycore::Allocator;
//! ```
//!
//! the layout within lines is a function of the sizes alone, and what is reused is a function of
//! the virtual threads' own calls:
//!
//! - L1. Every allocation begins on a line of its own and ends on one: none shares a line with
//!   another. So there is no false sharing *between* allocations (the model can't see that of the
//!   host's allocator either, see the page on the model); within one it is as it is.
//! - L2. Memory that comes from the host is cold, whatever was at its address before.
//! - L3. Memory that a virtual thread frees goes on its CPU's list for that size, and the next
//!   allocation of that size on that CPU gets it back, as warm as it is: as with the per-CPU caches
//!   of a real allocator.
//!
//! Allocation itself costs no virtual time.

use crate::free_blocks::{KEPT_MAX, LINE};
use crate::world;
use std::alloc::{GlobalAlloc, Layout, System};

/// See the [module](self).
#[derive(Clone, Copy, Debug, Default)]
pub struct Allocator;

/// The layout that is really allocated: whole lines.
fn whole_lines(layout: Layout) -> Option<Layout> {
    let size = layout.size().checked_next_multiple_of(LINE)?.max(LINE);
    Layout::from_size_align(size, layout.align().max(LINE)).ok()
}

/// The list that a block of this layout can be on.
fn list_of(layout: Layout) -> Option<usize> {
    (layout.align() == LINE && layout.size() <= KEPT_MAX).then_some(layout.size() / LINE)
}

// SAFETY:
// - A1. Every block comes from `System` with `whole_lines(layout)`, which is at least as large and
//   as aligned as asked for, and depends on the layout alone; so it is given back with the same
//   layout.
// - A2. A block is on a list only after it was freed, and is taken off before it is given out
//   again; its list says its size, and blocks on lists are aligned to a line.
// - A3. Nothing here panics or allocates through itself while it holds a list: a list's own growth
//   happens with the world's cell borrowed, which sends the nested call to `System`.
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
    /// A free block of that many lines, from the running CPU's list.
    fn take_block(&self, lines: usize) -> Option<*mut u8> {
        let cpu = self.state.try_borrow().ok()?.cpu;
        self.free_blocks.try_borrow_mut().ok()?.take(cpu, lines)
    }

    /// Puts a block on the running CPU's list. False if it is full, or the machine's own.
    fn keep_block(&self, lines: usize, block: *mut u8) -> bool {
        let Ok(cpu) = self.state.try_borrow().map(|state| state.cpu) else { return false };
        self.free_blocks.try_borrow_mut().is_ok_and(|mut blocks| blocks.keep(cpu, lines, block))
    }

    /// Other memory lies at this address from now on.
    fn forget(&self, address: usize, bytes: usize) {
        if let Ok(mut state) = self.state.try_borrow_mut() {
            state.directory.forget(address, bytes);
            state.blocks.forget(address, bytes);
        }
    }
}
