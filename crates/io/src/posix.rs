//! Reads and writes the machine's files and block devices in the caller's thread.
//!
//! Pagefold is the cache, so the kernel's page cache should hold no second copy. How a file is read
//! and written:
//!
//! | file | route |
//! |---|---|
//! | its file system or disk supports `O_DIRECT` for aligned pages of 4 KiB | direct: no copy in the kernel |
//! | it doesn't | buffered, without readahead, and dropped behind ([`DropBehind`]); written pages are dropped when synced |
//! | on tmpfs, ramfs, hugetlbfs | buffered: the kernel's pages *are* the file, and there is nothing to drop |
//!
//! Requests go through a ring only on file systems where the kernel starts a read or write without
//! waiting, and knows a file's length without asking a server (`prompt`). On other file systems
//! (FUSE, NFS, overlays), the kernel might block the thread that submits the requests.
//!
//! Some file systems accept the flag `O_DIRECT`, but later reject the direct read or write with
//! `EINVAL`. A disk does the same if a buffer isn't aligned as the disk requires. After such a
//! rejection, all reads and writes of the file are buffered, if the file was opened with
//! [`DirectIo::Auto`].
//!
//! While a file is being switched from direct to buffered I/O, a thread may make a buffered read or
//! write without recording the range for dropping. The only effect is that the kernel keeps that
//! range in its cache.
//!
//! Direct writes consist of whole pages. The part page at a file's end is written buffered. The
//! alternative is to write a whole page and then truncate the file. But until the truncation, the
//! file would have a wrong length. The file has only one descriptor, so the flag `O_DIRECT` is
//! cleared on that descriptor during the buffered write ([`route`]).
//!
//! Other reads and writes of the file that begin while the flag is cleared also go through the
//! kernel's page cache, and leave copies of their pages there. Such a copy does no harm: before
//! each direct read or write of a page, the kernel writes back its copy of the page, and before a
//! direct write it also drops the copy. A sync ([`Durability`]) covers both kinds of writes.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, Advice, AtFlags, FallocateFlags, FsWord, OFlags, SeekFrom, StatxFlags};
use rustix::io::Errno;
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::Mutex;
use sync::{Arc, SharedBytes};

use crate::directories::Directories;
use crate::drop_behind::{DropBehind, Written};
use crate::durability::Durability;
use crate::posix_lock::FileLock;
use crate::posix_open::{self, Kind, Opened};
use crate::retry::retry_interrupted;
use crate::system_calls::{Limit, preadv, pwritev, soft_limit};
use crate::{Access, Backend, BackingFile, Direction, Fingerprint, Identity, IoError};

/// Direct I/O is used if it supports offsets, lengths and addresses that are multiples of this: the
/// smallest page size.
pub(super) const ALIGNMENT: u32 = 4096;

/// File systems whose files consist of the kernel's pages: tmpfs, ramfs, hugetlbfs (`statfs`'s
/// `f_type`).
const MEMORY_FILE_SYSTEMS: [FsWord; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// File systems that start a read or write without waiting if requested, and whose `fstat` accesses
/// no device: ext4, XFS, Btrfs, F2FS.
const PROMPT_FILE_SYSTEMS: [FsWord; 4] = [0xef53, 0x5846_5342, 0x9123_683e, 0xf2f5_2010];

/// File systems that read the caller's memory more than once during a direct write, to compute a
/// checksum or to write to several disks: Btrfs, ZFS, bcachefs. If the bytes change between these
/// reads, ZFS rejects the write, and Btrfs stores a checksum that doesn't match.
const CHECKING_FILE_SYSTEMS: [FsWord; 3] = [0x9123_683e, 0x2fc1_2fc1, 0xca45_1a4e];

/// File systems on which no two files have the same device and inode number.
const NUMBERING_FILE_SYSTEMS: [FsWord; 4] = PROMPT_FILE_SYSTEMS;

/// Whether reads and writes of files bypass the kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Direct where the file system supports it.
    #[default]
    Auto,
    /// Never direct: buffered. Pagefold makes the kernel drop the pages from its page cache
    /// afterwards.
    Never,
    /// Always direct; if that isn't possible, opening fails with `EINVAL`. The part page at the
    /// file's end is still written buffered.
    Always,
}

/// The backend of the machine's file systems.
#[derive(Clone, Debug, Default)]
pub struct Posix {
    direct: DirectIo,
    directories: Arc<Directories>,
}

impl Posix {
    /// Creates the backend. Files are read and written as `direct` specifies.
    #[must_use]
    pub fn new(direct: DirectIo) -> Self {
        Self { direct, directories: Arc::default() }
    }

