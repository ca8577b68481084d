//! The system calls that fill shared bytes, and write them to files.
//!
//! Neither rustix nor libc's `pread` will do. rustix takes `&mut [u8]` or `&mut [MaybeUninit<u8>]`, and an exclusive
//! reference to memory that optimistic readers are loading from is undefined behaviour, whatever is done with it; for
//! writes it takes `&[u8]`, of which others may not change a byte. libc's `pread` takes a pointer, but ThreadSanitizer
//! intercepts it and would call the kernel's write a plain one, racing with those loads; `pwritev`'s reads would race
//! with stores. `libc::syscall` takes a pointer, and nobody looks inside.

use std::os::fd::{AsRawFd, BorrowedFd};

use arrayvec::ArrayVec;
use sync::SharedBytes;

use crate::IoError;

/// Slices that one [`pwritev`] takes: the kernel's `IOV_MAX`.
const SLICES_MAX: usize = 1024;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("on 32-bit machines, `pread64` and `pwritev` take their offsets in two registers");

/// Reads once from `fd`, at most `into.len()` bytes at `offset`.
///
/// # Errors
/// The system's.
#[allow(unsafe_code)]
pub(crate) fn pread(fd: BorrowedFd<'_>, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
    // SAFETY: the memory is `into.len()` bytes of atomics, borrowed for longer than this synchronous call, so it is
    // mapped and may change under everybody's eyes. That the kernel writes to it is B2 of `sync::bytes`: no reference
    // to plain bytes exists over it, since `as_slice`'s caller excludes writers (B3). The arguments are those of
    // `pread64` on 64-bit machines, each passed as a whole register.
    let n = unsafe { libc::syscall(libc::SYS_pread64, fd.as_raw_fd(), into.as_ptr(), into.len(), offset) };
    usize::try_from(n).map_err(|_| last_error())
}

/// Writes once to `fd`, at most the first `len` bytes of `from` at `offset`, and of at most [`SLICES_MAX`] slices.
///
/// # Errors
/// The system's.
#[allow(unsafe_code)]
pub(crate) fn pwritev(fd: BorrowedFd<'_>, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
    let mut slices = ArrayVec::<libc::iovec, SLICES_MAX>::new();
    let mut rest = len;
    for slice in from.iter().filter(|slice| !slice.is_empty()).take(SLICES_MAX) {
        let iov_len = rest.min(slice.len());
        slices.push(libc::iovec { iov_base: slice.as_ptr().cast(), iov_len });
        rest -= iov_len;
        if rest == 0 {
            break;
        }
    }
    // SAFETY: each of the `slices.len()` entries is memory of atomics, borrowed for longer than this synchronous call,
    // so it is mapped and may change while the kernel copies it; the kernel only reads, outside of the abstract machine
    // as in B2 of `sync::bytes`, and no reference to plain bytes is made. The arguments are those of `pwritev` on
    // 64-bit machines, where the offset is in the fourth and the fifth counts for nothing.
    let n = unsafe { libc::syscall(libc::SYS_pwritev, fd.as_raw_fd(), slices.as_ptr(), slices.len(), offset, 0_usize) };
    usize::try_from(n).map_err(|_| last_error())
}

fn last_error() -> IoError {
    std::io::Error::last_os_error().raw_os_error().map_or(IoError::IO, IoError::Os)
}
