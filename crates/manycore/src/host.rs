//! Prefetches into the host's own caches. Between two events of one virtual CPU, all other virtual
//! CPUs execute events of their own. So the data that the second event needs has left the nearest
//! caches. These prefetches change only how long a simulation takes, not its results.

/// Bytes in a line of the host.
const LINE: usize = 64;

/// Prefetches the host's line at the beginning of a value.
#[inline]
pub(crate) fn prefetch<T>(value: &T) {
    prefetch_at(std::ptr::from_ref(value).addr());
}

/// Prefetches all of the host's lines of a value.
#[inline]
pub(crate) fn prefetch_all<T>(value: &T) {
    let first = std::ptr::from_ref(value).addr();
    (0..size_of::<T>()).step_by(LINE).for_each(|offset| prefetch_at(first + offset));
}

/// Prefetches the host's line at an address, which may be any.
#[inline]
pub(crate) fn prefetch_at(address: usize) {
    #[cfg(target_arch = "x86_64")]
    // SAFETY: a prefetch has no effect on the program, whatever the address; SSE is part of x86-64.
    unsafe {
        use core::arch::x86_64::{_MM_HINT_T0, _mm_prefetch};
        _mm_prefetch::<_MM_HINT_T0>(std::ptr::without_provenance(address));
    }
    #[cfg(not(target_arch = "x86_64"))]
    let _ = address;
}
