//! Files, as their users see them.

use std::fmt;
use std::ops::Range;
use std::path::Path;

use frames::PageMap;
use sync::{Arc, CounterPlace};

use crate::api::group::Group;
use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::pinned_page::PinnedPage;
use crate::read::page_future::PageFuture;
use crate::read_ahead::advice::Advice;
use crate::stats::FileStats;
use crate::stats::hits::Hits;
use crate::write::page_mut::{CopyCharge, Owner, PageMut};
use io::Access;

impl Group {
    /// Opens a file for reading. Its pages are charged to this group if it is this handle that
    /// loads them. A file that is open already, in this group or another, under this name or
    /// another, is the same cache. That ends at the Pagefold: another one has a cache of its own,
    /// and doesn't hear of writes.
    ///
    /// # Errors
    /// The backend's, as [`IoError::NoLength`](crate::io::IoError::NoLength) for a pipe or a file
    /// in `/proc`; no room for another open file in the budget, or for its page map in the address
    /// space.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<File, Error> {
        File::open(self, path.as_ref(), Access::Read)
    }
}

/// An open file. Clones are the same handle; all methods may be called from many threads at once.
///
/// If the Pagefold has an [`io_timeout`](crate::Builder::io_timeout), each call that needs the
/// file's device may also fail with [`Error::DeviceTimeout`].
///
/// What a hit needs is kept here, not behind the handle, so that a loop over reads has it in
/// registers.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// let file = group.open("data")?;
/// let mut buf = [0; 100];
/// let n = file.read_at(&mut buf, 99_950)?; // As `pread`: short at the end of the file.
/// assert_eq!(n, 50);
/// let page = file.page(3)?; // Pinned: its bytes stay where they are.
/// assert_eq!(page[0], (3 * 4096 % 251) as u8);
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct File {
    map: PageMap,
    /// Where hits are counted.
    hits: CounterPlace,
    handle: Arc<Handle>,
    group: Group,
}

impl File {
    pub(crate) fn open(group: &Group, path: &Path, access: Access) -> Result<Self, Error> {
        let manager = group.manager();
        manager.refuse_child()?;
        let (hits, place) = Hits::at_hand();
        let bytes = Handle::bytes() + place.bytes();
        manager.charge_metadata(bytes)?;
        let opened = group.pagefold().files().open(path, access);
        let file = opened.inspect_err(|_| manager.frames.budget().uncharge(bytes))?;
        let handle = Handle::of(group.handle(), file, hits, access.writes(), bytes);
        Ok(Self { map: handle.file.map.clone(), hits: place, handle, group: group.clone() })
    }

    /// Reads into `buf` from `offset` on, and says how many bytes: fewer than asked for only at the
    /// end of the file.
    ///
    /// A page that is in memory is copied without a lock, and without a write to anything that
    /// threads share. Ranges that span pages are read page by page: each page is copied as it was
    /// at one moment, the range isn't.
    ///
    /// # Errors
    /// [`Error::ReadFailed`] if a page can't be loaded; earlier pages of `buf` hold their bytes
    /// then. [`Error::LimitReached`] if there is no memory to load it into. [`Error::PageBusy`] if
    /// a page was written to again and again for seconds. [`Error::FileTooLarge`] if the process
    /// has no address space left for what has to be known of a page.
    #[inline(always)]
    pub fn read_at(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if self.map.read_hot(offset, buf) {
            self.count_hit();
            return Ok(buf.len());
        }
        self.handle.read_pages(buf, offset)
    }

    /// As [`read_at`](Self::read_at), but all of `buf` or an error.
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

