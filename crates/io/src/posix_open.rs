//! Opens and creates files of the machine.
//!
//! A file's name survives a power cut only if its directory was synced after the file was created.
//! Even if a file exists when it is opened, a sync may be necessary: the file may have been created
//! a moment ago, by another process, or by an earlier open that failed after the creation. So each
//! file that is opened for writing is returned with its directory, and the file's first sync also
//! syncs the directory.
//!
//! A new file is created relative to its open directory. So the open directory contains the file's
//! name, even if directories are renamed meanwhile. For an existing file, the directory is found
//! through the file's path, and is used only if it contains the file.
//!
//! Some directories can't be opened for a sync, for example those that the process may write and
//! search, but not read. In that case, the file's whole file system is synced instead.
//!
//! A file must have a length. Files whose contents the kernel generates on reading (procfs, sysfs
//! and so on) have none, or a wrong one. On known file systems of this kind, a file is rejected
//! before anything is read, because reading may wait or have side effects. On other file systems
//! (FUSE), a file counts as generated if a byte can be read although the file's length is 0 before
//! and after the read.
//!
//! A file without a name is created with `O_TMPFILE` if the file system supports that. Otherwise
//! the file is created under a temporary name, which is removed at once, and is used through the
//! descriptor that created the file. The file is never opened by the temporary name, because
//! another process may have put a file of its own there.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, FsWord, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use sync::random::mix;

use crate::directories::Place;
use crate::retry::retry_interrupted;
use crate::{Access, Identity, IoError};

/// File systems that generate the contents of their files on reading (`statfs`'s `f_type`).
const MADE_UP_FILE_SYSTEMS: [FsWord; 15] = [
    0x9fa0,                    // procfs
    0x6265_6572,               // sysfs
    0x6462_6720,               // debugfs
    0x7472_6163,               // tracefs
    0x0027_e0eb,               // cgroup
    0x6367_7270,               // cgroup2
    0x7363_6673,               // securityfs
    0x6265_6570,               // configfs
    0x0765_5821,               // resctrl
    0x6573_5543,               // fusectl
    0x4249_4e4d,               // binfmt_misc
    0x6e73_6673,               // nsfs
    0xf97c_ff8c_u32 as FsWord, // selinuxfs
    0x4341_5d53,               // smackfs
    0xcafe_4a11_u32 as FsWord, // bpf
];

/// The most symbolic links followed to the place of a new file: as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// The number of temporary names tried for a file without a name.
const NAMES_MAX: u64 = 64;

/// A file that was just opened.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) kind: Kind,
    pub(crate) identity: Identity,
    /// Where the file's name is, if the file is a regular one and was opened with `Write`, `Create`
    /// or `CreateNew`. `None` for other files, and for an existing file to which the path doesn't
    /// lead any more.
    pub(crate) name: Option<Place>,
    /// The type of its file system, if it is a regular file and the system reports the type.
    pub(crate) file_system: Option<FsWord>,
    /// Users other than the owner may read or write it.
    pub(crate) is_open_to_others: bool,
}

/// The kinds of file that can be read and written at any offset.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Regular,
    BlockDevice,
}

impl Kind {
    fn of(stat: &Stat) -> Result<Self, IoError> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self::Regular),
            FileType::BlockDevice => Ok(Self::BlockDevice),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(IoError::NoLength),
        }
    }

    /// Returns the file's identity. A block device may have several names, but has only one device
    /// number, which identifies the device. Its identity has the inode 0, which no regular file
    /// has.
    fn identity(self, stat: &Stat) -> Identity {
        match self {
            Self::Regular => Identity { device: stat.st_dev, inode: stat.st_ino },
            Self::BlockDevice => Identity { device: stat.st_rdev, inode: 0 },
        }
    }
}

/// Opens a file of the machine: see [`Backend::open`](crate::Backend::open).
pub(crate) fn open(path: &Path, access: Access) -> Result<Opened, IoError> {
    // The file's kind is checked before the file is opened, because opening a pipe waits for its
    // writer, and opening some devices has side effects.
    let (fd, made_in) = open_or_make(path, access, retry_interrupted(|| fs::stat(path)))?;
    // Checked again, because another file may have taken the name.
    let stat = retry_interrupted(|| fs::fstat(&fd))?;
    let kind = Kind::of(&stat)?;
    let file_system =
        if kind == Kind::Regular { retry_interrupted(|| fs::fstatfs(&fd)).ok().map(|it| it.f_type) } else { None };
    let has_length = match kind {
        Kind::Regular => has_length(&fd, &stat, file_system)?,
        // The length is 0 if the device has no medium, or if it is a loop device without a file.
        Kind::BlockDevice => fs::seek(&fd, SeekFrom::End(0))? > 0,
    };
    if !has_length {
        return Err(IoError::NoLength);
    }
    let has_name = kind == Kind::Regular && matches!(access, Access::Write | Access::Create | Access::CreateNew);
    let name = made_in.or_else(|| if has_name { name_of(path, &stat) } else { None });
    let is_open_to_others = Mode::from_raw_mode(stat.st_mode).intersects(Mode::RWXG | Mode::RWXO);
    Ok(Opened { fd, kind, identity: kind.identity(&stat), name, file_system, is_open_to_others })
}

