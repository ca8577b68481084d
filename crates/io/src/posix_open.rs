//! Opening and making files of the machine.
//!
//! A file has its name in a directory, and the name survives a power cut only when the directory
//! was synced after the file was made. A file that is there already may have been made a moment
//! ago: by an open that failed after that, or by another process. So each file that is opened for
//! writing comes with its directory, for its first sync. A file that is made is made in that
//! directory: whatever is renamed meanwhile, it is the right one. Of a file that is there, the
//! directory is looked for by the file's path, and belongs to it if the file is found in it. A
//! directory that can't be opened, as one that may be written and searched but not read, can't be
//! synced: then the file's whole file system is.
//!
//! A file has to have a length. Those that the kernel makes up as they are read (procfs, sysfs and
//! the like) have none, or a wrong one. They are told by their file systems, which are asked before
//! anything is read: reading some of them waits, or has effects. On other file systems (FUSE) a
//! file of which a byte can be read, and whose length is 0 before and after, is one of them.
//!
//! A file without a name never had one, where the file system can make such files (`O_TMPFILE`).
//! Where it can't, the name is taken away as soon as the file is made, and the descriptor that made
//! the file is the one that is used: between the two, another process may put a file of its own in
//! that name's place. The file is never opened by name again.

use std::os::fd::OwnedFd;
use std::os::unix::ffi::OsStrExt as _;
use std::path::{Path, PathBuf};

use rustix::fs::{self, AtFlags, CWD, FileType, FsWord, Mode, OFlags, SeekFrom, Stat};
use rustix::io::Errno;

use sync::random::mix;

use crate::directories::Place;
use crate::retry::retry_interrupted;
use crate::{Access, Identity, IoError};

/// File systems whose files are made up as they are read (`statfs`'s `f_type`).
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

/// Symbolic links followed to where a file is to be made: as many as the kernel follows.
const LINKS_MAX: usize = 40;
/// Names that are tried for a file that is to have none.
const NAMES_MAX: u64 = 64;

/// A file just opened.
pub(crate) struct Opened {
    pub(crate) fd: OwnedFd,
    pub(crate) kind: Kind,
    pub(crate) identity: Identity,
    /// Where the file has its name, if it is a regular file opened for writing. None also if the
    /// file was there, and the directory has the name no longer.
    pub(crate) name: Option<Place>,
    /// Its kind of file system, if it is a regular file, and the system says.
    pub(crate) file_system: Option<FsWord>,
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
    fn of(stat: &Stat) -> Result<Self, IoError> {
        match FileType::from_raw_mode(stat.st_mode) {
            FileType::RegularFile => Ok(Self::Regular),
            FileType::BlockDevice => Ok(Self::BlockDevice),
            FileType::Directory => Err(Errno::ISDIR.into()),
            _ => Err(IoError::NoLength),
        }
    }

    /// A block device is the same one under each of its names, so its own number tells. No file has
    /// the inode 0.
    fn identity(self, stat: &Stat) -> Identity {
        match self {
            Self::Regular => Identity { device: stat.st_dev, inode: stat.st_ino },
            Self::BlockDevice => Identity { device: stat.st_rdev, inode: 0 },
        }
    }
}

