//! A hint to the CPU.

/// Asks the CPU to fetch a cache line that is about to be looked at.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    #[cfg(all(target_arch = "x86_64", not(pagefold_loom)))]
    // SAFETY: prefetching has no effect on memory; SSE is part of x86-64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(core::ptr::from_ref(value).cast());
    }
    #[cfg(not(all(target_arch = "x86_64", not(pagefold_loom))))]
    let _ = value;
}