/// Opens or creates the file. `found` is what a `stat` of the path has just returned. If the file
/// is created, and has a name, also returns where the name is.
fn open_or_make(path: &Path, access: Access, found: Result<Stat, Errno>) -> Result<(OwnedFd, Option<Place>), IoError> {
    match found {
        _ if access == Access::Unnamed => Ok((make_unnamed(path)?, None)),
        Ok(_) if access == Access::CreateNew => Err(IoError::EXISTS),
        Ok(stat) => {
            let kind = Kind::of(&stat)?;
            let alone = access == Access::Alone && kind == Kind::BlockDevice;
            // Without `O_CREAT`, this flag applies to devices only: opening a device fails if the
            // device is mounted, or already open with this flag.
            let exclusive = if alone { OFlags::EXCL } else { OFlags::empty() };
            match open_existing(path, flags(access) | exclusive) {
                // Sometimes: another process has just removed the file.
                Err(Errno::NOENT) if access == Access::Create => Ok(make(path, access)?),
                opened => Ok((opened?, None)),
            }
        }
        Err(Errno::NOENT) if access.makes() => Ok(make(path, access)?),
        Err(error) => Err(error.into()),
    }
}

/// Returns whether the system knows the file's length.
fn has_length(fd: &OwnedFd, stat: &Stat, file_system: Option<FsWord>) -> Result<bool, Errno> {
    if file_system.is_some_and(|it| MADE_UP_FILE_SYSTEMS.contains(&it)) {
        return Ok(false);
    }
    // If the file can't be read, later reads report the error.
    let can_be_read = || retry_interrupted(|| rustix::io::pread(fd, &mut [0; 1], 0)).is_ok_and(|n| n > 0);
    let has_bytes = stat.st_size == 0 && can_be_read();
    // Another process may just have appended to the file.
    Ok(!has_bytes || retry_interrupted(|| fs::fstat(fd))?.st_size > 0)
}

/// Returns where the file has its name. `None` if the path doesn't lead to the file any more.
fn name_of(path: &Path, file: &Stat) -> Option<Place> {
    // On other errors, assume that the name exists somewhere and must be made durable.
    let gone_or_somewhere = |error: Option<Errno>| match error {
        Some(Errno::NOENT | Errno::NOTDIR) => None,
        _ => Some(Place::Somewhere),
    };
    let path = match path.canonicalize() {
        Ok(path) => path,
        Err(error) => return gone_or_somewhere(Errno::from_io_error(&error)),
    };
    let (folder, name) = (path.parent()?, path.file_name()?);
    let directory = match open_directory(folder) {
        Ok(directory) => directory,
        Err(error) => return gone_or_somewhere(Some(error)),
    };
    match retry_interrupted(|| fs::statat(&directory, name, AtFlags::SYMLINK_NOFOLLOW)) {
        Ok(found) => (found.st_dev == file.st_dev && found.st_ino == file.st_ino).then_some(Place::In(directory)),
        Err(error) => gone_or_somewhere(Some(error)),
    }
}

fn open_existing(path: &Path, flags: OFlags) -> Result<OwnedFd, Errno> {
    retry_interrupted(|| fs::openat(CWD, path, flags, Mode::empty()))
}

/// Creates a file without a name. `path` is a directory, or an unused name in one.
fn make_unnamed(path: &Path) -> Result<OwnedFd, Errno> {
    let directory = match retry_interrupted(|| fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)) {
        _ if path.is_dir() => path,
        Ok(_) => return Err(Errno::EXIST),
        Err(Errno::NOENT) => parent(path),
        Err(error) => return Err(error),
    };
    let (directory, _) = open_directory_to_change(directory)?;
    let owners = Mode::RUSR | Mode::WUSR;
    // `O_EXCL`: the file can't be given a name later either.
    let unnamed = flags(Access::Unnamed) | OFlags::TMPFILE | OFlags::EXCL;
    match retry_interrupted(|| fs::openat(&directory, ".", unnamed, owners)) {
        // The kernel or the file system doesn't support such files.
        Err(Errno::OPNOTSUPP | Errno::ISDIR | Errno::INVAL) => make_and_unlink(&directory),
        made => made,
    }
}