    /// Pins page `n` and gives access to its bytes, which neither move nor change while the guard
    /// lives. The last page of a file is as short as it is in the file.
    ///
    /// A pinned page can't be evicted, so don't keep more than a small part of the group's limit.
    /// Nor can it be written to: a writer waits for the pins that are there, and new pins wait for
    /// that writer. Pins that last some 30 ms or less don't keep a writer waiting for longer than
    /// they last.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the file has no such page; [`Error::PageBusy`] after seconds, if the
    /// page is being changed, as through a [`page_mut`](Self::page_mut) that this thread may have
    /// itself; otherwise as [`read_at`](Self::read_at).
    #[inline(always)]
    pub fn page(&self, n: u64) -> Result<PinnedPage<'_>, Error> {
        if let Some(frame) = self.map.pin_hot(n) {
            self.count_hit();
            return Ok(PinnedPage { len: frame.bytes().len(), frame });
        }
        self.handle.pin_page(n)
    }

    /// As [`page`](Self::page), without waiting: a future that runs under any executor, and parks
    /// no thread. Nothing is loaded before it is first polled.
    ///
    /// Dropped before it is done, the page arrives in memory all the same. A page that has arrived
    /// is kept for a future that isn't polled as long as no writer wants it, and memory isn't
    /// short; then it may have to be loaded once more.
    pub fn page_async(&self, n: u64) -> PageFuture<'_> {
        PageFuture::new(&self.handle, n)
    }

    /// As [`read_at`](Self::read_at), without waiting.
    ///
    /// # Errors
    /// As [`read_at`](Self::read_at).
    pub async fn read_at_async(&self, buf: &mut [u8], offset: u64) -> Result<usize, Error> {
        if self.map.read_hot(offset, buf) {
            self.count_hit();
            return Ok(buf.len());
        }
        let pages = self.handle.pages_of(offset, buf.len());
        if pages.end - pages.start > 1 {
            self.handle.load_soon(pages);
        }
        let page_bytes = self.handle.file.page_bytes();
        let mut done = 0;
        while done < buf.len() {
            let Some(at) = offset.checked_add(done as u64) else { break };
            let page = match self.page_async(at / page_bytes).await {
                Ok(page) => page,
                Err(Error::PastEnd { .. }) => break,
                Err(error) => return Err(error),
            };
            let rest = page.get((at % page_bytes) as usize..).unwrap_or_default();
            let len = rest.len().min(buf.len() - done);
            buf[done..done + len].copy_from_slice(&rest[..len]);
            done += len;
            if len == 0 || page.len() < page_bytes as usize {
                break;
            }
        }
        Ok(done)
    }

    /// Begins to load the pages that the byte range touches, and returns without waiting for them.
    /// It loads no more than fit into half of the group's limit, and only into memory that is free
    /// or whose pages aren't in use: pages in use stay. A page that can't be read is left out, and
    /// the next reader of that page gets the error.
    ///
    /// A backend without threads or a ring of its own reads before this returns.
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

    /// Writes all of `buf` at `offset`, into memory; from there it gets to the file within seconds,
    /// with [`sync`](Self::sync), when the file's last handle is dropped, or when the process ends
    /// normally: a process that is killed before loses it. A file that is shorter becomes longer;
    /// what lies between is zeros. A write that leaves such a gap makes the file itself longer
    /// first; if it then fails, the file may have zeros up to where the write would have ended in
    /// its first page.
    ///
    /// Others see each page as it was before the write or after it; with a gap, perhaps the zeros
    /// first. A page that is overwritten as a whole isn't read first. When much is waiting to get
    /// to the file the call takes longer, by milliseconds; if the file's device doesn't answer and
    /// its group has as many dirty pages as it may have, by half a second for each page.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::FileTooLarge`] past `i64::MAX` bytes; those of
    /// [`read_at`](Self::read_at) for a page of which a part is overwritten; [`Error::PageBusy`]
    /// after seconds, if one is pinned or being changed, as by a guard of this thread's;
    /// [`Error::WriteFailed`] if memory is full of what can't be written to this file. Earlier
    /// pages of `buf` are written then.
    pub fn write_at(&self, buf: &[u8], offset: u64) -> Result<(), Error> {
        self.handle.write_pages(buf, offset)
    }

    /// Page `n` to be changed as a slice, by this thread alone: a copy of the page, which becomes
    /// the page when the guard is dropped. Until then [`read_at`](Self::read_at) returns the page
    /// as it was; [`page`](Self::page) and writers of the page wait.
    ///
    /// The page is copied twice, and the copy is charged to the group: it needs room for two pages.
    /// For small changes [`write_at`](Self::write_at) takes less time.
    ///
    /// # Errors
    /// [`Error::PastEnd`] if the file has no such page; otherwise as [`write_at`](Self::write_at).
    pub fn page_mut(&self, n: u64) -> Result<PageMut<'_>, Error> {
        self.handle.check_writable()?;
        let charge = CopyCharge::new(&self.handle.file.manager, self.handle.group.state())?;
        let (writing, len) = self.handle.change_page(n)?;
        Ok(PageMut::new(Owner::File(&self.handle), charge, writing, len))
    }

    /// Cuts the file off, or makes it longer with zeros, at once.
    ///
    /// # Errors
    /// [`Error::ReadOnly`]; [`Error::FileTooLarge`] past `i64::MAX` bytes; [`Error::PageBusy`] if a
    /// page to be cut off, or cut in two, is pinned; [`Error::WriteFailed`] with the backend's
    /// answer. Nothing is changed then.
    pub fn set_len(&self, len: u64) -> Result<(), Error> {
        self.handle.check_writable()?;
        self.handle.file.in_time(move |file| file.set_len(len))
    }

    /// Makes everything that was written to the file before the call, through whatever handle,
    /// survive a power cut.
    ///
    /// # Errors
    /// [`Error::WriteFailed`] if that couldn't be done, or if there was a failure before that this
    /// handle wasn't told of. Calls that were waiting at the same time all fail. What the file
    /// doesn't have stays in memory: a later `Ok` says that it is there. But with
    /// [`IoError::CutOff`](crate::io::IoError::CutOff) changes are lost, because another process
    /// has cut the file off below them.
    pub fn sync(&self) -> Result<(), Error> {
        self.handle.sync(None)
    }

    /// As [`sync`](Self::sync), for the pages that the range touches.
    ///
    /// # Errors
    /// As [`sync`](Self::sync).
    pub fn sync_range(&self, range: Range<u64>) -> Result<(), Error> {
        self.handle.sync_range(range)
    }

    /// Tells what accesses are to come, to the byte range or, for the first three kinds, the handle
    /// as a whole.
    ///
    /// # Errors
    /// Those of loading, but not of memory, for [`Advice::WillNeed`]; those of
    /// [`sync`](Self::sync), for [`Advice::PageOut`].
    pub fn advise(&self, range: Range<u64>, advice: Advice) -> Result<(), Error> {
        self.handle.advise(range, advice)
    }

    /// Charges the file's pages in `range`, in bytes, that are in memory to `group` from now on,
    /// whichever group they were charged to. Says how many bytes. Pages that are pinned or being
    /// changed at this moment, and those that the file doesn't have yet, stay where they are:
    /// [sync](Self::sync) first.
    ///
    /// Room for them is made in `group` beforehand, at the cost of its coldest pages; none for more
    /// pages than its limit allows.
    ///
    /// # Errors
    /// [`Error::LimitReached`] where there is no room for one more, with the pages up to there
    /// recharged; [`Error::OtherPagefold`].
    pub fn charge_to(&self, range: Range<u64>, group: &Group) -> Result<u64, Error> {
        let file = &*self.handle.file;
        file.manager.refuse_child()?;
        group.check_manager(&file.manager)?;
        let pages = range.start >> file.page_shift()..range.end.min(self.len()).div_ceil(file.page_bytes());
        let manager = &file.manager;
        manager.make_place(group.state(), manager.movable(file, pages.clone(), group.state()));
        Ok(manager.recharge(file, pages, None, group.state())? * file.page_bytes())
    }

    /// The file's length in bytes, as it was when the file was last opened, or when a read last met
    /// its end. Another process may have changed it since.
    #[must_use]
    pub fn len(&self) -> u64 {
        self.handle.file.len()
    }

    /// Whether the file has no bytes.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// The path that the file was first opened with.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.handle.file.path
    }

    /// The group that this handle loads pages for.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.group
    }

    /// The file's numbers, of all its handles together.
    #[must_use]
    pub fn stats(&self) -> FileStats {
        self.handle.file.manager.file_stats(&self.handle.file)
    }

    /// Closes the file, and [syncs](Self::sync) it if it is open for writing. When its last handle
    /// is closed, or dropped, its pages leave memory. For many files there is
    /// [`close_all`](Self::close_all).
    ///
    /// Dropping the last handle instead writes what is to be written as well, so that other
    /// processes see it, but doesn't sync: it may be lost in a power cut. If writing fails, the
    /// error goes to the log alone, and the bytes are lost.
    ///
    /// A handle that is neither closed nor dropped when the process ends, as one in a `static`, is
    /// as good as dropped if the process ends by `exit` or a return from `main`: what is to be
    /// written is, within ten seconds.
    ///
    /// # Errors
    /// As [`sync`](Self::sync). With other handles open, what couldn't be written isn't lost.
    pub fn close(self) -> Result<(), Error> {
        if self.handle.writable { self.sync() } else { Ok(()) }
    }
}

impl fmt::Debug for File {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("File").field("path", &self.path()).field("len", &self.len()).finish_non_exhaustive()
    }
}
