//! The system calls that read from files into shared bytes, and write shared bytes to files.
//!
//! rustix can't be used. For reads, rustix takes `&mut [u8]` or `&mut [MaybeUninit<u8>]`. An
//! exclusive reference to memory that optimistic readers are loading from is undefined behavior,
//! even if the reference is never used. For writes, rustix takes `&[u8]`, whose bytes no other
//! thread may change.
//!
//! libc's `pread` and `pwritev` take pointers, but ThreadSanitizer intercepts these functions, and
//! treats the kernel's accesses as plain ones. So ThreadSanitizer would report that the kernel's
//! writes race with the readers' loads, and that the kernel's reads race with stores.
//! `libc::syscall` takes a pointer, too, but ThreadSanitizer ignores the memory that this pointer
//! points to.

use std::ops::Range;
use std::os::fd::{AsRawFd, BorrowedFd};

use arrayvec::ArrayVec;
use sync::SharedBytes;

use crate::IoError;

/// The most slices for one call: the kernel's `IOV_MAX`.
const SLICES_MAX: usize = 1024;

pub(crate) type IoVecs = ArrayVec<libc::iovec, SLICES_MAX>;

#[cfg(not(target_pointer_width = "64"))]
compile_error!("on 32-bit machines, these calls take their offsets in two registers");

/// Reads once from `fd` at `offset`, into at most [`SLICES_MAX`] slices.
///
/// # Errors
/// The system's.
#[allow(unsafe_code)]
pub(crate) fn preadv(fd: BorrowedFd<'_>, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
    let n = match into {
        // SAFETY: as below; the arguments are those of `pread64`.
        [one] => unsafe { libc::syscall(libc::SYS_pread64, fd.as_raw_fd(), one.as_ptr(), one.len(), offset) },
        _ => {
            let slices = io_vecs(into, 0..usize::MAX);
            // SAFETY: each of the `slices.len()` entries points to atomics that are borrowed for
            // longer than this synchronous call. So the memory is mapped, and may change at any
            // time. The kernel may write to the memory (B2 of `sync::bytes`) because no reference
            // to its plain bytes exists: only `as_slice` creates such references, and its caller
            // excludes all writers (B3). The arguments are those of `preadv` on 64-bit machines:
            // the fourth is the offset, and the fifth is ignored.
            unsafe { libc::syscall(libc::SYS_preadv, fd.as_raw_fd(), slices.as_ptr(), slices.len(), offset, 0_usize) }
        }
    };
    usize::try_from(n).map_err(|_| last_error())
}

/// Writes once to `fd` at `offset`: at most the bytes of `from` that are in `range`, and at most
/// [`SLICES_MAX`] slices.
///
/// # Errors
/// The system's.
#[allow(unsafe_code)]
pub(crate) fn pwritev(
    fd: BorrowedFd<'_>,
    offset: u64,
    from: &[SharedBytes<'_>],
    range: Range<usize>,
) -> Result<usize, IoError> {
    let slices = io_vecs(from, range);
    // SAFETY: as in `preadv`, except that the kernel only reads: the memory may change while the
    // kernel copies it.
    let n = unsafe { libc::syscall(libc::SYS_pwritev, fd.as_raw_fd(), slices.as_ptr(), slices.len(), offset, 0_usize) };
    usize::try_from(n).map_err(|_| last_error())
}

/// A resource limit of this process.
#[derive(Clone, Copy, Debug)]
#[cfg_attr(any(pagefold_loom, pagefold_manycore, not(feature = "uring")), allow(dead_code))]
pub(crate) enum Limit {
    /// The maximum length of a file (`RLIMIT_FSIZE`).
    FileSize,
    /// The maximum number of descriptors (`RLIMIT_NOFILE`).
    Descriptors,
}

/// Returns the soft limit. `None` if there is none, or the system doesn't report it.
///
/// rustix's `getrlimit` can't be used: it assumes that the call never fails, but a seccomp filter
/// may reject it.
#[allow(unsafe_code)]
pub(crate) fn soft_limit(of: Limit) -> Option<u64> {
    let resource = match of {
        Limit::FileSize => libc::RLIMIT_FSIZE,
        Limit::Descriptors => libc::RLIMIT_NOFILE,
    };
    let mut limit = libc::rlimit { rlim_cur: libc::RLIM_INFINITY, rlim_max: libc::RLIM_INFINITY };
    // SAFETY: the structure outlives the call.
    let is_told = unsafe { libc::getrlimit(resource, &raw mut limit) } == 0;
    Some(limit.rlim_cur).filter(|&limit| is_told && limit != libc::RLIM_INFINITY)
}

/// Returns the part of the slices that is in `range`, as entries for the kernel.
pub(crate) fn io_vecs(slices: &[SharedBytes<'_>], range: Range<usize>) -> IoVecs {
    let (mut vecs, mut skip, mut rest) = (IoVecs::new(), range.start, range.len());
    for slice in slices {
        let skipped = skip.min(slice.len());
        let iov_len = rest.min(slice.len() - skipped);
        skip -= skipped;
        if iov_len > 0 {
            vecs.push(libc::iovec { iov_base: slice.as_ptr().wrapping_add(skipped).cast(), iov_len });
        }
        rest -= iov_len;
        if rest == 0 || vecs.is_full() {
            break;
        }
    }
    vecs
}

fn last_error() -> IoError {
    std::io::Error::last_os_error().raw_os_error().map_or(IoError::IO, IoError::Os)
}
