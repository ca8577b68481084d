//! Files on a real disk that have no name. So they disappear when the process ends for any reason.

use std::env;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result};
use rustix::fs::{Advice, FsWord, OFlags, fadvise, fstatvfs, statfs};

use crate::peers::contents::{PAGE, offset_of};
use crate::peers::direct::{self, Aligned};
use crate::usage::Usage;

/// File systems in memory: tmpfs, ramfs, hugetlbfs (`statfs`'s `f_type`).
const IN_MEMORY: [FsWord; 3] = [0x0102_1994, 0x8584_58f6, 0x9584_58f6];

/// Where files are made: the directory that the user names, or the first of the usual ones that is
/// on a disk.
pub(crate) fn directory(named: Option<&Path>) -> Result<PathBuf> {
    if let Some(named) = named {
        let in_memory = is_in_memory(named).with_context(|| format!("cannot use {}", named.display()))?;
        if in_memory {
            let message = format!("{} is in memory; --dir takes a directory on a disk", named.display());
            return Err(Usage::error(message));
        }
        return Ok(named.to_owned());
    }
    let usual = [env::current_dir().ok(), Some(env::temp_dir()), Some(PathBuf::from("/var/tmp"))];
    let found = usual
        .into_iter()
        .flatten()
        .find(|path| is_in_memory(path).is_ok_and(|in_memory| !in_memory) && tempfile::tempfile_in(path).is_ok());
    found.ok_or_else(|| Usage::error("no usual directory can be written and is on a disk; name one with --dir"))
}

/// Where tests make files: in the build's own directory if that is on a disk.
#[cfg(test)]
pub(crate) fn directory_for_tests() -> PathBuf {
    let program = env::current_exe().expect("this program");
    // From `target/release/deps/bench-0123456789abcdef`.
    let build = program.ancestors().nth(3).expect("the build's directory").join("tmp");
    std::fs::create_dir_all(&build).expect("a directory for tests");
    directory(Some(&build)).or_else(|_| directory(None)).expect("a directory on a disk")
}

fn is_in_memory(path: &Path) -> Result<bool> {
    Ok(IN_MEMORY.contains(&statfs(path)?.f_type))
}

/// A file of whole pages without a name.
#[derive(Debug)]
pub(crate) struct Scratch {
    file: File,
    pages: u32,
}

impl Scratch {
    /// An empty file that will have up to `pages` pages.
    pub(crate) fn empty(directory: &Path, pages: u32) -> Result<Self> {
        let cannot = || format!("cannot make a file in {}", directory.display());
        let file = tempfile::tempfile_in(directory).with_context(cannot)?;
        let space = fstatvfs(&file).with_context(cannot)?;
        let free = space.f_bavail.saturating_mul(space.f_frsize);
        if free < offset_of(pages) {
            let (name, needed) = (directory.display(), offset_of(pages));
            return Err(Usage::error(format!("{name} has {free} bytes free, {needed} are needed: --pages or --dir")));
        }
        Ok(Self { file, pages })
    }

    /// A file of `pages` pages, all of them written.
    pub(crate) fn filled(directory: &Path, pages: u32) -> Result<Self> {
        let scratch = Self::empty(directory, pages)?;
        direct::write_sequentially(&scratch.open_direct()?, 0..offset_of(pages), 1)?;
        scratch.file.sync_all().context("cannot sync a file")?;
        Ok(scratch)
    }

    /// A file of `pages` pages that another process has made, by its [`path`](Self::path).
    pub(crate) fn open(path: &Path, pages: u32) -> Result<Self> {
        let file = File::options().read(true).write(true).open(path);
        Ok(Self { file: file.with_context(|| format!("cannot open {}", path.display()))?, pages })
    }

    /// Returns the file, open for reading and writing through the kernel's page cache.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Returns the file, which is no scratch file any more.
    pub(crate) fn into_file(self) -> File {
        self.file
    }

    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// A path that opens it as long as this process has it.
    pub(crate) fn path(&self) -> PathBuf {
        PathBuf::from(format!("/proc/{}/fd/{}", std::process::id(), self.file.as_raw_fd()))
    }

    /// Opens the file once more, past the kernel's page cache.
    pub(crate) fn open_direct(&self) -> Result<File> {
        let flags = OFlags::RDWR | OFlags::DIRECT | OFlags::CLOEXEC;
        let fd = rustix::fs::open(self.path(), flags, rustix::fs::Mode::empty());
        Ok(fd.context("cannot open a file with O_DIRECT here; name another directory with --dir")?.into())
    }

    /// Has the kernel keep nothing of it in memory.
    pub(crate) fn forget(&self) -> Result<()> {
        self.file.sync_all().context("cannot sync a file")?;
        fadvise(&self.file, 0, None, Advice::DontNeed).context("cannot drop a file from memory")
    }

    /// What the disk has of a page.
    pub(crate) fn page(&self, page: u32) -> Result<Box<Aligned<PAGE>>> {
        let mut bytes = Aligned::zeroed();
        let len =
            rustix::io::pread(self.open_direct()?, &mut bytes.0[..], offset_of(page)).context("cannot read a file")?;
        anyhow::ensure!(len == PAGE, "the file ends in page {page}");
        Ok(bytes)
    }

    /// Returns how many bytes all processes have written to the file's device so far. `None` if the
    /// system doesn't say.
    pub(crate) fn device_bytes(&self) -> Option<u64> {
        let device = self.file.metadata().ok()?.dev();
        let (major, minor) = (rustix::fs::major(device), rustix::fs::minor(device));
        let stat = std::fs::read_to_string(format!("/sys/dev/block/{major}:{minor}/stat")).ok()?;
        // Sectors of 512 bytes written: the seventh field (Documentation/block/stat).
        Some(stat.split_whitespace().nth(6)?.parse::<u64>().ok()? * 512)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_is_no_disk() {
        assert!(directory(Some(Path::new("/proc"))).is_ok_and(|path| path == Path::new("/proc")));
        assert!(directory(Some(Path::new("/nowhere"))).is_err());
        if Path::new("/dev/shm").is_dir() {
            let error = directory(Some(Path::new("/dev/shm"))).unwrap_err();
            assert!(error.is::<Usage>() && error.to_string().contains("--dir"), "{error}");
        }
    }

    #[test]
    fn a_scratch_file_has_no_name_and_opens_again() {
        let place = tempfile::tempdir_in(directory_for_tests()).unwrap();
        let scratch = Scratch::filled(place.path(), 300).unwrap();
        assert_eq!(std::fs::read_dir(place.path()).unwrap().count(), 0);
        assert_eq!(scratch.file().metadata().unwrap().len(), offset_of(300));
        rustix::io::pwrite(scratch.file(), b"new", offset_of(7)).unwrap();
        scratch.forget().unwrap();
        assert_eq!(&scratch.page(7).unwrap().0[..3], b"new");
    }
}