    /// Does what [`Backend::open`] does, and returns the concrete type.
    pub(crate) fn open_file(&self, path: &Path, access: Access) -> Result<PosixFile, IoError> {
        let Opened { fd, kind, identity, name, file_system, is_open_to_others } = posix_open::open(path, access)?;
        // Only the file's owner may set this flag; other users read without it.
        let _ = add_flags(fd.as_fd(), OFlags::NOATIME);
        let is_one_of = |some: &[FsWord]| file_system.is_some_and(|it| some.contains(&it));
        let shares_directories = is_one_of(&PROMPT_FILE_SYSTEMS) || is_one_of(&MEMORY_FILE_SYSTEMS);
        let name = name.map(|place| self.directories.name(place, shares_directories));
        let file = PosixFile {
            identity,
            kind,
            #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
            prompt: kind == Kind::BlockDevice || is_one_of(&PROMPT_FILE_SYSTEMS),
            is_numbered: kind == Kind::BlockDevice || is_one_of(&NUMBERING_FILE_SYSTEMS),
            writable: access.writes(),
            fall_back: self.direct == DirectIo::Auto,
            in_memory: is_one_of(&MEMORY_FILE_SYSTEMS),
            is_checked: is_one_of(&CHECKING_FILE_SYSTEMS),
            direct: AtomicBool::new(false),
            drop_behind: DropBehind::default(),
            written: Written::default(),
            durability: Durability::new(name),
            part_page_writes: Mutex::default(),
            is_open_to_others,
            lock: FileLock::default(),
            fd,
        };
        if access == Access::Alone {
            file.lock.take(&file.fd)?;
        }
        file.choose_route(self.direct)?;
        Ok(file)
    }
}

impl Backend for Posix {
    fn name(&self) -> &'static str {
        "posix"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        Ok(Box::new(self.open_file(path, access)?))
    }
}

/// An open file of the machine.
#[derive(Debug)]
pub(crate) struct PosixFile {
    pub(super) fd: OwnedFd,
    pub(super) identity: Identity,
    kind: Kind,
    writable: bool,
    /// The kernel's pages are the file.
    pub(super) in_memory: bool,
    /// The file system reads the bytes of a direct write more than once.
    is_checked: bool,
    /// The kernel never keeps the submitter of a request waiting.
    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    prompt: bool,
    /// No other file has its identity.
    is_numbered: bool,
    /// If a direct read or write is rejected, it may be retried buffered.
    pub(super) fall_back: bool,
    /// Reads and writes are direct. Changes only from true to false, after the descriptor's flag
    /// was cleared.
    pub(super) direct: AtomicBool,
    /// The number of part-page writes in progress. While it isn't 0, the descriptor's flag is
    /// cleared. The flag changes only under this lock.
    pub(super) part_page_writes: Mutex<u32>,
    pub(super) drop_behind: DropBehind,
    pub(super) written: Written,
    durability: Durability,
    is_open_to_others: bool,
    lock: FileLock,
}

impl PosixFile {
    fn choose_route(&self, wanted: DirectIo) -> Result<(), Errno> {
        if wanted != DirectIo::Never {
            match self.start_direct() {
                Ok(()) => return Ok(()),
                Err(error) if wanted == DirectIo::Always => return Err(error),
                Err(_) if self.in_memory => {}
                Err(refusal) => {
                    tracing::info!(
                        file = ?self.identity, %refusal,
                        "no direct I/O; going through the kernel's page cache"
                    );
                }
            }
        }
        self.start_buffered();
        Ok(())
    }