/// Creates a file without a name where the system doesn't support `O_TMPFILE`: creates it under a
/// temporary name, and removes the name at once.
fn make_and_unlink(directory: &OwnedFd) -> Result<OwnedFd, Errno> {
    let owners = Mode::RUSR | Mode::WUSR;
    let new = flags(Access::Unnamed) | OFlags::CREATE | OFlags::EXCL | OFlags::NOFOLLOW;
    let started = std::time::SystemTime::now().duration_since(std::time::UNIX_EPOCH).unwrap_or_default();
    for attempt in 0..NAMES_MAX {
        let number = mix(mix(started.as_nanos() as u64 ^ u64::from(std::process::id())).wrapping_add(attempt));
        let name = format!(".pagefold-{number:016x}");
        match retry_interrupted(|| fs::openat(directory, &name, new, owners)) {
            Err(Errno::EXIST) => {}
            made => {
                let made = made?;
                retry_interrupted(|| fs::unlinkat(directory, &name, AtFlags::empty()))?;
                return Ok(made);
            }
        }
    }
    Err(Errno::EXIST)
}

/// Returns the directory that contains the path's last component.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let search = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_interrupted(|| fs::openat(CWD, path, search, Mode::empty()))
}

/// Opens a directory in which a file is to be created. Also returns whether the directory can be
/// synced. It can't if this process has no read permission: the directory can then be opened only
/// as `O_PATH`, which doesn't allow a sync.
fn open_directory_to_change(path: &Path) -> Result<(OwnedFd, bool), Errno> {
    match open_directory(path) {
        Err(Errno::ACCESS | Errno::PERM) => {
            let only_name = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok((retry_interrupted(|| fs::openat(CWD, path, only_name, Mode::empty()))?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// Creates the file. Returns where it has its name.
fn make(path: &Path, access: Access) -> Result<(OwnedFd, Option<Place>), Errno> {
    // With `Create`, a dangling symbolic link determines where the file is created. With
    // `CreateNew`, the link makes the creation fail.
    let path = if access == Access::Create { follow_links(path)? } else { path.to_owned() };
    if path.as_os_str().as_bytes().ends_with(b"/") {
        return Err(Errno::ISDIR);
    }
    let name = path.file_name().ok_or(Errno::NOENT)?;
    let (directory, can_be_synced) = open_directory_to_change(parent(&path))?;
    let new = if access == Access::CreateNew { OFlags::EXCL } else { OFlags::empty() };
    let flags = flags(access) | OFlags::CREATE | new;
    let fd = retry_interrupted(|| fs::openat(&directory, name, flags, Mode::from_raw_mode(0o666)))?;
    Ok((fd, Some(if can_be_synced { Place::In(directory) } else { Place::Somewhere })))
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

    /// Regression: if the path couldn't be followed from the root, the file counted as nameless,
    /// and its name was never synced.
    #[test]
    fn a_name_that_cannot_be_found_is_somewhere() {
        let here = fs::statat(CWD, ".", AtFlags::empty()).unwrap();
        let directory = tempfile::tempdir().unwrap();
        let endless = directory.path().join("endless");
        std::os::unix::fs::symlink("endless", &endless).unwrap();
        assert!(matches!(name_of(&endless.join("file"), &here), Some(Place::Somewhere)));
        assert!(name_of(Path::new("/none/there"), &here).is_none());
        assert!(name_of(Path::new("/dev/null/there"), &here).is_none());
    }

    /// Regression: `Create` found the file, and another process removed it before it was opened.
    /// Then `Create` failed.
    #[test]
    fn a_file_that_is_removed_while_it_is_opened_is_created() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        let opened = |access| {
            std::fs::write(&path, [7]).unwrap();
            let found = fs::stat(&path);
            std::fs::remove_file(&path).unwrap();
            open_or_make(&path, access, found)
        };
        let (fd, name) = opened(Access::Create).unwrap();
        let (made, named) = (fs::fstat(&fd).unwrap(), fs::stat(&path).unwrap());
        assert_eq!((made.st_ino, made.st_size), (named.st_ino, 0));
        assert!(matches!(name, Some(Place::In(_))), "the name must be made durable");
        // Other kinds of access create nothing in its place.
        assert_eq!(opened(Access::Write).err(), Some(Errno::NOENT.into()));
        assert_eq!(opened(Access::CreateNew).err(), Some(IoError::EXISTS));
        assert!(!path.exists());
    }

    /// Regression: the swap file was created, closed, and opened again by its name. If other users
    /// may write to the directory, one of them could put another file under this name before the
    /// file was opened again, and so read the swapped pages.
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
