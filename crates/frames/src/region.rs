//! Long runs of zeroed atomics in reserved address space.
//!
//! A region is reserved once and stays in place until it is dropped, so references into it are
//! plain references. The contents are *type-stable*: memory of the region may be given back to the
//! system and taken again (as zeros), but never holds values of another type. So a reader that was
//! preempted for any length of time can still load a word safely.
//!
//! The kernel changes a region's memory in two ways that Rust's abstract machine knows nothing
//! about. The first is [`Region::discard`], which zeroes memory. To Rust code, this looks as if
//! another thread had stored the zeros.
//!
//! The second is a fork: a forked child reads zeros everywhere in the region (`MADV_WIPEONFORK`),
//! so it inherits no page, and no copy of a page. If the thread that forks holds a guard, the child
//! has the guard, too. The child may read through the guard, which yields zeros, and may drop the
//! guard. If the kernel can't wipe the memory at a fork, the child zeroes the memory itself
//! (`sync::fork`).

use std::ops::{Deref, Range};

use crate::error::ReserveError;

/// Types for which all-zero bytes are valid, and that change only through shared references.
///
/// # Safety
/// Both must be true: all-zero bytes are a value of the type, and every field is an atomic.
pub(crate) unsafe trait ZeroedAtomics {}

// SAFETY: an atomic integer; zero is one of its values.
unsafe impl ZeroedAtomics for sync::atomic::AtomicU64 {}
// SAFETY: as above.
unsafe impl ZeroedAtomics for sync::atomic::AtomicU32 {}

/// How a region starts out.
#[derive(Clone, Copy, Debug, Default)]
#[cfg_attr(pagefold_loom, expect(dead_code, reason = "a model's regions are plain vectors"))]
pub(crate) struct Protection {
    /// The region reads as zeros and must not be written before [`Region::open`]. Until then it
    /// costs no commit charge under `overcommit_memory=2`.
    pub(crate) closed: bool,
    /// Asks the kernel for huge pages. If false, tells the kernel to use none.
    pub(crate) huge: bool,
    /// The region holds data of users, which isn't written to core dumps.
    pub(crate) undumped: bool,
}

#[cfg(not(pagefold_loom))]
pub(crate) use real::Region;

#[cfg(pagefold_loom)]
pub(crate) use model::Region;

/// Returns whether the process could reserve `bytes` bytes now.
pub(crate) fn can_reserve(bytes: u64, protection: Protection) -> bool {
    // A loom model has no address space to run out of.
    let reserve = |words| Region::<sync::atomic::AtomicU64>::reserve(words, protection).is_ok();
    cfg!(pagefold_loom) || usize::try_from(bytes.div_ceil(size_of::<u64>() as u64).max(1)).is_ok_and(reserve)
}

#[cfg(not(pagefold_loom))]
mod real {
    use super::{Deref, Protection, Range, ReserveError, ZeroedAtomics};
    use core::ffi::c_void;
    use core::ptr::NonNull;
    use rustix::mm::{self, Advice, MapFlags, MprotectFlags, ProtFlags};
    use sync::fork::Wiped;

    /// A reserved run of `T`s.
    #[derive(Debug)]
    pub(crate) struct Region<T> {
        base: NonNull<T>,
        len: usize,
        wiped: Wiped,
    }

    // SAFETY: the region owns its mapping and hands out `&T` only; `T` is made of atomics.
    unsafe impl<T: ZeroedAtomics> Send for Region<T> {}
    // SAFETY: as above.
    unsafe impl<T: ZeroedAtomics> Sync for Region<T> {}

    /// The size of huge pages; regions that want them are aligned to it.
    const HUGE: usize = 2 << 20;

