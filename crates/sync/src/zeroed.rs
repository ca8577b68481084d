//! Long arrays of atomics that start at zero.
//!
//! The system allocates memory for large arrays only where they are written, in huge pages if it
//! has any.

use crate::atomic::{AtomicU32, AtomicU64};

/// Types that are valid when all their bytes are zero.
///
/// # Safety
/// All-zero bytes must be a valid value of the type.
pub unsafe trait Zeroed: Default {}

// SAFETY: an atomic integer; zero is a valid value. (A model's atomic is more than an integer, but
// in a model `zeroed` creates no values from bytes.)
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {}

// SAFETY: two values of a `Zeroed` type, one after the other.
unsafe impl<T: Zeroed> Zeroed for [T; 2] {}

/// Returns `len` zeros. `None` if there is no memory for them.
#[cfg(not(pagefold_loom))]
#[must_use]
pub fn zeroed<T: Zeroed>(len: usize) -> Option<Box<[T]>> {
    use std::alloc::{Layout, alloc_zeroed};
    let layout = Layout::array::<T>(len).ok()?;
    if layout.size() == 0 {
        return Some(Box::default());
    }
    if crate::memory::is_refused() {
        return None;
    }
    // SAFETY: the layout isn't empty.
    let start = unsafe { alloc_zeroed(layout) }.cast::<T>();
    if !start.is_null() {
        advise_huge(start.addr(), layout.size());
    }
    // SAFETY: the allocation comes from the global allocator, with the layout of this slice, and
    // zero bytes are valid values of `T`.
    (!start.is_null()).then(|| unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(start, len)) })
}

/// Requests huge pages where a whole huge page fits into the array. The array's entries are
/// accessed in no particular order, so with small pages many accesses would miss the TLB.
#[cfg(not(pagefold_loom))]
fn advise_huge(start: usize, len: usize) {
    const HUGE: usize = 2 << 20;
    let (first, end) = (start.next_multiple_of(HUGE), (start + len) / HUGE * HUGE);
    if first < end {
        // SAFETY: the range is within an allocation of ours, and its contents don't change. If the
        // system refuses, nothing happens.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(first), end - first, libc::MADV_HUGEPAGE) };
    }
}

/// Returns `len` zeros. A model's atomics are more than their bytes, so they are created one by
/// one.
#[cfg(pagefold_loom)]
#[must_use]
pub fn zeroed<T: Zeroed>(len: usize) -> Option<Box<[T]>> {
    Some((0..len).map(|_| T::default()).collect())
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use crate::atomic::Ordering;

    #[test]
    fn zeros_or_nothing() {
        let words = zeroed::<AtomicU64>(1 << 16).unwrap();
        assert!(words.iter().all(|word| word.load(Ordering::Relaxed) == 0) && words.len() == 1 << 16);
        assert!(zeroed::<AtomicU32>(0).unwrap().is_empty());
        assert!(zeroed::<AtomicU64>(usize::MAX / 8).is_none());
    }
}
