//! One system call for each operation, through the kernel's page cache or past it.

use std::fs::File;

use anyhow::{Context, Result, ensure};
use rustix::fs::{Advice, fadvise};

use super::Blocking;
use crate::peers::contents::{Page, offset_of};
use crate::peers::disk::workload::Workload;
use crate::peers::scratch::Scratch;

/// A `pread` or `pwrite` each time.
pub(super) struct Pread {
    /// The kernel's read-ahead goes by the open file.
    files: Vec<File>,
    buffered: bool,
}

impl Pread {
    /// Through the page cache. Tells the kernel if the order is random; a program that knows its
    /// order would do the same.
    pub(super) fn buffered(file: &Scratch, workload: Workload) -> Result<Self> {
        let files = (0..workload.handles()).map(|_| Ok(Scratch::open(&file.path(), file.pages())?.into_file()));
        let files = files.collect::<Result<Vec<_>>>()?;
        if workload.is_random() {
            files.iter().try_for_each(|file| fadvise(file, 0, None, Advice::Random)).context("cannot advise")?;
        }
        Ok(Self { files, buffered: true })
    }

    /// Past it.
    pub(super) fn direct(file: &Scratch, workload: Workload) -> Result<Self> {
        let files = (0..workload.handles()).map(|_| file.open_direct()).collect::<Result<_>>()?;
        Ok(Self { files, buffered: false })
    }
}

impl Blocking for Pread {
    fn read(&self, handle: usize, first: u32, into: &mut [u8]) -> Result<()> {
        let len = rustix::io::pread(&self.files[handle], &mut *into, offset_of(first)).context("cannot read")?;
        ensure!(len == into.len(), "{len} of {} bytes were read", into.len());
        Ok(())
    }

    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        let len = rustix::io::pwrite(&self.files[0], bytes, offset_of(page)).context("cannot write")?;
        ensure!(len == bytes.len(), "{len} bytes of a page were written");
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.files[0].sync_data().context("cannot sync")
    }

    fn keeps(&self) -> bool {
        self.buffered
    }
}
