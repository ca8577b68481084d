//! Owners of bytes that a device may still be moving.

use crate::atomic::AtomicU64;
use crate::{Arc, SharedBytes};

/// Owns runs of shared bytes that stay where they are for as long as the owner lives, however it is
/// moved about.
///
/// So a request that owns such a value can be given to a device, which writes and reads by pointer
/// (B2 of [`bytes`](crate::bytes)), and forgotten about.
///
/// # Safety
/// [`each`](Self::each) gives the same runs in the same order each time, until the value is dropped
/// or lent out mutably; until then all of them can be read, and be written by a device.
pub unsafe trait StableBytes {
    /// Calls `f` with each of the runs.
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>));
}

// SAFETY: the words are on the heap, where they stay.
unsafe impl StableBytes for Box<[AtomicU64]> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        f(SharedBytes::new(self));
    }
}

// SAFETY: the words are on the heap, where they stay until the last owner is gone; as atomics they
// may be shared.
unsafe impl StableBytes for Arc<[AtomicU64]> {
    fn each<'a>(&'a self, f: &mut dyn FnMut(SharedBytes<'a>)) {
        f(SharedBytes::new(self));
    }
}

// SAFETY: each part's, in order; they may be moved with what contains them.
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
