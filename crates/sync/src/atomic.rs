//! Atomics and fences.

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(pagefold_manycore)]
pub use manycore::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(pagefold_loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

pub use crate::wait::{Backoff, spin_hint};

/// A `SeqCst` fence between an atomic read-modify-write that this thread has made, whatever its
/// ordering, with all that it did before, and what follows. On x86-64 such an instruction is a
/// fence itself, so only the compiler has to be told.
#[inline]
#[cfg_attr(pagefold_manycore, track_caller)]
pub fn fence_after_update() {
    #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan, miri))))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan, miri)))))]
    fence(Ordering::SeqCst);
}