    fn start_direct(&self) -> Result<(), Errno> {
        if self.in_memory || !self.alignment_suits() {
            return Err(Errno::INVAL);
        }
        add_flags(self.fd.as_fd(), OFlags::DIRECT)?;
        // Relaxed: no other thread has the file yet.
        self.direct.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// Returns whether the kernel supports direct I/O on this file at our alignment. If the kernel
    /// doesn't report that (before Linux 6.1), returns true for a regular file, so that direct I/O
    /// is tried. For a device, the size of its blocks decides.
    fn alignment_suits(&self) -> bool {
        match retry_interrupted(|| fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN)) {
            Ok(statx) if statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                suits(statx.stx_dio_mem_align) && suits(statx.stx_dio_offset_align)
            }
            _ => self.kind == Kind::Regular || fs::ioctl_blksszget(&self.fd).is_ok_and(suits),
        }
    }

    pub(super) fn start_buffered(&self) {
        if !self.in_memory {
            // Advice: if the kernel ignores it, reads are only slower.
            let _ = fs::fadvise(&self.fd, 0, None, Advice::Random);
        }
    }

    /// Returns whether the kernel's pages are the file.
    #[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
    pub(crate) fn is_in_memory(&self) -> bool {
        self.in_memory
    }

    /// Returns whether the kernel accepts requests and reports the length without waiting.
    #[cfg(all(feature = "uring", not(any(pagefold_loom, pagefold_manycore))))]
    pub(crate) fn is_prompt(&self) -> bool {
        self.prompt
    }

    pub(crate) fn check_writable(&self) -> Result<(), IoError> {
        if self.writable { Ok(()) } else { Err(IoError::BAD_FILE) }
    }

    /// Checks that this process may write a byte at `offset`.
    ///
    /// The kernel answers a write that begins at or beyond `RLIMIT_FSIZE` with `EFBIG` and with the
    /// signal SIGXFSZ, which kills a process that doesn't handle it. So a write of this kind must
    /// never reach the kernel. A write that begins below the limit and crosses it is harmless: the
    /// kernel writes only the bytes below the limit, and sends no signal.
    pub(crate) fn check_limit(&self, offset: u64) -> Result<(), IoError> {
        let is_beyond = self.kind == Kind::Regular && soft_limit(Limit::FileSize).is_some_and(|limit| offset >= limit);
        if is_beyond { Err(IoError::FILE_TOO_LARGE) } else { Ok(()) }
    }

    /// Makes the kernel drop its cached copy of the range. The kernel may keep pages that are dirty
    /// or mapped.
    pub(crate) fn forget(&self, range: Range<u64>) {
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let _ = fs::fadvise(&self.fd, range.start, Some(len), Advice::DontNeed);
        }
    }
}

impl BackingFile for PosixFile {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn fingerprint(&self) -> Fingerprint {
        if self.is_numbered { Fingerprint::default() } else { Fingerprint::of(self.fd.as_fd()) }
    }

    fn is_open_to_others(&self) -> bool {
        self.is_open_to_others
    }

    fn room(&self) -> Option<u64> {
        if self.kind == Kind::BlockDevice {
            return self.len().ok();
        }
        let (file, system) = (fs::fstat(&self.fd).ok()?, fs::fstatvfs(&self.fd).ok()?);
        if system.f_blocks == 0 {
            return None; // The file system doesn't count its blocks.
        }
        /// The unit of `st_blocks`.
        const BLOCK: u64 = 512;
        Some(system.f_bavail.saturating_mul(system.f_frsize).saturating_add(file.st_blocks.cast_unsigned() * BLOCK))
    }

    fn reads_by_copy(&self) -> bool {
        self.in_memory
    }

    fn needs_stable_bytes(&self) -> bool {
        // Relaxed: as in `route`. A buffered write is copied into the kernel, so its bytes may
        // change.
        self.is_checked && self.direct.load(Ordering::Relaxed)
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(match self.kind {
            Kind::Regular => u64::try_from(retry_interrupted(|| fs::fstat(&self.fd))?.st_size).unwrap_or(0),
            // This moves the file's position, which nothing uses.
            Kind::BlockDevice => retry_interrupted(|| fs::seek(&self.fd, SeekFrom::End(0)))?,
        })
    }

    #[cfg(not(any(pagefold_loom, pagefold_manycore)))]
    fn tells_len_at_once(&self) -> bool {
        self.prompt || self.in_memory
    }

