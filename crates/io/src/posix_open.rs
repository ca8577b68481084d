//! Opening and making files of the machine.
//!
//! A file that is made has its name in a directory, and the name survives a power cut only when the directory is
//! synced too. So the directory is opened first, and the file made in that one: whatever is renamed meanwhile, it is
//! the right directory.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use crate::{Access, Identity};

/// Symbolic links followed to where a file is to be made: as many as the kernel follows.
const LINKS_MAX: usize = 40;

/// A file just opened.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) kind: Kind,
    pub(crate) identity: Identity,
    /// The directory in which the file was made, if it was.
    pub(crate) made_in: Option<OwnedFd>,
}

/// What can be read and written at any offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
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

/// [`Backend::open`](crate::Backend::open) for files of the machine.
pub(crate) fn open(path: &Path, access: Access) -> Result<Opened, Errno> {
    // Asked before the file is opened: opening a pipe waits for its writer, and opening some devices has effects.
    let (fd, made_in) = match fs::stat(path) {
        Ok(_) if access == Access::CreateNew => return Err(Errno::EXIST),
        Ok(stat) => {
            Kind::of(&stat)?;
            (open_existing(path, access)?, None)
        }
        Err(Errno::NOENT) if access.makes() => make(path, access)?,
        Err(error) => return Err(error),
    };
    // And again, because another file may have taken the name.
    let stat = fs::fstat(&fd)?;
    let kind = Kind::of(&stat)?;
    Ok(Opened { fd, kind, identity: kind.identity(&stat), made_in })
}

/// A second descriptor of the file `identity` that was opened as `path`, with flags of its own.
///
/// # Errors
/// `ESTALE` if another file has taken the name.
pub(crate) fn open_again(path: &Path, identity: Identity) -> Result<OwnedFd, Errno> {
    let fd = open_existing(path, Access::Write)?;
    let stat = fs::fstat(&fd)?;
    if Kind::of(&stat)?.identity(&stat) == identity { Ok(fd) } else { Err(Errno::STALE) }
}

fn open_existing(path: &Path, access: Access) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| fs::openat(CWD, path, flags(access), Mode::empty()))
}

/// Makes the file; says in which directory.
fn make(path: &Path, access: Access) -> Result<(OwnedFd, Option<OwnedFd>), Errno> {
    // A link that leads nowhere says where the file is to be made, but stands in the way of a new one.
    let path = if access == Access::Create { follow_links(path)? } else { path.to_owned() };
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Errno::ISDIR);
    }
    let name = path.file_name().ok_or(Errno::NOENT)?;
    let parent = match path.parent() {
        Some(parent) if parent != Path::new("") => parent,
        _ => Path::new("."),
    };
    let search = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let directory = retry_on_intr(|| fs::openat(CWD, parent, search, Mode::empty()))?;
    let new = if access == Access::CreateNew { OFlags::EXCL } else { OFlags::empty() };
    let flags = flags(access) | OFlags::CREATE | new;
    let fd = retry_on_intr(|| fs::openat(&directory, name, flags, Mode::from_raw_mode(0o666)))?;
    Ok((fd, Some(directory)))
}

fn follow_links(path: &Path) -> Result<PathBuf, Errno> {
    let mut path = path.to_owned();
    for _ in 0..LINKS_MAX {
        match std::fs::read_link(&path) {
            Ok(target) => path = path.parent().unwrap_or(Path::new("")).join(target),
            Err(_) => return Ok(path),
        }
    }
    Err(Errno::LOOP)
}

fn flags(access: Access) -> OFlags {
    let direction = if access.writes() { OFlags::RDWR } else { OFlags::RDONLY };
    direction | OFlags::CLOEXEC | OFlags::NOCTTY
}
