//! How a file is opened.

use std::path::Path;

use crate::error::Error;
use crate::file::File;
use crate::group::Group;
use crate::io::{Access, IoError};

/// A file about to be opened, with the options of [`std::fs::OpenOptions`]. Files can always be read.
#[derive(Clone, Debug)]
#[must_use = "`open` opens the file"]
pub struct OpenOptions {
    group: Group,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
}

impl OpenOptions {
    pub(crate) fn new(group: &Group) -> Self {
        Self { group: group.clone(), write: false, create: false, create_new: false, truncate: false }
    }

    /// The file can be written to.
    pub fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// The file is made if it isn't there. Needs [`write`](Self::write).
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// The file is made, and mustn't be there. Needs [`write`](Self::write).
    pub fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// What the file has is thrown away. Needs [`write`](Self::write).
    pub fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Opens the file. Its pages are charged to the group if it is this handle that loads or makes them.
    ///
    /// # Errors
    /// As [`Group::open`]; `EINVAL` for options that need [`write`](Self::write), without it; those of
    /// [`File::set_len`], for [`truncate`](Self::truncate).
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        if !self.write && (self.create || self.create_new || self.truncate) {
            return Err(Error::OpenFailed { path: path.to_owned(), error: IoError::INVALID });
        }
        let access = match (self.write, self.create, self.create_new) {
            (false, ..) => Access::Read,
            (true, false, false) => Access::Write,
            (true, true, false) => Access::Create,
            (true, _, true) => Access::CreateNew,
        };
        let file = File::open(&self.group, path, access)?;
        if self.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }
}
