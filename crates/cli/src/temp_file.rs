//! A temporary file with checkable content. Its name is removed right after its creation, so that
//! the file disappears even if the process is killed. After that, the run opens the file through
//! `/proc`. If `/proc` can't be used, the file keeps its name until the [`TempFile`] is dropped or
//! Ctrl-C is pressed.

use std::fs::File;
use std::io::{self, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::MetadataExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use rustix::fs::FsWord;
use tempfile::NamedTempFile;

use crate::content::Content;
use crate::failure::Failure;
use crate::signals;
use crate::units;

/// Bytes written at a time.
const CHUNK: usize = 1 << 20;

/// File systems that keep files in memory, so reading from them doesn't measure a disk: tmpfs and
/// ramfs (`f_type` of `statfs`).
const MEMORY_FILE_SYSTEMS: [FsWord; 2] = [0x0102_1994, 0x8584_58f6];

/// Directories that are tried in this order if neither the user nor `$TMPDIR` names one.
const DIRECTORIES: [&str; 3] = ["/tmp", "/var/tmp", "."];

/// The file; deleted when dropped.
#[derive(Debug)]
pub(crate) struct TempFile {
    file: NamedTempFile,
    /// The path at which it can be opened: in `/proc`, or its name.
    open_path: PathBuf,
}

impl TempFile {
    /// Creates a file of `len` bytes in `directory`, or in the directory that seems best.
    /// `progress` gets the number of bytes written.
    ///
    /// # Errors
    /// Errors of the system, and too little room.
    pub(crate) fn create(
        directory: Option<&Path>,
        len: u64,
        content: Content,
        progress: impl FnMut(u64),
    ) -> Result<Self, Failure> {
        let directory = directory.map_or_else(|| choose_directory(len), Path::to_path_buf);
        if free_bytes(&directory).is_some_and(|free| free < len) {
            return Err(no_room(&directory, len).into());
        }
        let file = tempfile::Builder::new().prefix("pagefold-").suffix(".data").tempfile_in(&directory);
        let file = file.with_context(|| format!("can't make a temporary file in {}", directory.display()))?;
        signals::set_temporary(Some(file.path()));
        let open_path = match unlink(&file) {
            Some(path) => {
                signals::set_temporary(None);
                path
            }
            None => file.path().to_path_buf(),
        };
        let mut temp = Self { file, open_path };
        temp.fill(len, content, progress)?;
        Ok(temp)
    }

    /// Replaces the contents with `len` bytes of `content`.
    ///
    /// # Errors
    /// Errors of the system, and too little room.
    pub(crate) fn fill(&mut self, len: u64, content: Content, progress: impl FnMut(u64)) -> Result<(), Failure> {
        self.write(len, content, progress).map_err(|failure| match failure {
            Failed::Interrupted(failure) => failure,
            Failed::Io(error) if error.kind() == io::ErrorKind::StorageFull => {
                no_room(self.path().parent().unwrap_or(Path::new(".")), len).into()
            }
            Failed::Io(error) => {
                anyhow!(error).context(format!("can't write the temporary file {}", self.path().display())).into()
            }
        })
    }

    /// The path at which the file can be opened.
    pub(crate) fn open_path(&self) -> &Path {
        &self.open_path
    }

    /// The name that the file has, or had, for messages.
    pub(crate) fn path(&self) -> &Path {
        self.file.path()
    }

    fn write(&mut self, len: u64, content: Content, mut progress: impl FnMut(u64)) -> Result<(), Failed> {
        let file = self.file.as_file_mut();
        file.rewind().and_then(|()| file.set_len(0)).map_err(Failed::Io)?;
        let mut chunk = vec![0; CHUNK];
        let mut done = 0;
        while done < len {
            signals::check().map_err(Failed::Interrupted)?;
            let n = usize::try_from(len - done).unwrap_or(CHUNK).min(CHUNK);
            content.fill(done, &mut chunk[..n]);
            file.write_all(&chunk[..n]).map_err(Failed::Io)?;
            done += n as u64;
            progress(done);
        }
        // Writing back during the run would disturb what is measured.
        file.sync_data().map_err(Failed::Io)
    }
}

impl Drop for TempFile {
    fn drop(&mut self) {
        // Usually the file has no name any longer.
        let _ = std::fs::remove_file(self.file.path());
        signals::set_temporary(None);
    }
}

/// Removes the file's name if the file can be opened without it. Returns the path for that.
fn unlink(file: &NamedTempFile) -> Option<PathBuf> {
    let path = PathBuf::from(format!("/proc/self/fd/{}", file.as_file().as_raw_fd()));
    let (own, found) = (file.as_file().metadata().ok()?, File::open(&path).ok()?.metadata().ok()?);
    let same = (own.dev(), own.ino()) == (found.dev(), found.ino());
    if !same || std::fs::remove_file(file.path()).is_err() {
        return None;
    }
    // Some network file systems can't open a file without a name; then the run fails with an error.
    Some(path)
}

enum Failed {
    Io(io::Error),
    Interrupted(Failure),
}

fn no_room(directory: &Path, len: u64) -> anyhow::Error {
    let free = free_bytes(directory).map_or_else(String::new, |free| format!(", {} are free", units::bytes(free)));
    anyhow!(
        "no room for a temporary file of {} in {}{free}; --temp-dir DIR puts it elsewhere, --size SIZE makes it \
         smaller",
        units::bytes(len),
        directory.display()
    )
}

/// Returns `$TMPDIR` if it is set. Otherwise returns the first of `DIRECTORIES` that is on a disk,
/// is writable and has enough room; if none is, the first one.
fn choose_directory(len: u64) -> PathBuf {
    if let Some(directory) = std::env::var_os("TMPDIR").filter(|directory| !directory.is_empty()) {
        return directory.into();
    }
    let suits = |directory: &&&str| {
        let path = Path::new(directory);
        !in_memory(path) && free_bytes(path).is_some_and(|free| free >= len) && writable(path)
    };
    DIRECTORIES.iter().find(suits).unwrap_or(&DIRECTORIES[0]).into()
}

fn writable(directory: &Path) -> bool {
    rustix::fs::access(directory, rustix::fs::Access::WRITE_OK).is_ok()
}

fn in_memory(directory: &Path) -> bool {
    rustix::fs::statfs(directory).is_ok_and(|statfs| MEMORY_FILE_SYSTEMS.contains(&statfs.f_type))
}

/// Returns the free bytes for an ordinary user; `None` if the system doesn't report them.
pub(crate) fn free_bytes(directory: &Path) -> Option<u64> {
    // Some file systems don't count their blocks.
    let system = rustix::fs::statvfs(directory).ok().filter(|system| system.f_blocks > 0)?;
    Some(system.f_bavail.saturating_mul(system.f_frsize))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn holds_the_content_and_goes_away() {
        let directory = tempfile::tempdir().unwrap();
        let (len, content) = (CHUNK as u64 * 2 + 17, Content::new(3));
        let mut last = 0;
        let temp = TempFile::create(Some(directory.path()), len, content, |done| last = done).unwrap();
        assert_eq!(last, len);
        assert!(!temp.path().exists(), "it has no name while it is in use");
        let bytes = std::fs::read(temp.open_path()).unwrap();
        assert_eq!(bytes.len() as u64, len);
        assert_eq!(content.check(0, &bytes), None);
        drop(temp);
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn too_little_room_is_said_before_writing() {
        let directory = tempfile::tempdir().unwrap();
        let failure = TempFile::create(Some(directory.path()), 1 << 60, Content::new(3), |_| {}).unwrap_err();
        assert!(failure.to_string().starts_with("no room for a temporary file of 1 EiB"), "{failure}");
        assert_eq!(std::fs::read_dir(directory.path()).unwrap().count(), 0);
    }

    #[test]
    fn a_missing_directory_is_named() {
        let failure = TempFile::create(Some(Path::new("/no/such")), 1, Content::new(3), |_| {}).unwrap_err();
        assert!(failure.to_string().contains("/no/such"), "{failure}");
    }
}
