//! Reclaim and loads of pages allocate nothing, so they work in a process that is short of memory.
//! One exception isn't counted here: a chunk of compressed memory that comes into use needs a table
//! of its blocks. If this table can't be allocated, the pages go to the next swap area.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;

use pagefold::{Advice, Pagefold, Protection, SwapArea};
use sync::random::Random;
use test_disks::SimulatedDisk;

const PAGE: u64 = 4096;

/// Bytes of the table of a chunk's blocks.
const CHUNK_TABLE: usize = 512 * size_of::<u16>();

thread_local! {
    /// Allocations of this thread, apart from the tables of chunks.
    static ALLOCATIONS: Cell<u64> = const { Cell::new(0) };
}

struct Counting;

// SAFETY: all is the system's allocator's, which is one.
unsafe impl GlobalAlloc for Counting {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() != CHUNK_TABLE {
            let _ = ALLOCATIONS.try_with(|count| count.set(count.get() + 1));
        }
        // SAFETY: the caller's promises are passed on.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, at: *mut u8, layout: Layout) {
        // SAFETY: as above.
        unsafe { System.dealloc(at, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Counting = Counting;

/// Allocations of this thread while `work` runs.
fn allocations(work: impl FnOnce()) -> u64 {
    let before = ALLOCATIONS.get();
    work();
    ALLOCATIONS.get() - before
}

#[test]
fn pages_of_files_are_evicted_without_an_allocation() {
    let disk = SimulatedDisk::default();
    disk.add_generated("f", 1, 4096 * PAGE);
    let mm = Pagefold::builder().memory("4MiB").backend(disk).build().unwrap();
    let group = mm.group("a").build().unwrap();
    let file = group.open("f").unwrap();
    file.advise(0..0, Advice::Random).unwrap();
    let mut random = Random::seeded(1);
    let mut read = |times: u64| {
        let mut bytes = [0; 8];
        for _ in 0..times {
            file.read_at(&mut bytes, random.below(4096) * PAGE).unwrap();
        }
    };
    read(20_000);
    let evicted = group.stats().evictions;
    assert_eq!(allocations(|| read(20_000)), 0);
    assert!(group.stats().evictions > evicted + 10_000);
}

#[test]
fn pages_are_swapped_out_and_in_without_an_allocation() {
    for area in [SwapArea::memory("32MiB"), SwapArea::compressed("2MiB")] {
        let is_compressed = format!("{area:?}").contains("Compressed");
        let mut builder = Pagefold::builder().memory("8MiB").swap_area(area);
        if is_compressed {
            builder = builder.swap_area(SwapArea::memory("32MiB"));
        }
        let mm = builder.build().unwrap();
        let group = mm.group("a").build().unwrap();
        let space = group.space().unwrap();
        let memory = space.map(4096 * PAGE, Protection::ReadWrite).unwrap();
        space.advise(memory.clone(), Advice::Random).unwrap();
        let mut random = Random::seeded(2);
        let mut write = |times: u64| {
            for time in 0..times {
                // Compresses, to more than one word.
                space.write_at(&time.to_le_bytes(), memory.start + random.below(4096) * PAGE + 8).unwrap();
            }
        };
        write(40_000);
        let outs = group.stats().swap_outs;
        assert_eq!(allocations(|| write(20_000)), 0, "{}", mm.stats());
        assert!(group.stats().swap_outs > outs + 10_000, "{}", mm.stats());
    }
}
