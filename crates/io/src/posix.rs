//! The machine's files and block devices, read in the caller's thread.
//!
//! Pagefold is the cache, so the kernel's page cache should hold no second copy. How a file is read:
//!
//! | file | route |
//! |---|---|
//! | its file system or disk takes `O_DIRECT` for aligned reads of 4 KiB | direct: no copy in the kernel |
//! | it doesn't | buffered, without read-ahead, and dropped behind ([`DropBehind`]) |
//! | on tmpfs, ramfs, hugetlbfs | buffered: the kernel's pages *are* the file, and there is nothing to drop |
//!
//! Some file systems accept `O_DIRECT` and then refuse the read with `EINVAL`, as does a buffer that isn't aligned as
//! the disk wants it. The file then becomes a buffered one for good. A reader that was under way may find itself
//! reading buffered without noting the range: one range that the kernel keeps, nothing worse.

use std::num::NonZeroU64;
use std::ops::Range;
use std::os::fd::{AsFd, BorrowedFd, OwnedFd};
use std::path::Path;

use rustix::fs::{self, Advice, AtFlags, CWD, FileType, FsWord, Mode, OFlags, SeekFrom, Stat, StatxFlags};
use rustix::io::{Errno, retry_on_intr};
use sync::SharedBytes;
use sync::atomic::{AtomicBool, Ordering};

use crate::drop_behind::DropBehind;
use crate::pread::pread;
use crate::{Access, Backend, BackingFile, Identity, IoError};

/// Direct I/O is used where this suits as offset, length and address: the smallest page size.
const ALIGNMENT: u32 = 4096;

/// File systems whose files are the kernel's pages: tmpfs, ramfs, hugetlbfs (`statfs`'s `f_type`).
const MEMORY_FILE_SYSTEMS: [FsWord; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Whether files are read past the kernel's page cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirectIo {
    /// Where the file system takes it.
    #[default]
    Auto,
    /// Not at all: buffered, and dropped behind.
    Never,
    /// Or the file can't be opened: `EINVAL`.
    Always,
}

/// The backend of the machine's file systems.
#[derive(Clone, Copy, Debug, Default)]
pub struct Posix {
    direct: DirectIo,
}

impl Posix {
    /// Files read as `direct` says.
    #[must_use]
    pub fn new(direct: DirectIo) -> Self {
        Self { direct }
    }

    /// [`Backend::open`], with the type.
    fn open_file(self, path: &Path) -> Result<PosixFile, IoError> {
        // Asked before the file is opened: opening a pipe waits for its writer, and opening some devices has effects.
        Kind::of(&fs::stat(path)?)?;
        let flags = OFlags::RDONLY | OFlags::CLOEXEC | OFlags::NOCTTY;
        let fd = retry_on_intr(|| fs::openat(CWD, path, flags, Mode::empty()))?;
        // And again, because another file may have taken the name.
        let stat = fs::fstat(&fd)?;
        let kind = Kind::of(&stat)?;
        // Only the file's owner may leave its access time alone; others do without.
        let _ = add_flags(fd.as_fd(), OFlags::NOATIME);
        let file = PosixFile {
            identity: kind.identity(&stat),
            kind,
            fall_back: self.direct == DirectIo::Auto,
            in_memory: kind == Kind::Regular && MEMORY_FILE_SYSTEMS.contains(&fs::fstatfs(&fd)?.f_type),
            direct: AtomicBool::new(false),
            drop_behind: DropBehind::default(),
            fd,
        };
        file.choose_route(self.direct)?;
        Ok(file)
    }
}

impl Backend for Posix {
    fn name(&self) -> &'static str {
        "posix"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        if access.writes() {
            return Err(IoError::INVALID); // Until it is built.
        }
        Ok(Box::new(self.open_file(path)?))
    }
}

/// What can be read at any offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Kind {
    Regular,
    BlockDevice,
}

impl Kind {
    fn of(stat: &Stat) -> Result<Self, Errno> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self::Regular),
            FileType::BlockDevice => Ok(Self::BlockDevice),
            FileType::Directory => Err(Errno::ISDIR),
            _ => Err(Errno::INVAL),
        }
    }

    /// A block device is the same one under each of its names, so its own number tells. No file has the inode 0.
    fn identity(self, stat: &Stat) -> Identity {
        match self {
            Self::Regular => Identity { device: stat.st_dev, inode: stat.st_ino },
            Self::BlockDevice => Identity { device: stat.st_rdev, inode: 0 },
        }
    }
}

