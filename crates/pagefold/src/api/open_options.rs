//! How a file is opened.

use std::path::Path;

use crate::api::file::File;
use crate::api::group::Group;
use crate::error::Error;
use io::Access;

/// Options for opening a file, like [`std::fs::OpenOptions`]. Files can always be read.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
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
    /// Begins to open a file with other options than those of [`open`](Self::open).
    pub fn open_options(&self) -> OpenOptions {
        OpenOptions { group: self.clone(), write: false, create: false, create_new: false, truncate: false, lock: true }
    }
}

impl OpenOptions {
    /// Opens the file for writing, too.
    pub fn write(mut self, yes: bool) -> Self {
        self.write = yes;
        self
    }

    /// Creates the file if it doesn't exist. Requires [`write`](Self::write).
    pub fn create(mut self, yes: bool) -> Self {
        self.create = yes;
        self
    }

    /// Creates the file, which must not exist. Requires [`write`](Self::write).
    pub fn create_new(mut self, yes: bool) -> Self {
        self.create_new = yes;
        self
    }

    /// Truncates the file to no bytes. Requires [`write`](Self::write).
    pub fn truncate(mut self, yes: bool) -> Self {
        self.truncate = yes;
        self
    }

    /// Sets whether a file that is opened for writing is locked. Default: yes. Without the lock,
    /// two Pagefolds that write to the same file overwrite each other's pages, even synced ones.
    ///
    /// The lock is advisory (`flock`): it keeps out other Pagefolds, and programs that request the
    /// lock. Readers don't need the lock. All handles of one Pagefold share it. If the file system
    /// has no locks, the file is opened without a lock.
    ///
    /// The lock is released when the file's last handle is closed, or when the process ends.
    /// Exception: a child that was forked while the file was locked, and doesn't execute another
    /// program, shares the lock. If the process dies without closing the file, that child keeps the
    /// file locked.
    pub fn lock(mut self, yes: bool) -> Self {
        self.lock = yes;
        self
    }

    /// Opens the file. Pages that this handle loads or creates are charged to the group.
    ///
    /// # Errors
    /// Those of [`Group::open`]. [`Error::System`] if a thread for write-back can't be started.
    /// [`Error::ReadFailed`] and [`Error::DeviceTimeout`] if a pinned page has to be compared with
    /// the file, and its bytes in the file can't be read. [`Error::NotForWriting`] if an option
    /// requires [`write`](Self::write), and that isn't set. [`Error::FileInUse`] if another
    /// Pagefold or process has the file [locked](Self::lock). [`Error::PageBusy`] if a pinned page
    /// differs from the file because another process has changed the file since the page was read.
    /// With [`truncate`](Self::truncate), those of [`File::set_len`]. The file may have been
    /// created despite an error: a second [`create_new`](Self::create_new) then finds it.
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
