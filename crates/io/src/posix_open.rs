//! Opening and making files of the machine.
//!
//! A file has its name in a directory, and the name survives a power cut only when the directory was synced after the file was
//! made. A file that is there already may have been made a moment ago: by an open that failed after that, or by another process.
//! So each file that is opened for writing comes with its directory, for its first sync. A file that is made is made in that
//! directory: whatever is renamed meanwhile, it is the right one. Of a file that is there, the directory is looked for by the
//! file's path, and belongs to it if the file is found in it.
//!
//! A file without a name never had one, where the file system can make such files (`O_TMPFILE`). Where it can't, the name is
//! taken away as soon as the file is made, and the descriptor that made the file is the one that is used: between the two,
//! another process may put a file of its own in that name's place. The file is never opened by name again.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, Mode, OFlags, Stat};
use rustix::io::{Errno, retry_on_intr};

use sync::random::mix;

use crate::{Access, Identity};

/// Symbolic links followed to where a file is to be made: as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Names that are tried for a file that is to have none.
const NAMES_MAX: u64 = 64;

/// A file just opened.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) kind: Kind,
    pub(crate) identity: Identity,
    /// The directory that the file has its name in, if it is a regular file opened for writing. None also if the file was there, and
    /// the directory may not be read, or has the name no longer.
    pub(crate) directory: Option<OwnedFd>,
    /// Users other than its owner may read or write it.
    pub(crate) is_open_to_others: bool,
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
    let (fd, made_in) = match retry_on_intr(|| fs::stat(path)) {
        _ if access == Access::Unnamed => (make_unnamed(path)?, None),
        Ok(_) if access == Access::CreateNew => return Err(Errno::EXIST),
        Ok(stat) => {
            let kind = Kind::of(&stat)?;
            let alone = access == Access::Alone && kind == Kind::BlockDevice;
            // Without `O_CREAT`, this is for devices alone: no file system on it, no other such opening.
            let exclusive = if alone { OFlags::EXCL } else { OFlags::empty() };
            (open_existing(path, flags(access) | exclusive)?, None)
        }
        Err(Errno::NOENT) if access.makes() => make(path, access)?,
        Err(error) => return Err(error),
    };
    // And again, because another file may have taken the name.
    let stat = retry_on_intr(|| fs::fstat(&fd))?;
    let kind = Kind::of(&stat)?;
    let has_name = kind == Kind::Regular && matches!(access, Access::Write | Access::Create | Access::CreateNew);
    let directory = made_in.or_else(|| if has_name { directory_of(path, &stat) } else { None });
    let is_open_to_others = Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO);
    Ok(Opened { fd, kind, identity: kind.identity(&stat), directory, is_open_to_others })
}

/// The directory in which the file has its name.
fn directory_of(path: &Path, file: &Stat) -> Option<OwnedFd> {
    let path = path.canonicalize().ok()?;
    let directory = open_directory(path.parent()?).ok()?;
    let name = path.file_name()?;
    let found = retry_on_intr(|| fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)).ok()?;
    (found.st_dev == file.st_dev && found.st_ino == file.st_ino).then_some(directory)
}

fn open_existing(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    retry_on_intr(|| fs::openat(CWD, path, flags, Mode::empty()))
}

/// A file without a name in the directory `path`, or in the directory of `path`, which names no file.
fn make_unnamed(path: &Path) -> Result<OwnedFd, Errno> {
    let directory = match retry_on_intr(|| fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)) {
        _ if path.is_dir() => path,
        Ok(_) => return Err(Errno::EXIST),
        Err(Errno::NOENT) => parent(path),
        Err(error) => return Err(error),
    };
    let directory = open_directory(directory)?;
    let owners = Mode::RUSR | Mode::WUSR;
    // `O_EXCL`: it never gets a name either.
    let unnamed = flags(Access::Unnamed) | OFlags::TMPFILE | OFlags::EXCL;
    match retry_on_intr(|| fs::openat(&directory, ".", unnamed, owners)) {
        // Kernels and file systems that don't know such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => make_and_unlink(&directory),
        made => made,
    }
}

/// The same where the file needs a name for a moment.
fn make_and_unlink(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let owners = Mode::RUSR | Mode::WUSR;
    let new = flags(Access::Unnamed) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    for attempt in 0..NAMES_MAX {
        let number = mix(mix(started.as_nanos() as u64 ^ u64::from(std::process::id())).wrapping_add(attempt));
        let name = format!(".pagefold-{number:016x}");
        match retry_on_intr(|| fs::openat(directory, &name, new, owners)) {
            Err(Errno::EXIST) => {}
            made => {
                let made = made?;
                retry_on_intr(|| fs::unlinkat(directory, &name, AtFlags::empty()))?;
                return Ok(made);
            }
        }
    }
    Err(Errno::EXIST)
}

/// The directory that a file of that name is in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let search = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_on_intr(|| fs::openat(CWD, path, search, Mode::empty()))
}

/// Makes the file; says in which directory.
fn make(path: &Path, access: Access) -> Result<(OwnedFd, Option<OwnedFd>), Errno> {
    // A link that leads nowhere says where the file is to be made, but stands in the way of a new one.
    let path = if access == Access::Create { follow_links(path)? } else { path.to_owned() };
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Errno::ISDIR);
    }
    let name = path.file_name().ok_or(Errno::NOENT)?;
    let directory = open_directory(parent(&path))?;
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

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    /// Swap was a file that was made, closed, and opened again by its name: in a directory where others may write, they could put
    /// another file there in between, and had what was swapped out.
    #[test]
    fn a_file_without_a_name_is_never_looked_up() {
        let directory = tempfile::tempdir().unwrap();
        let fallback = make_and_unlink(&open_directory(directory.path()).unwrap()).unwrap();
        for fd in
            [make_unnamed(directory.path()).unwrap(), make_unnamed(&directory.path().join("no")).unwrap(), fallback]
        {
            let stat = fs::fstat(&fd).unwrap();
            assert_eq!((stat.st_nlink, stat.st_mode & 0o777), (0, 0o600));
        }
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
        let link = directory.path().join("link");
        std::os::unix::fs::symlink("nowhere", &link).unwrap();
        assert_eq!(make_unnamed(&link).unwrap_err(), Errno::EXIST);
        assert_eq!(make_unnamed(&directory.path().join("none/file")).unwrap_err(), Errno::NOENT);
    }
}
