//! Atomics and fences.

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(pagefold_manycore)]
pub use manycore::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(pagefold_loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

pub use crate::wait::{Backoff, spin_hint};

/// Acts as a `SeqCst` fence. The caller must have made an atomic read-modify-write just before the
/// call, with any ordering. That read-modify-write, and everything before it, is ordered before
/// everything after the call. On x86-64 a read-modify-write is a full fence itself, so this
/// function needs only a compiler fence.
#[inline]
#[cfg_attr(pagefold_manycore, track_caller)]
pub fn fence_after_update() {
    #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan, miri))))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan, miri)))))]
    fence(Ordering::SeqCst);
}