/// [`Backend::open`](crate::Backend::open) for files of the machine.
pub(crate) fn open(path: &Path, access: Access) -> Result<Opened, IoError> {
    // Asked before the file is opened: opening a pipe waits for its writer, and opening some
    // devices has effects.
    let (fd, made_in) = match retry_interrupted(|| fs::stat(path)) {
        _ if access == Access::Unnamed => (make_unnamed(path)?, None),
        Ok(_) if access == Access::CreateNew => return Err(IoError::EXISTS),
        Ok(stat) => {
            let kind = Kind::of(&stat)?;
            let alone = access == Access::Alone && kind == Kind::BlockDevice;
            // Without `O_CREAT`, this is for devices alone: no file system on it, no other such
            // opening.
            let exclusive = if alone { OFlags::EXCL } else { OFlags::empty() };
            (open_existing(path, flags(access) | exclusive)?, None)
        }
        Err(Errno::NOENT) if access.makes() => make(path, access)?,
        Err(error) => return Err(error.into()),
    };
    // And again, because another file may have taken the name.
    let stat = retry_interrupted(|| fs::fstat(&fd))?;
    let kind = Kind::of(&stat)?;
    let file_system =
        if kind == Kind::Regular { retry_interrupted(|| fs::fstatfs(&fd)).ok().map(|it| it.f_type) } else { None };
    let has_length = match kind {
        Kind::Regular => has_length(&fd, &stat, file_system)?,
        // One without a medium, or a loop device without a file.
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

/// Whether the system knows how long a file is.
fn has_length(fd: &OwnedFd, stat: &Stat, file_system: Option<FsWord>) -> Result<bool, Errno> {
    if file_system.is_some_and(|it| MADE_UP_FILE_SYSTEMS.contains(&it)) {
        return Ok(false);
    }
    // Where it can't be read, reads will say so.
    let can_be_read = || retry_interrupted(|| rustix::io::pread(fd, &mut [0; 1], 0)).is_ok_and(|n| n > 0);
    let has_bytes = stat.st_size == 0 && can_be_read();
    // Another process may have appended to it just now.
    Ok(!has_bytes || retry_interrupted(|| fs::fstat(fd))?.st_size > 0)
}

/// Where the file has its name. `None` if it has none there any more.
fn name_of(path: &Path, file: &Stat) -> Option<Place> {
    // What can't be found out may be true: the name is somewhere, and is to last.
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

/// A file without a name in the directory `path`, or in the directory of `path`, which names no
/// file.
fn make_unnamed(path: &Path) -> Result<OwnedFd, Errno> {
    let directory = match retry_interrupted(|| fs::statat(CWD, path, AtFlags::SYMLINK_NOFOLLOW)) {
        _ if path.is_dir() => path,
        Ok(_) => return Err(Errno::EXIST),
        Err(Errno::NOENT) => parent(path),
        Err(error) => return Err(error),
    };
    let (directory, _) = open_directory_to_change(directory)?;
    let owners = Mode::RUSR | Mode::WUSR;
    // `O_EXCL`: it never gets a name either.
    let unnamed = flags(Access::Unnamed) | OFlags::TMPFILE | OFlags::EXCL;
    match retry_interrupted(|| fs::openat(&directory, ".", unnamed, owners)) {
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

/// The directory that a file of that name is in.
fn parent(path: &Path) -> &Path {
    path.parent().filter(|parent| *parent != Path::new("")).unwrap_or(Path::new("."))
}

fn open_directory(path: &Path) -> Result<OwnedFd, Errno> {
    let search = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    retry_interrupted(|| fs::openat(CWD, path, search, Mode::empty()))
}

/// A directory that files are to be made in, and whether it can be synced. One that may not be read
/// needn't be opened for that.
fn open_directory_to_change(path: &Path) -> Result<(OwnedFd, bool), Errno> {
    match open_directory(path) {
        Err(Errno::ACCESS | Errno::PERM) => {
            let only_name = OFlags::PATH | OFlags::DIRECTORY | OFlags::CLOEXEC;
            Ok((retry_interrupted(|| fs::openat(CWD, path, only_name, Mode::empty()))?, false))
        }
        opened => Ok((opened?, true)),
    }
}

/// Makes the file; says where it has its name.
fn make(path: &Path, access: Access) -> Result<(OwnedFd, Option<Place>), Errno> {
    // A link that leads nowhere says where the file is to be made, but stands in the way of a new
    // one.
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

    /// Where the path couldn't be followed from the root, the file was taken to have lost its name,
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

    /// Swap was a file that was made, closed, and opened again by its name: in a directory where
    /// others may write, they could put another file there in between, and had what was swapped
    /// out.
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
