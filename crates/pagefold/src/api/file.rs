//! The public file handle.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use frames::{KeptWriting, PageMap};
use sync::{Arc, CounterPlace};

use crate::api::census;
use crate::api::group::Group;
use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::page_ref::PageRef;
use crate::file::recharge;
use crate::file::watch::Pace;
use crate::read::page_future::PageFuture;
use crate::read_ahead::advice::Advice;
use crate::stats::FileStats;
use crate::stats::hits::Hits;
use crate::write::page_mut::{CopyCharge, MaybeOwned, Owner, PageAccess, PageMut};
use io::Access;

impl Group {
    /// Opens a file for reading. Pages that the returned handle loads are charged to this group. If
    /// this Pagefold has the file open already, in any group and under any name, both handles share
    /// the same cache. Another Pagefold has a cache of its own, and doesn't see writes through this
    /// Pagefold.
    ///
    /// # Errors
    /// [`Error::OpenFailed`] with the backend's error, for example
    /// [`IoError::NoLength`](crate::io::IoError::NoLength) for a pipe or a file in `/proc`.
    /// [`Error::BudgetBusy`] if the budget has no room for another open file.
    /// [`Error::FileTooLarge`] if no address space is left for the file's page map.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        File::open(self, path.as_ref(), Access::Read)
    }
}

/// An open file. Clones are the same handle. All methods may be called from many threads at once.
///
/// If the Pagefold has an [`io_timeout`](crate::Builder::io_timeout), each call that needs the
/// file's device may also fail with [`Error::DeviceTimeout`].
///
/// The fields that a hit needs are stored in the struct itself, not behind its `Arc`, so that a
/// loop over reads keeps them in registers.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// let file = group.open("data")?;
/// let mut buf = [0; 100];
/// let n = file.read_at(&mut buf, 99_950)?; // As `pread`: short at the end of the file.
/// assert_eq!(n, 50);
/// let page = file.page_at(3 * 4096)?; // Pinned: its bytes stay where they are.
/// assert_eq!(page[0], (3 * 4096 % 251) as u8);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct File {
    map: PageMap,
    /// The counter of this handle's hits.
    hits: CounterPlace,
    handle: Arc<Handle>,
    group: Group,
}

impl File {
    pub(crate) fn open(group: &Group, path: &Path, access: Access) -> Result<Self, Error> {
        let manager = group.manager();
        manager.memory.refuse_child()?;
        let (hits, place) = Hits::at_hand();
        let bytes = Handle::bytes() + place.bytes();
        let charge = manager.hold_metadata(bytes)?;
        let file = group.pagefold().files().open(path, access)?;
        let handle = Handle::of(group.handle(), file, hits, access.writes(), bytes);
        charge.hand_over();
        Ok(Self { map: handle.file.map.clone(), hits: place, handle, group: group.clone() })
    }

