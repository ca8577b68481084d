//! Regression: at its first hit, a thread allocates a block of counters, which takes 16 MiB of
//! address space. When this allocation failed, the process was aborted. Now such a thread adds to
//! the counters' shared numbers instead.
#![cfg(not(any(pagefold_loom, pagefold_manycore)))]
#![allow(unsafe_code)]

use std::alloc::{GlobalAlloc, Layout, System};

use pagefold_sync::ThreadCounter;
use pagefold_sync::atomic::{AtomicBool, Ordering};

/// An allocator that refuses allocations of `LARGE` bytes or more, such as blocks, while `REFUSES`
/// is set.
struct Refusing;

static REFUSES: AtomicBool = AtomicBool::new(false);
const LARGE: usize = 1 << 20;

// SAFETY: the system's allocator, or null, which stands for a refusal.
unsafe impl GlobalAlloc for Refusing {
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        if layout.size() >= LARGE && REFUSES.load(Ordering::Relaxed) {
            return std::ptr::null_mut();
        }
        // SAFETY: the caller's promise.
        unsafe { System.alloc(layout) }
    }

    unsafe fn dealloc(&self, start: *mut u8, layout: Layout) {
        // SAFETY: the caller's promise.
        unsafe { System.dealloc(start, layout) }
    }
}

#[global_allocator]
static ALLOCATOR: Refusing = Refusing;

#[test]
fn a_thread_counts_without_memory_for_a_block() {
    let (counter, place) = ThreadCounter::at_hand();
    REFUSES.store(true, Ordering::Relaxed);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            assert!(!place.try_add(1));
            counter.add(5);
        });
    });
    assert_eq!(counter.sum(), 5);
    REFUSES.store(false, Ordering::Relaxed);
    counter.add(2);
    assert!(place.try_add(3));
    assert_eq!(counter.sum(), 10);
}