/// An open file of the machine.
#[derive(Debug)]
struct PosixFile {
    fd: OwnedFd,
    identity: Identity,
    kind: Kind,
    /// The kernel's pages are the file.
    in_memory: bool,
    /// A direct read that is refused may be done buffered.
    fall_back: bool,
    /// Reads are direct. Only ever goes from true to false; the file descriptor's flag goes first.
    direct: AtomicBool,
    drop_behind: DropBehind,
}

impl PosixFile {
    fn choose_route(&self, wanted: DirectIo) -> Result<(), Errno> {
        if wanted != DirectIo::Never {
            match self.start_direct() {
                Ok(()) => return Ok(()),
                Err(error) if wanted == DirectIo::Always => return Err(error),
                Err(_) => {}
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
        // Relaxed: nobody else has the file yet.
        self.direct.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// What the kernel says about direct reads of this file; if it can't say (before Linux 6.1), they are tried.
    fn alignment_suits(&self) -> bool {
        match fs::statx(&self.fd, c"", AtFlags::EMPTY_PATH, StatxFlags::DIOALIGN) {
            Ok(statx) if statx.stx_mask & StatxFlags::DIOALIGN.bits() != 0 => {
                suits(statx.stx_dio_mem_align) && suits(statx.stx_dio_offset_align)
            }
            _ => self.kind == Kind::Regular || fs::ioctl_blksszget(&self.fd).is_ok_and(suits),
        }
    }

    fn start_buffered(&self) {
        if !self.in_memory {
            // Advice: where it isn't taken, reads are only slower.
            let _ = fs::fadvise(&self.fd, 0, None, Advice::Random);
        }
    }

    /// Turns a direct file into a buffered one.
    #[cold]
    fn leave_direct(&self) -> Result<(), Errno> {
        let flags = fs::fcntl_getfl(&self.fd)?;
        fs::fcntl_setfl(&self.fd, flags - OFlags::DIRECT)?;
        self.start_buffered();
        // Relaxed: the kernel has the flag that matters; who still sees true doesn't note a range (module head).
        if self.direct.swap(false, Ordering::Relaxed) {
            tracing::warn!(file = ?self.identity, "direct read refused; reading through the kernel's page cache");
        }
        Ok(())
    }

    fn read_buffered(&self, range: Range<u64>, into: SharedBytes<'_>) -> Result<usize, IoError> {
        let result = pread(self.fd.as_fd(), range.start, into);
        if !self.in_memory {
            self.drop_behind.note(range, |range| self.forget(range));
        }
        result
    }

    /// Has the kernel drop its copy. Pages that are dirty or mapped stay; that is the kernel's business.
    fn forget(&self, range: Range<u64>) {
        if let Some(len) = NonZeroU64::new(range.end.saturating_sub(range.start)) {
            let _ = fs::fadvise(&self.fd, range.start, Some(len), Advice::DontNeed);
        }
    }
}

impl BackingFile for PosixFile {
    fn identity(&self) -> Identity {
        self.identity
    }

    fn reads_by_copy(&self) -> bool {
        // Relaxed: a hint (`leave_direct`).
        !self.direct.load(Ordering::Relaxed)
    }

    fn len(&self) -> Result<u64, IoError> {
        Ok(match self.kind {
            Kind::Regular => u64::try_from(fs::fstat(&self.fd)?.st_size).unwrap_or(0),
            // The position that this moves is one that nobody uses.
            Kind::BlockDevice => fs::seek(&self.fd, SeekFrom::End(0))?,
        })
    }

    fn read(&self, offset: u64, into: SharedBytes<'_>) -> Result<usize, IoError> {
        // Refused here, so that below `EINVAL` is about direct I/O.
        let end = offset.checked_add(into.len() as u64).filter(|&end| i64::try_from(end).is_ok());
        let range = offset..end.ok_or(IoError::INVALID)?;
        // Relaxed: a hint (`leave_direct`).
        if !self.direct.load(Ordering::Relaxed) {
            return self.read_buffered(range, into);
        }
        match pread(self.fd.as_fd(), offset, into) {
            Err(IoError::INVALID) if self.fall_back => {
                self.leave_direct()?;
                self.read_buffered(range, into)
            }
            result => result,
        }
    }
}

impl Drop for PosixFile {
    fn drop(&mut self) {
        self.drop_behind.finish(|range| self.forget(range));
    }
}

/// Whether pages are aligned well enough for direct reads that want this; 0 says that there are none.
fn suits(alignment: u32) -> bool {
    (1..=ALIGNMENT).contains(&alignment)
}

fn add_flags(fd: BorrowedFd<'_>, flags: OFlags) -> Result<(), Errno> {
    fs::fcntl_setfl(fd, fs::fcntl_getfl(fd)? | flags)
}

#[cfg(test)]
#[path = "posix_tests.rs"]
mod tests;
