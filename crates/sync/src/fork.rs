//! Whether this process is a forked child of the one that made something.

use core::ptr::{self, NonNull};

/// A mark that a forked child doesn't inherit: a page of the system's that is zeros there.
///
/// A plain word, not one of [`atomic`](crate::atomic)'s: it is written before anybody else has it, and then only read.
#[derive(Debug)]
pub struct ForkMark {
    page: NonNull<u8>,
    len: usize,
}

// SAFETY: the page is the mark's own, and only read once it is made.
unsafe impl Send for ForkMark {}
// SAFETY: as above.
unsafe impl Sync for ForkMark {}

impl ForkMark {
    /// The mark of this process.
    ///
    /// # Errors
    /// The system's, if it has no page to give, or doesn't know how to wipe one (before Linux 4.14).
    pub fn new() -> std::io::Result<Self> {
        if crate::memory::is_refused() {
            return Err(std::io::Error::from_raw_os_error(libc::ENOMEM));
        }
        // SAFETY: no pointer is involved.
        let len = usize::try_from(unsafe { libc::sysconf(libc::_SC_PAGESIZE) }).unwrap_or(4096);
        let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
        // SAFETY: a new mapping, which nobody else knows.
        let page = unsafe { libc::mmap(ptr::null_mut(), len, libc::PROT_READ | libc::PROT_WRITE, flags, -1, 0) };
        let page = NonNull::new(page.cast()).filter(|_| page != libc::MAP_FAILED);
        let mark = Self { page: page.ok_or_else(std::io::Error::last_os_error)?, len };
        // SAFETY: the whole mapping made above.
        if unsafe { libc::madvise(mark.page.as_ptr().cast(), len, libc::MADV_WIPEONFORK) } != 0 {
            return Err(std::io::Error::last_os_error());
        }
        // SAFETY: mapped, writable, and nobody else's yet.
        unsafe { mark.page.as_ptr().write(1) };
        Ok(mark)
    }

    /// Whether this process was forked off the one that made the mark.
    #[inline]
    #[must_use]
    pub fn is_child(&self) -> bool {
        // SAFETY: mapped as long as `self` lives. Volatile, because it is the kernel that changes it.
        unsafe { self.page.as_ptr().read_volatile() == 0 }
    }
}

impl Drop for ForkMark {
    fn drop(&mut self) {
        // SAFETY: the mapping made in `new`, which is gone with `self`. It is mapped in a child too.
        unsafe { libc::munmap(self.page.as_ptr().cast(), self.len) };
    }
}
