//! How a file is opened.

use std::path::Path;

use crate::api::file::File;
use crate::api::group::Group;
use crate::error::Error;
use io::Access;

/// A file about to be opened, with the options of [`std::fs::OpenOptions`]. Files can always be
/// read.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// let file = group.open_options().write(true).create(true).open("log")?;
/// file.write_at(b"hello", 0)?; // Into memory;
/// file.sync()?; // and to the disk, for good.
/// assert!(group.open_options().write(true).create_new(true).open("log").is_err());
/// # Ok(())
/// # }
/// ```
#[derive(Clone, Debug)]
#[must_use = "`open` opens the file"]
pub struct OpenOptions {
    group: Group,
    write: bool,
    create: bool,
    create_new: bool,
    truncate: bool,
    lock: bool,
}

impl Group {
    /// A file about to be opened, for writing or otherwise than [`open`](Self::open) does.
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions { group: self.clone(), write: false, create: false, create_new: false, truncate: false, lock: true }
    }
}

impl OpenOptions {
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

    /// Whether a file that is opened for writing is locked, as it is by default: two Pagefolds that
    /// write to one file overwrite each other's pages, also synced ones.
    ///
    /// The lock is advisory (`flock`): it keeps out other Pagefolds, and programs that ask for it;
    /// readers don't need it. Handles of one Pagefold share it, and it is released when the file's
    /// last handle is closed, or with the process. A child that is forked meanwhile, and doesn't
    /// run another program, shares it as well: if the process dies, the child still has it. Where
    /// the file system has no locks the file is opened without.
    pub fn lock(mut self, yes: bool) -> Self {
        self.lock = yes;
        self
    }

    /// Opens the file. Its pages are charged to the group if it is this handle that loads or makes
    /// them.
    ///
    /// # Errors
    /// As [`Group::open`]; [`Error::NotForWriting`] for options that need [`write`](Self::write),
    /// without it; [`Error::FileInUse`] if another Pagefold or process has the file
    /// [locked](Self::lock); [`Error::PageBusy`] if a page is pinned that another one has changed
    /// since it was read; those of [`File::set_len`], for [`truncate`](Self::truncate). A file that
    /// didn't exist may have been made even so: another [`create_new`](Self::create_new) then finds
    /// it.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        let path = path.as_ref();
        if !self.write && (self.create || self.create_new || self.truncate) {
            return Err(Error::NotForWriting { path: path.to_owned() });
        }
        let access = match (self.write, self.create, self.create_new) {
            (false, ..) => Access::Read,
            (true, false, false) => Access::Write,
            (true, true, false) => Access::Create,
            (true, _, true) => Access::CreateNew,
        };
        let file = File::open(&self.group, path, access)?;
        if self.write && self.lock {
            file.handle().file.take_lock()?;
        }
        if self.truncate {
            file.set_len(0)?;
        }
        Ok(file)
    }
}