    impl<T: ZeroedAtomics> Region<T> {
        /// Reserves `len` zeroed values; the system provides memory when they are first written.
        pub(crate) fn reserve(len: usize, protection: Protection) -> Result<Self, ReserveError> {
            let bytes = len.checked_mul(size_of::<T>()).filter(|&bytes| bytes > 0 && bytes < isize::MAX as usize / 2);
            let bytes =
                bytes.ok_or(ReserveError { bytes: u64::MAX, errno: rustix::io::Errno::NOMEM.raw_os_error() })?;
            let error = |errno: rustix::io::Errno| ReserveError { bytes: bytes as u64, errno: errno.raw_os_error() };
            if sync::memory::is_refused() {
                return Err(error(rustix::io::Errno::NOMEM));
            }
            let flags = if protection.closed { ProtFlags::READ } else { ProtFlags::READ | ProtFlags::WRITE };
            // Room to cut out a run that starts at a boundary of a huge page.
            let slack = if bytes >= HUGE { HUGE } else { 0 };
            // SAFETY: a new private mapping, at an address that the kernel chooses, overlaps no
            // other memory.
            let start = unsafe {
                mm::mmap_anonymous(core::ptr::null_mut(), bytes + slack, flags, MapFlags::PRIVATE | MapFlags::NORESERVE)
            }
            .map_err(error)?;
            let skip = if slack == 0 { 0 } else { start.align_offset(HUGE) };
            // SAFETY: `skip` is at most the slack; the parts cut off belong to the mapping just
            // made.
            let base = unsafe {
                let base = start.cast::<u8>().add(skip);
                if skip > 0 {
                    let _ = mm::munmap(start, skip);
                }
                let end = base.add(bytes.next_multiple_of(rustix::param::page_size()));
                let tail = slack - skip;
                if tail > 0 {
                    let _ = mm::munmap(end.cast(), tail);
                }
                base
            };
            let base = NonNull::new(base).ok_or_else(|| error(rustix::io::Errno::NOMEM))?;
            let huge = if protection.huge { Advice::LinuxHugepage } else { Advice::LinuxNoHugepage };
            // SAFETY: the range is the rest of the mapping that was just made. It holds `T`s, for
            // which zeros are valid. The advice changes only how the kernel backs the memory, and
            // what children and core dumps contain. The mapping stays until `drop`, which first
            // ends the wiping at forks.
            let wiped = unsafe {
                // A kernel without huge pages refuses; then the region has none.
                let _ = mm::madvise(base.as_ptr().cast(), bytes, huge);
                if protection.undumped {
                    sync::memory::keep_out_of_dumps(base, bytes);
                }
                Wiped::new(base, bytes)
            };
            Ok(Self { base: base.cast(), len, wiped })
        }

        /// Returns the start and the length in bytes of `range`.
        fn bytes(&self, range: &Range<usize>) -> (*mut c_void, usize) {
            let values = &self[range.clone()];
            (values.as_ptr().cast_mut().cast(), size_of_val(values))
        }

        /// Makes a closed part of the region writable.
        pub(crate) fn open(&self, range: Range<usize>) -> Result<(), ReserveError> {
            let (start, bytes) = self.bytes(&range);
            let opened = match sync::memory::is_refused() {
                true => Err(rustix::io::Errno::NOMEM),
                // SAFETY: allows more access to our own mapping.
                false => unsafe { mm::mprotect(start, bytes, MprotectFlags::READ | MprotectFlags::WRITE) },
            };
            opened.map_err(|errno| ReserveError { bytes: bytes as u64, errno: errno.raw_os_error() })
        }

        /// Gives the memory of `range`, which must be whole system pages, back to the system. The
        /// values then read as zeros. Returns false, and changes nothing, if the system refuses.
        pub(crate) fn discard(&self, range: Range<usize>) -> bool {
            let part = &self[range];
            // SAFETY: our own mapping, of types for which zeros are valid; see the module head.
            unsafe { sync::memory::discard(NonNull::from(part).cast(), size_of_val(part)) }
        }