    /// Reads into `buf` from `offset` on, and returns the number of bytes. It is less than
    /// `buf.len()` only at the end of the file.
    ///
    /// A page that is in memory is copied without a lock, and without a write to any memory that
    /// threads share. A range of several pages is read page by page: each page is copied as it was
    /// at one moment, but different pages may be copied as of different moments.
    ///
    /// # Errors
    /// [`Error::ReadFailed`] if a page can't be loaded; the pages before it have been copied to
    /// `buf` then. [`Error::LimitReached`] if there is no memory to load a page into.
    /// [`Error::PageBusy`] if a page was written to again and again for seconds.
    /// [`Error::TooManyPins`] if 2^29 guards pin a page. [`Error::FileTooLarge`] if the process has
    /// no address space left for a page's metadata.
    #[inline(always)]
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if self.map.read_hot(offset, buf) {
            self.count_hit();
            return Ok(buf.len());
        }
        self.handle.read_pages(buf, offset)
    }

    /// Fills all of `buf` from `offset` on, or fails. Otherwise like [`read_at`](Self::read_at).
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the file ends within the range.
    #[inline(always)]
    pub fn read_exact_at(&self, buf: &mut [u8], offset: u64) -> Result<(), Error> {
        if self.map.read_hot(offset, buf) {
            self.count_hit();
            return Ok(());
        }
        self.handle.read_exact(buf, offset)
    }

    /// Pins the page that contains byte `offset`, and gives access to the whole page from its first
    /// byte on. The page's bytes neither move nor change while the guard lives. For the file's last
    /// page, the slice ends where the file ends.
    ///
    /// A pinned page can't be evicted, so pin only a small part of the group's limit at a time.
    ///
    /// A pinned page can't be written to, either. A writer waits for existing pins to end, and
    /// keeps new pins waiting for about the first 30 ms of its wait. So if the existing pins end
    /// within 30 ms, the writer waits only for them. After the 30 ms, the writer lets new pins in
    /// from time to time, so that a thread that holds a pin and waits for another one doesn't
    /// deadlock with the writer.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the file has no such page. [`Error::PageBusy`] after seconds if the
    /// page is being changed, for example through a guard of [`page_mut_at`](Self::page_mut_at) in
    /// this very thread. Otherwise those of [`read_at`](Self::read_at).
    #[inline(always)]
    pub fn page_at(&self, offset: u64) -> Result<PageRef<'_>, Error> {
        let page = offset >> self.map.page_shift();
        if let Some(pinned) = self.pin_hot(page) {
            return Ok(pinned);
        }
        self.handle.pin_page(page).map(|(frame, len)| PageRef::pinned(frame, len))
    }

    #[inline(always)]
    fn pin_hot(&self, page: u64) -> Option<PageRef<'_>> {
        let frame = self.map.pin_hot(page)?;
        self.count_hit();
        let len = frame.bytes().len();
        Some(PageRef::pinned(frame, len))
    }

    /// Pins a page like [`page_at`](Self::page_at). The guard doesn't borrow the file; it keeps the
    /// file open. If no other handle is left, dropping the guard closes the file.
    ///
    /// # Errors
    /// Those of [`page_at`](Self::page_at).
    pub fn page_at_owned(&self, offset: u64) -> Result<PageRef<'static>, Error> {
        self.page_at(offset).map(|page| self.keep(page))
    }

    /// Pins a page like [`page_at`](Self::page_at), if that is possible without I/O and without
    /// waiting: the page is in memory, and no thread writes to it. Otherwise returns `None`; then
    /// [`page_at`](Self::page_at) would wait, or return an error.
    ///
    /// Exception: if the page was read ahead and this is its first use, the call may submit reads
    /// of the next pages. A backend without threads, such as `io::Posix`, executes these reads
    /// during the call. If memory is short and there is a swap area on a device, the call may write
    /// pages there, too.
    #[must_use]
    pub fn try_page_at(&self, offset: u64) -> Option<PageRef<'_>> {
        let page = offset >> self.map.page_shift();
        let try_slowly = || self.handle.try_pin_page(page).map(|(frame, len)| PageRef::pinned(frame, len));
        self.pin_hot(page).or_else(try_slowly)
    }

    fn keep(&self, page: PageRef<'_>) -> PageRef<'static> {
        page.into_owned(&self.handle.file.manager.memory.frames, Arc::clone(&self.handle) as _)
    }

    /// Pins a page like [`page_at`](Self::page_at), but asynchronously. Nothing is loaded before
    /// the first poll. The future runs under any executor, and blocks no thread, with two
    /// exceptions: a backend without threads, such as `io::Posix`, reads during the poll; and if
    /// memory is short and there is a swap area on a device, a poll may write a batch of pages of
    /// spaces to that area, and wait for the device.
    ///
    /// If the future is dropped before it completes, the page still arrives in memory. If the page
    /// has arrived but the future hasn't been polled since, the future keeps the page pinned until
    /// a writer needs the page or memory is short. After that, the next poll may have to load the
    /// page again.
    pub fn page_at_async(&self, offset: u64) -> PageFuture<'_> {
        PageFuture::new(&self.handle, offset >> self.map.page_shift())
    }

    /// Reads like [`read_at`](Self::read_at), but asynchronously.
    ///
    /// # Errors
    /// Those of [`read_at`](Self::read_at).
    pub async fn read_at_async(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if self.map.read_hot(offset, buf) {
            self.count_hit();
            return Ok(buf.len());
        }
        let pages = self.handle.pages_of(offset, buf.len());
        if pages.end - pages.start > 1 {
            self.handle.load_soon(pages);
        }
        self.handle.read_async(buf, offset).await
    }

    /// Begins to load the pages that the byte range touches, and returns without waiting for them.
    /// Loads at most half of the group's limit, and at most 8192 pages. Takes only free memory, and
    /// memory of pages that haven't been used lately. If a page can't be read, the next reader of
    /// that page gets the error.
    ///
    /// A backend that has neither threads nor a ring of its own reads the pages during this call.
    pub fn prefetch(&self, range: Range<u64>) {
        self.handle.prefetch_range(range);
    }

    #[inline]
    pub(crate) fn map(&self) -> &PageMap {
        &self.map
    }

    #[inline]
    pub(crate) fn handle(&self) -> &Handle {
        &self.handle
    }

    pub(crate) fn count_hits(&self, hits: u64) {
        if !self.hits.try_add(hits) {
            self.handle.hits.counter.add(hits);
        }
    }

    #[inline(always)]
    fn count_hit(&self) {
        if !self.hits.try_add(1) {
            self.handle.count_slowly();
        }
    }

    /// Writes all of `buf` at `offset`, into memory. The data reaches the file within seconds, or
    /// earlier: with [`sync`](Self::sync), when the file's last handle is dropped, or when the
    /// process ends normally. If the process is killed before that, the data is lost.
    ///
    /// If the file ends before the written range, the file becomes longer, and the gap is filled
    /// with zeros. To keep other processes from appending into the gap, the call first extends the
    /// file on its device, up to the end of the bytes that it writes to the first page of the
    /// range. If the call fails after this step, the file may keep this length, with zeros after
    /// its old end.
    ///
    /// Other threads see each page as it was before the write or after the write. Exception: if the
    /// write starts past the end of the file, they may first see the file extended with zeros. A
    /// page that is overwritten entirely isn't read from the file first.
    ///
    /// If much dirty data waits for write-back, the call is delayed by some milliseconds. If the
    /// file's device doesn't answer and the group has reached its limit of dirty pages, each page
    /// of the write takes half a second longer.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::FileTooLarge`] past `i64::MAX` bytes; those of
    /// [`read_at`](Self::read_at) for a page that is partly overwritten; [`Error::LimitReached`];
    /// [`Error::PageBusy`] after seconds if a page is pinned or being changed, for example by a
    /// guard of this very thread; [`Error::WriteFailed`] if memory is full of data that can't be
    /// written to this file, or if the file can't be made longer; [`Error::ReadFailed`] if the
    /// system doesn't report the file's length. After an error, the pages before the failing page
    /// are written.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.handle.write_pages(buf, offset)
    }

    /// Returns a guard through which only this thread can change the page that contains byte
    /// `offset`. The guard dereferences to a slice, which is a copy of the whole page. When the
    /// guard is dropped, the copy replaces the page. Until then [`read_at`](Self::read_at) returns
    /// the old content, while [`page_at`](Self::page_at) and threads that write to the page wait.
    ///
    /// The page is copied twice, and the copy is charged to the group, which therefore needs room
    /// for two pages. For small changes [`write_at`](Self::write_at) is faster.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the file has no such page; [`Error::BudgetBusy`] if the budget has no
    /// room for the copy; otherwise those of [`write_at`](Self::write_at).
    pub fn page_mut_at(&self, offset: u64) -> Result<PageMut<'_>, Error> {
        self.handle.check_writable()?;
        let charge = CopyCharge::new(MaybeOwned::Borrowed(&self.handle.group))?;
        let (writing, len) = self.handle.change_page(offset >> self.map.page_shift())?;
        Ok(PageMut::new(Owner::File(MaybeOwned::Borrowed(&self.handle)), charge, PageAccess::Borrowed(writing), len))
    }

    /// Returns a guard like [`page_mut_at`](Self::page_mut_at). The guard doesn't borrow the file;
    /// it keeps the file open. If no other handle is left, dropping the guard closes the file.
    ///
    /// # Errors
    /// Those of [`page_mut_at`](Self::page_mut_at).
    pub fn page_mut_at_owned(&self, offset: u64) -> Result<PageMut<'static>, Error> {
        self.handle.check_writable()?;
        let charge = CopyCharge::new(MaybeOwned::Owned(Arc::clone(&self.handle.group)))?;
        let (writing, len) = self.handle.change_page(offset >> self.map.page_shift())?;
        let access = PageAccess::Owned(KeptWriting::of(&self.handle.file.manager.memory.frames, writing));
        Ok(PageMut::new(Owner::File(MaybeOwned::Owned(Arc::clone(&self.handle))), charge, access, len))
    }

    /// Returns a guard like [`page_mut_at`](Self::page_mut_at), if that is possible without I/O and
    /// without waiting. The page must be in memory, neither pinned nor being changed, and either
    /// dirty or charged to this handle's group. There must be room for the copy. If the file ends
    /// in this page, no other thread may be changing the file's length. Otherwise returns `None`;
    /// then [`page_mut_at`](Self::page_mut_at) would wait, or return an error.
    #[must_use]
    pub fn try_page_mut_at(&self, offset: u64) -> Option<PageMut<'_>> {
        self.handle.check_writable().ok()?;
        let charge = CopyCharge::try_new(MaybeOwned::Borrowed(&self.handle.group))?;
        let (writing, len) = self.handle.try_change_page(offset >> self.map.page_shift())?;
        Some(PageMut::new(Owner::File(MaybeOwned::Borrowed(&self.handle)), charge, PageAccess::Borrowed(writing), len))
    }

    /// Truncates the file, or extends it with zeros, at once.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::FileTooLarge`] past `i64::MAX` bytes; [`Error::PageBusy`] if
    /// an affected page is pinned or being changed; [`Error::WriteFailed`] with the backend's
    /// error. The affected pages begin with the page that contains the old or the new end of the
    /// file, whichever is lower.
    ///
    /// After an error nothing is changed. But if the file was to become shorter, other threads may
    /// have seen the shorter file for a while, even for seconds if a page is in use. In two cases
    /// the file is longer although the call fails:
    /// - Another thread pins the page with the old end just as the file is made longer, and keeps
    ///   it pinned for seconds.
    /// - The page with the old end is dirty, and its bytes in the file can't be read
    ///   ([`Error::ReadFailed`]).
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        self.handle.check_writable()?;
        self.handle.file.in_time(Pace::Length, move |file| file.set_len(len))
    }

    /// Makes everything durable that was written to the file before the call, through any handle.
    /// Does nothing if no handle has had the file open for writing since this Pagefold opened it.
    ///
    /// # Errors
    /// [`Error::WriteFailed`] if this call couldn't make the data durable, or if there was an
    /// earlier failure that wasn't reported through this handle yet. If several calls wait for the
    /// same failing write, all of them fail. Data that couldn't be written stays in memory: a later
    /// `Ok` guarantees that the file has this data. Exception: with
    /// [`IoError::CutOff`](crate::io::IoError::CutOff) changes are lost, because another process
    /// has truncated the file below the changed bytes.
    pub fn sync(&self) -> Result<(), Error> {
        self.handle.sync(None)
    }

    /// Makes the pages that the range touches durable, like [`sync`](Self::sync).
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync).
    pub fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        self.handle.sync_range(range)
    }

    /// Announces future accesses to the byte range. [`Advice::Normal`], [`Advice::Random`] and
    /// [`Advice::Sequential`] apply to all accesses through this handle, whatever the range is.
    ///
    /// # Errors
    /// For [`Advice::WillNeed`], the errors of loading, except lack of memory. For
    /// [`Advice::PageOut`], the errors of [`sync`](Self::sync).
    pub fn advise(&self, range: Range<u64>, advice: Advice) -> Result<(), Error> {
        self.handle.advise(range, advice)
    }

    /// Charges pages of the file to `group`: those in the byte range `range` that are in memory,
    /// whichever group they were charged to. Returns the number of bytes that were recharged. Skips
    /// pages that are pinned or being changed. Also skips dirty pages: [sync](Self::sync) first.
    ///
    /// First makes room by evicting `group`'s coldest pages. But if the pages to be charged exceed
    /// the group's whole limit, evicts nothing.
    ///
    /// # Errors
    /// [`Error::LimitReached`] if there is no room for a further page; the pages before it are
    /// recharged. [`Error::OtherPagefold`].
    pub fn charge_to(&self, range: Range<u64>, group: &Group) -> Result<u64, Error> {
        let file = &*self.handle.file;
        file.manager.memory.refuse_child()?;
        group.check_manager(&file.manager)?;
        let pages = range.start >> file.page_shift()..range.end.min(self.len()).div_ceil(file.page_bytes());
        let manager = &file.manager;
        recharge::make_place(
            manager,
            group.state(),
            recharge::movable(manager, file, pages.clone(), None, group.state()),
        );
        Ok(recharge::recharge(manager, file, pages, None, group.state())? * file.page_bytes())
    }

    /// Returns the file's length in bytes, including bytes that were written through this Pagefold.
    /// Another process may have changed the length since this Pagefold last asked the system for
    /// it, for example when the file was opened, or when a read met the file's end.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.handle.file.len()
    }

    /// Returns whether the file is empty.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Returns the path that the file was first opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.handle.file.path
    }

    /// Returns the group that this handle loads pages for.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// Returns the file's statistics, for all its handles together.
    #[must_use]
    pub fn stats(&self) -> FileStats {
        census::file_stats(&self.handle.file.manager, &self.handle.file)
    }

    /// Closes the file. If it is open for writing, [syncs](Self::sync) it first. When the last
    /// handle is closed or dropped, the file's pages leave memory. For many files, see
    /// [`close_all`](Self::close_all).
    ///
    /// Dropping the last handle without this call also writes dirty data back, so that other
    /// processes see the data. But it doesn't sync, so the data may be lost in a power cut. If that
    /// write-back fails, the error is only logged, and the data is lost.
    ///
    /// A handle may be neither closed nor dropped when the process ends, for example a handle in a
    /// `static`. If the process ends by `exit` or a return from `main`, the file's dirty data is
    /// written back within ten seconds, as if the handle were dropped.
    ///
    /// # Errors
    /// Those of [`sync`](Self::sync). If other handles are open, data that couldn't be written
    /// isn't lost.
    pub fn close(self) -> Result<(), Error> {
        if self.handle.writable { self.sync() } else { Ok(()) }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path()).field("len", &self.len()).finish_non_exhaustive()
    }
}
