//! The file that is read. It is in memory (tmpfs) unless the caller names another place.

use std::fs::{self, File};
use std::io::{BufWriter, Write};
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, Result, bail, ensure};
use tempfile::TempPath;

use crate::peers::contents::{Contents, PAGE, offset_of};

/// A file of known contents. It is removed with the value, unless the caller named it.
#[derive(Debug)]
pub(crate) struct DataFile {
    path: PathBuf,
    file: File,
    pages: u32,
    contents: Contents,
    _temporary: Option<TempPath>,
}

impl DataFile {
    /// A file of `pages` pages. With `place`, the file there is used, or made if there is none.
    /// Otherwise the file is temporary.
    pub(crate) fn new(place: Option<&Path>, pages: u32, contents: Contents) -> Result<Self> {
        match place {
            None => Self::temporary(pages, contents),
            Some(path) if path.exists() => Self::existing(path, pages, contents),
            Some(path) => {
                let file = File::create_new(path).with_context(|| format!("cannot create {}", path.display()))?;
                let filled = write(&file, path, pages, contents);
                if filled.is_err() {
                    // Best effort: the error of the filling is the one to tell.
                    let _ = fs::remove_file(path);
                }
                filled?;
                Self::existing(path, pages, contents)
            }
        }
    }

    fn temporary(pages: u32, contents: Contents) -> Result<Self> {
        let directory = temporary_directory(offset_of(pages));
        let named = tempfile::Builder::new()
            .prefix("pagefold-bench-")
            .tempfile_in(&directory)
            .with_context(|| format!("cannot create a file in {}", directory.display()))?;
        let (file, temporary) = named.into_parts();
        write(&file, &temporary, pages, contents)?;
        Ok(Self { path: temporary.to_path_buf(), file, pages, contents, _temporary: Some(temporary) })
    }

    fn existing(path: &Path, pages: u32, contents: Contents) -> Result<Self> {
        let file = File::open(path).with_context(|| format!("cannot open {}", path.display()))?;
        let length = file.metadata().with_context(|| format!("cannot stat {}", path.display()))?.len();
        let name = path.display();
        ensure!(length == offset_of(pages), "{name} has {length} bytes, not the {} needed", offset_of(pages));
        for page in [0, pages / 2, pages - 1] {
            let mut bytes = [0; PAGE];
            file.read_exact_at(&mut bytes, offset_of(page)).with_context(|| format!("cannot read {name}"))?;
            ensure!(bytes == *contents.page(page), "{name} holds something else; remove it or name another file");
        }
        Ok(Self { path: path.to_path_buf(), file, pages, contents, _temporary: None })
    }

    /// Where it is.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }

    /// It, open for reading.
    pub(crate) fn file(&self) -> &File {
        &self.file
    }

    /// Its length in pages.
    pub(crate) fn pages(&self) -> u32 {
        self.pages
    }

    /// What it holds.
    pub(crate) fn contents(&self) -> Contents {
        self.contents
    }
}

/// Returns `/dev/shm` if it can be written to and has `length` free bytes; otherwise the usual
/// directory for temporary files.
fn temporary_directory(length: u64) -> PathBuf {
    let shm = Path::new("/dev/shm");
    let free = rustix::fs::statvfs(shm).map_or(0, |space| space.f_bavail.saturating_mul(space.f_frsize));
    let is_writable = rustix::fs::access(shm, rustix::fs::Access::WRITE_OK).is_ok();
    if is_writable && free >= length { shm.to_path_buf() } else { std::env::temp_dir() }
}

fn write(file: &File, path: &Path, pages: u32, contents: Contents) -> Result<()> {
    let length = offset_of(pages);
    if contents == Contents::Zeros {
        return file.set_len(length).with_context(|| format!("cannot size {}", path.display()));
    }
    let space = rustix::fs::fstatvfs(file).context("cannot ask for free space")?;
    let free = space.f_bavail.saturating_mul(space.f_frsize);
    if free < length {
        bail!("{} needs {length} bytes and {free} are free there; use --pages or --file", path.display());
    }
    let mut writer = BufWriter::with_capacity(256 * PAGE, file);
    for page in 0..pages {
        writer.write_all(&contents.page(page)[..]).with_context(|| format!("cannot write {}", path.display()))?;
    }
    writer.flush().with_context(|| format!("cannot write {}", path.display()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_temporary_file_holds_its_pattern_and_goes_away() {
        let data = DataFile::new(None, 5, Contents::Pattern).unwrap();
        let path = data.path().to_path_buf();
        assert_eq!(fs::read(&path).unwrap()[2 * PAGE..3 * PAGE], Contents::Pattern.page(2)[..]);
        drop(data);
        assert!(!path.exists());
    }

    #[test]
    fn a_named_file_is_kept_used_again_and_never_overwritten() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("data");
        drop(DataFile::new(Some(&path), 3, Contents::Pattern).unwrap());
        drop(DataFile::new(Some(&path), 3, Contents::Pattern).unwrap());
        assert!(DataFile::new(Some(&path), 4, Contents::Pattern).is_err());
        assert!(DataFile::new(Some(&path), 3, Contents::Zeros).is_err());
        assert_eq!(fs::metadata(&path).unwrap().len(), offset_of(3));
    }
}