        /// Makes the system provide memory for `range` now rather than at the first write.
        pub(crate) fn touch(&self, range: Range<usize>) -> Result<(), ReserveError> {
            let (start, bytes) = self.bytes(&range);
            use rustix::io::Errno;
            // SAFETY: the mapping is our own. The advice asks the kernel to provide the memory now,
            // and doesn't change its contents. If the kernel doesn't know the advice (EINVAL,
            // before 5.14), or a sandbox refuses it, the system provides the memory at the first
            // write, as usual.
            match unsafe { mm::madvise(start, bytes, Advice::LinuxPopulateWrite) } {
                Ok(()) if sync::memory::is_refused() => {
                    Err(ReserveError { bytes: bytes as u64, errno: rustix::io::Errno::NOMEM.raw_os_error() })
                }
                Ok(()) | Err(Errno::INVAL | Errno::NOSYS | Errno::PERM) => Ok(()),
                Err(errno) => Err(ReserveError { bytes: bytes as u64, errno: errno.raw_os_error() }),
            }
        }

        /// Prefers memory of NUMA node `node` for `range`. A hint: errors are ignored.
        pub(crate) fn prefer_node(&self, range: Range<usize>, node: usize) {
            let (start, bytes) = self.bytes(&range);
            crate::numa::prefer(start, bytes, node);
        }
    }

    impl<T> Deref for Region<T> {
        type Target = [T];
        #[inline]
        fn deref(&self) -> &[T] {
            // SAFETY: the mapping covers `len` values and lives as long as `self`; zeros are valid
            // (`ZeroedAtomics`, without which no region is made).
            unsafe { core::slice::from_raw_parts(self.base.as_ptr(), self.len) }
        }
    }

    impl<T> Drop for Region<T> {
        fn drop(&mut self) {
            self.wiped.end();
            // SAFETY: no borrow is left of a region that is being dropped.
            let _ = unsafe { mm::munmap(self.base.as_ptr().cast(), self.len * size_of::<T>()) };
        }
    }
}

#[cfg(all(test, not(pagefold_loom)))]
mod tests {
    use super::*;
    use sync::atomic::{AtomicU64, Ordering};

    /// Regression: after `mlockall`, the system refuses to discard memory, and only a debug
    /// assertion checked for that. So when the budget shrank in a release build, memory that the
    /// system hadn't taken back was no longer charged, and kept its old contents instead of reading
    /// as zeros.
    #[test]
    fn locked_memory_is_given_back() {
        let words = crate::system_page_size() / size_of::<u64>();
        let region = Region::<AtomicU64>::reserve(2 * words, Protection::default()).unwrap();
        region.iter().for_each(|word| word.store(7, Ordering::Relaxed));
        let start = region.as_ptr().cast_mut().cast();
        // SAFETY: the region's own memory.
        unsafe { rustix::mm::mlock(start, crate::system_page_size()) }.expect("a page may be locked");
        assert!(region.discard(0..words));
        let is = |range: Range<usize>, value| region[range].iter().all(|word| word.load(Ordering::Relaxed) == value);
        assert!(is(0..words, 0) && is(words..2 * words, 7));
    }
}

/// loom's atomics can't lie in mapped memory, so a plain vector replaces the region.
#[cfg(pagefold_loom)]
mod model {
    use super::{Deref, Protection, Range, ReserveError, ZeroedAtomics};

    #[derive(Debug)]
    pub(crate) struct Region<T>(Vec<T>);

    impl<T: ZeroedAtomics + Default> Region<T> {
        pub(crate) fn reserve(len: usize, _: Protection) -> Result<Self, ReserveError> {
            Ok(Self((0..len).map(|_| T::default()).collect()))
        }

        pub(crate) fn open(&self, _: Range<usize>) -> Result<(), ReserveError> {
            Ok(())
        }

        pub(crate) fn touch(&self, _: Range<usize>) -> Result<(), ReserveError> {
            Ok(())
        }

        pub(crate) fn prefer_node(&self, _: Range<usize>, _: usize) {}
    }

    impl Region<sync::atomic::AtomicU64> {
        pub(crate) fn discard(&self, range: Range<usize>) -> bool {
            for word in &self.0[range] {
                word.store(0, sync::atomic::Ordering::Relaxed);
            }
            true
        }
    }

    impl<T> Deref for Region<T> {
        type Target = [T];
        fn deref(&self) -> &[T] {
            &self.0
        }
    }
}
