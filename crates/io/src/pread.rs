//! The system call that fills shared bytes.
//!
//! Neither rustix nor libc's `pread` will do. rustix takes `&mut [u8]` or `&mut [MaybeUninit<u8>]`, and an exclusive
//! reference to memory that optimistic readers are loading from is undefined behaviour, whatever is done with it.
//! libc's `pread` takes a pointer, but ThreadSanitizer intercepts it and would call the kernel's write a plain one,
//! racing with those loads. `libc::syscall` takes a pointer, and nobody looks inside.

use std::os::fd::{AsRawFd, BorrowedFd};

use sync::SharedBytes;

use crate::IoError;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("on 32-bit machines, `pread64` takes its offset in two registers");

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

fn last_error() -> IoError {
    std::io::Error::last_os_error().raw_os_error().map_or(IoError::IO, IoError::Os)
}
