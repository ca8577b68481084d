//! Owners of bytes that a device may still be reading or writing.

use crate::atomic::AtomicU64;
use crate::{Arc, SharedBytes};

/// Owns runs of shared bytes that don't move for as long as the owner lives, even if the owner
/// itself is moved.
///
/// So a request that owns such a value can be handed to a device, which reads and writes the bytes
/// through pointers (B2 of [`bytes`](crate::bytes)). The value keeps the bytes in place, so the
/// bytes need no other owner.
///
/// # Safety
/// [`each`](Self::each) must pass the same runs in the same order each time, until the value is
/// dropped or mutably borrowed. Until then, the CPU must be able to read all of them, and a device
/// to write them.
pub unsafe trait StableBytes {
    /// Calls `f` with each run.
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>));
}

// SAFETY: the words are on the heap and don't move.
unsafe impl StableBytes for Box<[AtomicU64]> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        f(SharedBytes::new(self));
    }
}

// SAFETY: the words are on the heap and don't move until the last owner is dropped. They may be
// shared because they are atomics.
unsafe impl StableBytes for Arc<[AtomicU64]> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        f(SharedBytes::new(self));
    }
}

// SAFETY: the runs of each part, in order; the parts may move with their container, but their runs
// don't.
unsafe impl<T: StableBytes> StableBytes for Vec<T> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        self.iter().for_each(|part| part.each(f));
    }
}

// SAFETY: as for `Vec`.
unsafe impl<T: StableBytes, const N: usize> StableBytes for [T; N] {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        self.iter().for_each(|part| part.each(f));
    }
}

// SAFETY: as for `Vec`.
unsafe impl<T: StableBytes> StableBytes for Box<[T]> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        self.iter().for_each(|part| part.each(f));
    }
}
