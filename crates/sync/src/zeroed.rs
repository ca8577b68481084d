//! Long arrays of atomics that start at zero.
//!
//! Large ones take memory of the system's only where they are written, in huge pages as far as it
//! has them.

use crate::atomic::{AtomicU32, AtomicU64};

/// Types that are valid when all their bytes are zero.
///
/// # Safety
/// All-zero bytes are a value of the type.
pub unsafe trait Zeroed: Default {}

// SAFETY: an atomic integer; zero is one of its values. (A model's isn't, and isn't made from
// bytes.)
unsafe impl Zeroed for AtomicU32 {}
// SAFETY: as above.
unsafe impl Zeroed for AtomicU64 {}

// SAFETY: two such values, one behind the other.
unsafe impl<T: Zeroed> Zeroed for [T; 2] {}

/// `len` zeros; `None` if there is no memory for them.
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
    // SAFETY: the allocation is the global allocator's, of the layout of this slice, and zeros are
    // values of `T`.
    (!start.is_null()).then(|| unsafe { Box::from_raw(core::ptr::slice_from_raw_parts_mut(start, len)) })
}

/// Asks for huge pages where a whole one fits: entries of such an array are looked at here and
/// there.
#[cfg(not(pagefold_loom))]
fn advise_huge(start: usize, len: usize) {
    const HUGE: usize = 2 << 20;
    let (first, end) = (start.next_multiple_of(HUGE), (start + len) / HUGE * HUGE);
    if first < end {
        // SAFETY: the range is within an allocation of ours, and its bytes stay what they are.
        // Where it is refused, all goes on.
        unsafe { libc::madvise(std::ptr::without_provenance_mut(first), end - first, libc::MADV_HUGEPAGE) };
    }
}

/// `len` zeros: a model's atomics are more than their bytes.
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
