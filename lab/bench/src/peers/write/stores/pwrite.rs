//! One system call for each write. The bytes go to the kernel's page cache; the kernel writes them
//! back at a sync, and by itself.

use std::fs::File;

use anyhow::{Context, Result, ensure};

use super::Store;
use crate::peers::contents::{PAGE, Page, offset_of};
use crate::peers::scratch::Scratch;

/// A `pwrite` each time, and `fdatasync`.
pub(super) struct PwriteStore {
    file: File,
}

impl PwriteStore {
    pub(super) fn new(file: &Scratch) -> Result<Self> {
        Ok(Self { file: file.file().try_clone().context("cannot duplicate a descriptor")? })
    }
}

impl Store for PwriteStore {
    fn write(&self, page: u32, bytes: &Page) -> Result<()> {
        let len = rustix::io::pwrite(&self.file, bytes, offset_of(page)).context("cannot write")?;
        ensure!(len == PAGE, "{len} bytes of a page were written");
        Ok(())
    }

    fn sync(&self) -> Result<()> {
        self.file.sync_data().context("cannot sync")
    }
}