    fn read(&self, offset: u64, into: &[SharedBytes<'_>]) -> Result<usize, IoError> {
        let range = range_of(offset, into.iter().map(SharedBytes::len).sum())?;
        loop {
            let way = self.way(Direction::Read, &range);
            let answer = preadv(self.fd.as_fd(), offset, into);
            if let Some(result) = self.answered(&way, answer, |range| self.forget(range)) {
                return result;
            }
        }
    }

    fn write(&self, offset: u64, from: &[SharedBytes<'_>], len: usize) -> Result<usize, IoError> {
        self.check_writable()?;
        let range = range_of(offset, len)?;
        self.check_limit(offset)?;
        loop {
            let way = self.way(Direction::Write, &range);
            let buffered = if way.is_part_page() { Some(self.buffered()?) } else { None };
            let answer = pwritev(self.fd.as_fd(), offset, from, 0..way.len());
            drop(buffered);
            if let Some(result) = self.answered(&way, answer, |range| self.forget(range)) {
                return result.and_then(|done| self.write_rest_of_page(offset, from, done..way.len()));
            }
        }
    }

    fn sync(&self) -> Result<(), IoError> {
        self.check_writable()?;
        // Taken before the sync: ranges written during this sync are left to the next.
        let written = self.written.take();
        let synced = self.durability.sync(self.fd.as_fd());
        written.into_iter().for_each(|range| match synced {
            Ok(()) => self.forget(range),
            Err(_) => self.written.note(range), // Left to the next sync that succeeds.
        });
        Ok(synced?)
    }

    fn set_len(&self, len: u64) -> Result<(), IoError> {
        self.check_writable()?;
        range_of(len, 0)?;
        self.check_new_len(len)?;
        Ok(retry_interrupted(|| fs::ftruncate(&self.fd, len))?)
    }

    fn lock(&self) -> Result<(), IoError> {
        Ok(self.lock.take(&self.fd)?)
    }

    fn unlock(&self) {
        self.lock.release(&self.fd);
    }

    fn lengthen(&self, len: u64) -> Result<(), IoError> {
        self.check_writable()?;
        range_of(len, 0)?;
        let Some(last) = len.checked_sub(1) else { return Ok(()) };
        self.check_new_len(len)?;
        // `ftruncate` would cut off bytes that another process appends after the check of the
        // length.
        match retry_interrupted(|| fs::fallocate(&self.fd, FallocateFlags::empty(), last, 1)) {
            Ok(()) => Ok(()),
            // The file system doesn't support `fallocate`, or is full. Setting a length needs no
            // space.
            Err(_) if self.len()? < len => self.set_len(len),
            Err(_) => Ok(()),
        }
    }
}

impl Drop for PosixFile {
    fn drop(&mut self) {
        self.drop_behind.finish(|range| self.forget(range));
        self.lock.release(&self.fd);
    }
}

impl PosixFile {
    /// If an attempt wrote only `rest.start` bytes, and so ended within a page, writes the rest of
    /// that page, up to `rest.end`. An attempt can end within a page at a limit on the file's
    /// length, or if the disk is full and has blocks smaller than a page.
    ///
    /// Without this function, the caller's next attempt would start at the beginning of the page,
    /// and would be short again without an error. The kernel reports the error only to a write that
    /// starts at the very byte where the attempt ended.
    fn write_rest_of_page(&self, offset: u64, from: &[SharedBytes<'_>], rest: Range<usize>) -> Result<usize, IoError> {
        let end = rest.start.next_multiple_of(ALIGNMENT as usize).min(rest.end);
        if rest.start >= end {
            return Ok(rest.start);
        }
        let start = offset + rest.start as u64;
        self.check_limit(start)?;
        // Relaxed: as in `route`.
        let buffered = if self.direct.load(Ordering::Relaxed) { Some(self.buffered()?) } else { None };
        let answer = pwritev(self.fd.as_fd(), start, from, rest.start..end);
        drop(buffered);
        if !self.in_memory {
            self.written.note(start..offset + end as u64);
        }
        Ok(rest.start + answer?)
    }

    /// Checks that the file may get the length `len`. A file must not grow beyond the limit
    /// ([`check_limit`](Self::check_limit)). A file that has at least `len` bytes doesn't grow, so
    /// `len` may then be beyond the limit.
    fn check_new_len(&self, len: u64) -> Result<(), IoError> {
        match self.check_limit(len.saturating_sub(1)) {
            Err(error) if self.len()? < len => Err(error),
            _ => Ok(()),
        }
    }
}

/// Returns whether our alignment is sufficient for direct I/O that requires `alignment`; 0 means
/// that direct I/O isn't supported.
fn suits(alignment: u32) -> bool {
    (1..=ALIGNMENT).contains(&alignment)
}

/// Returns the range, or `EINVAL` if no file can have the range. So if the kernel later reports
/// `EINVAL`, the reason can only be direct I/O.
pub(crate) fn range_of(offset: u64, len: usize) -> Result<Range<u64>, IoError> {
    let end = offset.checked_add(len as u64).filter(|&end| i64::try_from(end).is_ok());
    Ok(offset..end.ok_or(IoError::INVALID)?)
}

fn add_flags(fd: BorrowedFd<'_>, flags: OFlags) -> Result<(), Errno> {
    fs::fcntl_setfl(fd, fs::fcntl_getfl(fd)? | flags)
}

#[path = "posix_route.rs"]
pub(crate) mod route;

#[cfg(test)]
#[path = "posix_tests.rs"]
mod tests;

#[cfg(test)]
#[path = "posix_write_tests.rs"]
mod write_tests;
