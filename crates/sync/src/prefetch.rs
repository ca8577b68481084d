//! Prefetch hints for the CPU.

/// Prefetches the cache line of a value that is about to be read.
#[inline]
#[cfg_attr(pagefold_manycore, track_caller)]
pub fn prefetch<T>(value: &T) {
    #[cfg(pagefold_manycore)]
    manycore::prefetch(core::ptr::from_ref(value).addr(), false);
    #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore))))]
    // SAFETY: prefetching has no effect on memory; SSE is part of x86-64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(pagefold_loom))))]
    let _ = value;
}

/// Prefetches the cache line of a value that is about to be written. Other CPUs lose their copies.
#[inline]
#[cfg_attr(pagefold_manycore, track_caller)]
pub fn prefetch_to_write<T>(value: &T) {
    #[cfg(pagefold_manycore)]
    manycore::prefetch(core::ptr::from_ref(value).addr(), true);
    #[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_manycore, pagefold_tsan, miri))))]
    lines_to_write(core::ptr::from_ref(value).cast(), 1);
    #[cfg(not(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri)))))]
    let _ = value;
}

/// Prefetches the cache lines of `len` bytes for writing.
#[cfg(all(target_arch = "x86_64", not(any(pagefold_loom, pagefold_tsan, miri))))]
#[inline]
pub(crate) fn lines_to_write(to: *const u8, len: usize) {
    for at in (0..len).step_by(LINE) {
        // SAFETY: the instruction has no effect on memory, whatever the address. CPUs that don't
        // support it treat it as `nop`.
        unsafe {
            core::arch::asm!(
                "prefetchw [{}]", in(reg) to.wrapping_add(at),
                options(nostack, preserves_flags, readonly)
            );
        }
    }
}

/// The size of a cache line in bytes.
pub(crate) const LINE: usize = 64;
