//! Mapped memory, unmapped when it is dropped.
//!
//! Invariant M1: `address` is the start of a mapping of `len` bytes, which only this value owns.

use std::fs::File;
use std::os::fd::{AsRawFd, OwnedFd};
use std::ptr::{self, NonNull};
use std::sync::OnceLock;

use anyhow::{Context, Result};
use rustix::mm::{Advice, MapFlags, MsyncFlags, ProtFlags, madvise, mmap, mmap_anonymous, msync, munmap};
use rustix::process::{PidfdFlags, getpid, pidfd_open};

use crate::peers::contents::PAGE;

/// Which pages of the machine anonymous memory should be made of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Backing {
    /// Ordinary 4 KiB pages.
    Ordinary,
    /// Huge pages as far as the kernel has them (`MADV_HUGEPAGE`).
    Huge,
}

/// A mapping of whole pages.
#[derive(Debug)]
pub(crate) struct Mapping {
    address: NonNull<u8>,
    len: usize,
}

// SAFETY: the value is an address range (M1). Code that uses the pointer is responsible for its
// accesses to the bytes.
unsafe impl Send for Mapping {}
// SAFETY: as above: no method reads or writes the bytes through a shared reference, except
// `discard`, which says so.
unsafe impl Sync for Mapping {}

impl Mapping {
    /// Zeroed private memory of `pages` pages, none of which was touched yet. No memory is reserved
    /// for it.
    pub(crate) fn anonymous(pages: u32, backing: Backing) -> Result<Self> {
        let len = pages as usize * PAGE;
        let flags = MapFlags::PRIVATE | MapFlags::NORESERVE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let address = unsafe { mmap_anonymous(ptr::null_mut(), len, ProtFlags::READ | ProtFlags::WRITE, flags) };
        let mapping = Self::own(address.with_context(|| format!("cannot map {len} bytes"))?.cast(), len);
        let advice = match backing {
            Backing::Ordinary => Advice::LinuxNoHugepage,
            Backing::Huge => Advice::LinuxHugepage,
        };
        // SAFETY: the range is ours (M1), and the advice doesn't change what the bytes are.
        let advised = unsafe { madvise(mapping.address.as_ptr().cast(), len, advice) };
        // A kernel without huge pages refuses both kinds of advice. Then all memory is in ordinary
        // pages, as `Ordinary` wants.
        if backing == Backing::Huge {
            advised.context("cannot ask for huge pages")?;
        }
        Ok(mapping)
    }

    /// The first `pages` pages of `file`, read-only and all mapped in at once.
    pub(crate) fn of_file(file: &File, pages: u32) -> Result<Self> {
        let len = pages as usize * PAGE;
        let flags = MapFlags::SHARED | MapFlags::POPULATE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let address = unsafe { mmap(ptr::null_mut(), len, ProtFlags::READ, flags, file, 0) };
        Ok(Self::own(address.with_context(|| format!("cannot map {len} bytes of the file"))?.cast(), len))
    }

    /// The first `pages` pages of `file`, to be read and written as `advice` says. Nothing is
    /// mapped in yet.
    pub(crate) fn of_writable_file(file: &File, pages: u32, advice: Advice) -> Result<Self> {
        let len = pages as usize * PAGE;
        let access = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses touches no other memory.
        let address = unsafe { mmap(ptr::null_mut(), len, access, MapFlags::SHARED, file, 0) };
        let mapping = Self::own(address.with_context(|| format!("cannot map {len} bytes of the file"))?.cast(), len);
        // SAFETY: the range is ours (M1), and the advice doesn't change what the bytes are.
        unsafe { madvise(mapping.address.as_ptr().cast(), len, advice) }.context("cannot advise")?;
        Ok(mapping)
    }

    /// Has the kernel write to the file what was stored to its mapping, and waits for this.
    pub(crate) fn sync(&self) -> Result<()> {
        // SAFETY: the range is ours (M1), and its bytes stay what they are.
        unsafe { msync(self.address.as_ptr().cast(), self.len, MsyncFlags::SYNC) }.context("cannot sync the mapping")
    }

    fn own(address: *mut u8, len: usize) -> Self {
        Self { address: NonNull::new(address).expect("mmap returns no null pointer"), len }
    }

    /// Where page `page` starts.
    #[inline(always)]
    pub(crate) fn page(&self, page: u32) -> *mut u8 {
        let offset = page as usize * PAGE;
        debug_assert!(offset < self.len, "page {page} is outside of the mapping");
        self.address.as_ptr().wrapping_add(offset)
    }

    /// Gives the memory of `pages` back; they read as zeros from then on.
    ///
    /// # Safety
    /// The mapping is anonymous, and no reference to the bytes of the pages exists.
    pub(crate) unsafe fn discard(&self, pages: &[u32]) -> Result<()> {
        // SAFETY: the caller's, handed on.
        if !pages.is_empty() && !unsafe { self.discard_at_once(pages) } {
            for &page in pages {
                // SAFETY: the page is ours (M1), and the caller answers for its users.
                unsafe { madvise(self.page(page).cast(), PAGE, Advice::LinuxDontNeed) }
                    .context("cannot drop a page")?;
            }
        }
        Ok(())
    }

    /// [`discard`](Self::discard) in one system call, or false: before Linux 6.13 there is none.
    ///
    /// # Safety
    /// As for `discard`.
    unsafe fn discard_at_once(&self, pages: &[u32]) -> bool {
        static OWN: OnceLock<Option<OwnedFd>> = OnceLock::new();
        let Some(own) = OWN.get_or_init(|| pidfd_open(getpid(), PidfdFlags::empty()).ok()) else { return false };
        let range = |&page: &u32| libc::iovec { iov_base: self.page(page).cast(), iov_len: PAGE };
        let ranges: Vec<libc::iovec> = pages.iter().map(range).collect();
        // SAFETY: the ranges are ours (M1), and the caller answers for their users.
        let dropped = unsafe {
            let (call, flags) = (libc::SYS_process_madvise, 0);
            libc::syscall(call, own.as_raw_fd(), ranges.as_ptr(), ranges.len(), libc::MADV_DONTNEED, flags)
        };
        usize::try_from(dropped).is_ok_and(|dropped| dropped == pages.len() * PAGE)
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: the range is ours (M1), and nothing that was borrowed from it is left.
        let unmapped = unsafe { munmap(self.address.as_ptr().cast(), self.len) };
        debug_assert!(unmapped.is_ok());
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn discarded_pages_are_zero_and_others_stay() {
        let mapping = Mapping::anonymous(8, Backing::Ordinary).unwrap();
        let first = |page| mapping.page(page);
        // SAFETY: all pages are inside of the mapping, and this thread alone uses it.
        let left: Vec<u8> = unsafe {
            (0..8).for_each(|page| first(page).write(7));
            mapping.discard(&[1, 4, 5]).unwrap();
            (0..8).map(|page| first(page).read()).collect()
        };
        assert_eq!(left, [7, 0, 7, 7, 0, 0, 7, 7]);
    }
}
