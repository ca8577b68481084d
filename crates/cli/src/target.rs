//! The target of a run: the user's file, a temporary file, a file of the simulated disk, or memory.

use std::fs::{File, OpenOptions};
use std::io::{Seek, SeekFrom};
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow, bail};

use crate::content::Content;
use crate::failure::Failure;
use crate::temp_file::TempFile;
use crate::units;

/// The file of a run. Each run opens it anew.
#[derive(Debug)]
pub(crate) struct Target {
    source: Source,
    /// Bytes that the run may use: at most the file's length when it was determined.
    size: u64,
}

#[derive(Debug)]
enum Source {
    User { path: PathBuf, len: u64 },
    Temporary { file: TempFile, content: Content },
    Simulated { content: Content },
    Memory { content: Content },
}

/// The name of the file on the simulated disk.
const SIMULATED_PATH: &str = "simulated.data";

impl Target {
    /// Creates a target of the user's file, or of its first `size` bytes.
    ///
    /// # Errors
    /// The file is missing, unreadable, empty, smaller than `size`, or neither a regular file nor a
    /// block device.
    pub(crate) fn user(path: &Path, size: Option<u64>) -> Result<Self, Failure> {
        let len = file_len(path, path)?;
        if len == 0 {
            return Err(anyhow::anyhow!("{} is empty: there is nothing to read", path.display()).into());
        }
        let size = size.unwrap_or(len);
        if size > len {
            let (size, len) = (units::bytes(size), units::bytes(len));
            return Err(Failure::usage(format!("--size {size} is more than {} has ({len})", path.display())));
        }
        Ok(Self { source: Source::User { path: path.to_path_buf(), len }, size })
    }

    /// Creates a temporary file of `size` bytes.
    ///
    /// # Errors
    /// Same as for [`TempFile::create`].
    pub(crate) fn temporary(
        directory: Option<&Path>,
        size: u64,
        content: Content,
        progress: impl FnMut(u64),
    ) -> Result<Self, Failure> {
        let file = TempFile::create(directory, size, content, progress)?;
        Ok(Self { source: Source::Temporary { file, content }, size })
    }

    /// Creates a file of `size` bytes that exists only on the simulated disk.
    pub(crate) fn simulated(size: u64, content: Content) -> Self {
        Self { source: Source::Simulated { content }, size }
    }

    /// Creates `size` bytes of memory without a file.
    pub(crate) fn memory(size: u64, content: Content) -> Self {
        Self { source: Source::Memory { content }, size }
    }

    /// Returns whether the target is memory without a file.
    pub(crate) fn is_memory(&self) -> bool {
        matches!(self.source, Source::Memory { .. })
    }

    /// Returns the number of bytes that may be used.
    pub(crate) fn size(&self) -> u64 {
        self.size
    }

    /// Returns the file's length when it was determined.
    pub(crate) fn len(&self) -> u64 {
        match &self.source {
            Source::User { len, .. } => *len,
            Source::Temporary { .. } | Source::Simulated { .. } | Source::Memory { .. } => self.size,
        }
    }

