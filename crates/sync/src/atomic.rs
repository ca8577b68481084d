//! Atomics and fences.

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use core::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};
#[cfg(pagefold_manycore)]
pub use manycore::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

#[cfg(pagefold_loom)]
pub use loom::sync::atomic::{AtomicBool, AtomicPtr, AtomicU8, AtomicU32, AtomicU64, AtomicUsize, Ordering, fence};

/// One turn of a bounded spin: tells the CPU, or the model, that this thread waits for another one's store.
#[inline]
#[cfg_attr(pagefold_manycore, track_caller)]
pub fn spin_hint() {
    #[cfg(pagefold_manycore)]
    manycore::spin_hint();
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    core::hint::spin_loop();
    #[cfg(pagefold_loom)]
    loom::thread::yield_now();
}

/// A spin that turns into yielding: short waits stay on the CPU, and a preempted holder gets its time slice back.
#[derive(Debug, Default)]
pub struct Backoff {
    turns: u32,
}

impl Backoff {
    /// Turns spent spinning before the first yield; 2^6 − 1 spin hints altogether.
    const SPIN_TURNS: u32 = 6;

    /// A spin that hasn't waited yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Waits a little longer than the last time.
    #[inline]
    #[cfg_attr(pagefold_manycore, track_caller)]
    pub fn wait(&mut self) {
        // A model's hint is a yield already. A virtual CPU's waits for a store: more than one a turn would say nothing new.
        if self.turns < Self::SPIN_TURNS && cfg!(not(pagefold_loom)) {
            let hints = if cfg!(pagefold_manycore) { 1 } else { 1_u32 << self.turns };
            for _ in 0..hints {
                spin_hint();
            }
        } else {
            crate::thread::yield_now();
        }
        self.turns = self.turns.saturating_add(1);
    }

    /// How many times [`wait`](Self::wait) was called.
    #[must_use]
    pub fn turns(&self) -> u32 {
        self.turns
    }
}

/// A `SeqCst` fence between an atomic read-modify-write that this thread has made, whatever its ordering, with all that it did
/// before, and what follows.
/// On x86-64 such an instruction is a fence itself, so only the compiler has to be told.
#[inline]
#[cfg_attr(pagefold_manycore, track_caller)]
pub fn fence_after_update() {
    #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan, miri))))]
    core::sync::atomic::compiler_fence(Ordering::SeqCst);
    #[cfg(not(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan, miri)))))]
    fence(Ordering::SeqCst);
}