    /// Fails if the file can't be written to. Changes nothing.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn check_writable(&self) -> anyhow::Result<()> {
        if let Source::User { path, .. } = &self.source {
            let opened = OpenOptions::new().write(true).open(path);
            opened.with_context(|| format!("can't write {}", path.display()))?;
        }
        Ok(())
    }

    /// Restores the original content of a temporary file. Leaves other files as they are. A
    /// simulated disk needs no restoring, because each run gets a new one.
    ///
    /// # Errors
    /// Same as for [`TempFile::fill`].
    pub(crate) fn restore(&mut self, progress: impl FnMut(u64)) -> Result<(), Failure> {
        match &mut self.source {
            Source::Temporary { file, content } => file.fill(self.size, *content, progress),
            Source::User { .. } | Source::Simulated { .. } | Source::Memory { .. } => Ok(()),
        }
    }

    /// Returns the path at which the file can be opened.
    pub(crate) fn open_path(&self) -> &Path {
        match &self.source {
            Source::Temporary { file, .. } => file.open_path(),
            _ => self.path(),
        }
    }

    /// Returns the file's name, for messages.
    pub(crate) fn path(&self) -> &Path {
        match &self.source {
            Source::User { path, .. } => path,
            Source::Temporary { file, .. } => file.path(),
            Source::Simulated { .. } => Path::new(SIMULATED_PATH),
            Source::Memory { .. } => Path::new("memory"),
        }
    }

    /// Returns the file's content if this command created it.
    pub(crate) fn content(&self) -> Option<Content> {
        match &self.source {
            Source::User { .. } => None,
            Source::Temporary { content, .. } | Source::Simulated { content } | Source::Memory { content } => {
                Some(*content)
            }
        }
    }

    /// Returns the kind in a word: `user`, `temporary`, `simulated` or `anonymous`.
    pub(crate) fn kind(&self) -> &'static str {
        match &self.source {
            Source::User { .. } => "user",
            Source::Temporary { .. } => "temporary",
            Source::Simulated { .. } => "simulated",
            Source::Memory { .. } => "anonymous",
        }
    }

    /// Fails if the file has become shorter since its length was determined.
    ///
    /// # Errors
    /// The message contains both lengths; errors of the system.
    pub(crate) fn check_len(&self) -> anyhow::Result<()> {
        self.shrank()?.map_or(Ok(()), Err)
    }

    /// Returns an error if the file has become shorter since its length was determined.
    ///
    /// # Errors
    /// Errors of the system.
    pub(crate) fn shrank(&self) -> anyhow::Result<Option<anyhow::Error>> {
        if let Source::Simulated { .. } | Source::Memory { .. } = self.source {
            return Ok(None);
        }
        let (path, len) = (self.path(), self.len());
        let now = file_len(self.open_path(), path)?;
        let shrank = || anyhow!("{} shrank while it was in use: from {len} to {now} bytes", path.display());
        Ok((now < len).then(shrank))
    }
}

/// Returns the length of the file at `path`, which must be readable at any offset: a regular file
/// or a block device.
fn file_len(path: &Path, name: &Path) -> anyhow::Result<u64> {
    let name = name.display();
    // The type is checked before opening: opening a FIFO would wait for a writer.
    let metadata = path.metadata().with_context(|| format!("can't read {name}"))?;
    let kind = metadata.file_type();
    if kind.is_dir() {
        bail!("{name} is a directory; a file is needed");
    }
    if !kind.is_file() && !kind.is_block_device() {
        bail!("{name} is neither a regular file nor a block device");
    }
    let mut file = File::open(path).with_context(|| format!("can't read {name}"))?;
    file.seek(SeekFrom::End(0)).with_context(|| format!("can't tell the length of {name}"))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(path: &str, size: Option<u64>) -> Failure {
        Target::user(Path::new(path), size).unwrap_err()
    }

    #[test]
    fn what_is_no_file_is_refused() {
        assert!(error("/no/such", None).to_string().starts_with("can't read /no/such: No such file"));
        assert!(error("/tmp", None).to_string().contains("is a directory"));
        assert!(error("/dev/null", None).to_string().contains("neither a regular file"));
        let empty = tempfile::NamedTempFile::new().unwrap();
        assert!(error(empty.path().to_str().unwrap(), None).to_string().contains("is empty"));
    }

    #[test]
    fn size_is_a_part_of_the_file() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1000).unwrap();
        assert_eq!(Target::user(file.path(), Some(10)).unwrap().size(), 10);
        assert!(matches!(error(file.path().to_str().unwrap(), Some(1001)), Failure::Usage(_)));
    }

    #[test]
    fn shrinking_is_noticed_and_growing_is_not() {
        let file = tempfile::NamedTempFile::new().unwrap();
        file.as_file().set_len(1000).unwrap();
        let target = Target::user(file.path(), None).unwrap();
        file.as_file().set_len(2000).unwrap();
        target.check_len().unwrap();
        file.as_file().set_len(999).unwrap();
        assert!(target.check_len().unwrap_err().to_string().contains("from 1000 to 999 bytes"));
    }
}
