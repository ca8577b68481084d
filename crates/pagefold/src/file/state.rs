//! An open file: what all its handles share.

use std::path::{Path, PathBuf};

use frames::PageMap;
use sync::Arc;
use sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use sync::lock::{Mutex, MutexGuard, OnceCell};

use crate::error::Error;
use crate::file::drop_pages::Dropped;
use crate::io::{Access, BackingFile, IoError};
use crate::manager::Manager;
use crate::read::flight::InFlight;
use crate::read::patience::Patience;
use crate::stats::Counters;
use crate::write::dirty::UncleanCount;
use crate::write::error_latch::ErrorLatch;
use crate::write::writeback::Writeback;

/// What an open file takes besides its page map, rounded up: its state, a handle, its path.
const OPEN_FILE_BYTES: u64 = 4 << 10;
/// A file may grow by this factor while it is open before it has to be opened again,
const GROWTH: u64 = 2;
/// and every file to this many pages;
const PAGES_MIN: u64 = 1 << 18;
/// to this many if it is opened for writing, as long as there is enough of a place for page words: 64 GiB of 4 KiB pages.
const WRITER_PAGES_MIN: u64 = 1 << 24;

/// One file, by device and inode.
pub(crate) struct FileState {
    pub(crate) manager: Arc<Manager>,
    pub(crate) path: PathBuf,
    pub(crate) backing: Arc<dyn BackingFile>,
    pub(crate) map: PageMap,
    pub(crate) counters: Arc<Counters>,
    /// The number that frames carry.
    pub(crate) owner: u32,
    page_shift: u32,
    /// Held while the length changes.
    length_change: Mutex<()>,
    /// The file as it was first opened for writing, if it was.
    writer: OnceCell<Arc<dyn BackingFile>>,
    /// How long the file is known to be where it is kept. Its own length may be more, until that is written back.
    disk_len: AtomicU64,
    /// Held by who makes the file longer, or sets its length (`write`).
    pub(crate) extension: Mutex<()>,
    pub(crate) writeback: Writeback,
    pub(crate) unclean: UncleanCount,
    /// Since when there has been something unclean, if there is.
    pub(crate) unclean_since_ms: AtomicU64,
    pub(crate) latch: ErrorLatch,
    /// Loads that go on without their thread.
    pub(crate) in_flight: Arc<InFlight>,
    /// Open handles.
    pub(crate) handles: AtomicUsize,
}

impl FileState {
    pub(crate) fn new(
        manager: &Arc<Manager>,
        path: &Path,
        backing: Arc<dyn BackingFile>,
        len: u64,
        access: Access,
    ) -> Result<Arc<Self>, Error> {
        let page_shift = manager.frames.page_size().trailing_zeros();
        let pages = (len >> page_shift) + 1;
        let too_large = |_| Error::FileTooLarge { path: path.to_owned(), pages };
        let counters = Arc::new(Counters::new()?);
        manager.charge_metadata(OPEN_FILE_BYTES)?;
        let least = if access.writes() { WRITER_PAGES_MIN } else { PAGES_MIN };
        let map_for = |pages| PageMap::new(Arc::clone(&manager.frames), pages);
        let map = map_for(pages.saturating_mul(GROWTH).max(least))
            .or_else(|_| map_for(pages.max(PAGES_MIN)))
            .or_else(|_| map_for(pages))
            .map_err(too_large)
            .inspect_err(|_| manager.frames.budget().uncharge(OPEN_FILE_BYTES))?;
        map.set_len(len);
        Ok(Arc::new(Self {
            owner: manager.files.enrol(&counters),
            manager: Arc::clone(manager),
            path: path.to_owned(),
            backing,
            map,
            counters,
            page_shift,
            length_change: Mutex::new(()),
            writer: OnceCell::new(),
            disk_len: AtomicU64::new(len),
            extension: Mutex::new(()),
            writeback: Writeback::default(),
            unclean: UncleanCount::default(),
            unclean_since_ms: AtomicU64::new(0),
            latch: ErrorLatch::default(),
            in_flight: Arc::default(),
            handles: AtomicUsize::new(0),
        }))
    }

    /// The length in bytes, as far as is known.
    #[inline]
    pub(crate) fn len(&self) -> u64 {
        self.map.len()
    }

    #[inline]
    pub(crate) fn page_shift(&self) -> u32 {
        self.page_shift
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// The file for writing, if it is open for that.
    pub(crate) fn writer(&self) -> Option<&dyn BackingFile> {
        self.writer.get().map(|writer| &**writer)
    }

    /// Has the file written to through `backing`, unless there is a way already. Then a `backing` that may have `made` the
    /// file is synced: only it knows whether the file's name has to be.
    pub(crate) fn become_writable(&self, backing: Arc<dyn BackingFile>, made: bool) -> Result<(), IoError> {
        match self.writer.set(backing) {
            Err(other) if made => other.sync(),
            _ => Ok(()),
        }
    }

    /// How long the file is where it is kept, as far as is known. Acquire pairs with `written_up_to`: who finds that a page
    /// was evicted after it had been written back finds that the file has it.
    pub(crate) fn disk_len(&self) -> u64 {
        self.disk_len.load(Ordering::Acquire)
    }

    pub(crate) fn written_up_to(&self, end: u64) {
        self.disk_len.fetch_max(end, Ordering::AcqRel);
    }

    /// The file has `len` bytes, if it hasn't more.
    pub(crate) fn grow_to(&self, len: u64) {
        let _turn = self.length_change.lock();
        if len > self.len() {
            self.map.set_len(len);
        }
    }

    /// The file has `len` bytes, here and where it is kept.
    pub(crate) fn length_is(&self, len: u64) {
        let _turn = self.length_change.lock();
        self.disk_len.store(len, Ordering::Release);
        self.map.set_len(len);
    }

    /// The file has `len` bytes, and fewer than it had.
    pub(crate) fn shrink_to(&self, len: u64) {
        let _turn = self.length_change.lock();
        self.map.set_len(len);
    }

    /// Asks the system for the length, which another process may have changed, takes it over and says what it is. What
    /// we have written past the end, and not written back yet, counts as well.
    ///
    /// # Errors
    /// The system's; [`Error::FileTooLarge`] if the file has a byte at `at`, but the page map no place for it.
    pub(crate) fn refresh_len(&self, at: u64) -> Result<u64, Error> {
        let (mut turn, mut actual) = self.look_at_len()?;
        // What we write back makes the file longer, but never shorter: if it is, nothing may be under way to it while its
        // new length is taken over.
        let suspicious = self.writer().is_some() && actual < self.disk_len();
        let mut _no_write_back = None;
        if suspicious {
            drop(turn); // It is the inner lock.
            _no_write_back = Some(self.writeback.pause());
            (turn, actual) = self.look_at_len()?;
        }
        let (before, known) = (self.len(), self.disk_len());
        let wanted = if before > known { before.max(actual) } else { actual };
        // The map has no room for more pages than this.
        let now = wanted.min(self.map.pages() << self.page_shift);
        if now > before {
            // The page at the old end, and those that were there when the file was longer once, are out of date.
            let stale = before >> self.page_shift..=now >> self.page_shift;
            let all_gone = self.pages_within(stale).all(|page| self.drop_page(page) || self.writer().is_some());
            if !all_gone {
                return Ok(before); // Somebody has one pinned: the growth has to wait.
            }
        }
        if suspicious {
            self.disk_len.store(actual, Ordering::Release);
        } else {
            self.written_up_to(actual);
        }
        self.map.set_len(now);
        drop(turn);
        if (now..actual).contains(&at) {
            return Err(Error::FileTooLarge { path: self.path.clone(), pages: actual >> self.page_shift });
        }
        Ok(now)
    }

    /// The length where the file is kept, and the lock that keeps others from changing it meanwhile.
    fn look_at_len(&self) -> Result<(MutexGuard<'_, ()>, u64), Error> {
        let turn = self.length_change.lock();
        let len = self.backing.len().map_err(|error| self.read_failed(self.len() >> self.page_shift, error))?;
        Ok((turn, len))
    }

    fn pages_within(&self, range: std::ops::RangeInclusive<u64>) -> impl Iterator<Item = u64> + '_ {
        self.map.pages_in_memory(*range.start()..range.end().saturating_add(1))
    }

    /// Takes a page out of memory that its file has. False if it is pinned, in use, or unclean.
    pub(crate) fn drop_page(&self, page: u64) -> bool {
        self.drop_page_if(page, false) == Dropped::Gone
    }

    /// The last handle is closed: what is on its way into memory arrives, and what is unclean is written while others can still find the file.
    pub(crate) fn last_handle_closed(&self) {
        self.in_flight.wait_for_none();
        if self.unclean.get() > 0 {
            let _ = self.write_back_all(); // Nobody is left to be told.
        }
    }

    pub(crate) fn too_large(&self, bytes: u64) -> Error {
        Error::FileTooLarge { path: self.path.clone(), pages: bytes >> self.page_shift }
    }

    pub(crate) fn page_busy(&self, page: u64) -> Error {
        Error::PageBusy { path: self.path.clone(), page }
    }

    pub(crate) fn write_failed(&self, error: IoError) -> Error {
        Error::WriteFailed { path: self.path.clone(), error }
    }

    pub(crate) fn read_failed(&self, page: u64, error: crate::io::IoError) -> Error {
        Error::ReadFailed { path: self.path.clone(), page, error }
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        if self.manager.frames.forked() {
            return;
        }
        // So that pages that wait to be listed are freed now, rather than when their batch is full.
        self.manager.drain_entries();
        // Nobody has a handle any more, so no page is being loaded; only leaked guards can still pin one, and those
        // keep their frame, and their part of the map, for good.
        if self.unclean.get() > 0 {
            let (pages, error) = (self.unclean.get(), self.latch.failing());
            tracing::error!(file = %self.path.display(), pages, ?error, "closed with pages that couldn't be written");
        }
        for page in self.map.pages_in_memory(0..self.map.pages()) {
            // Who looks whether to evict it may be waiting for a CPU.
            let mut patience = Patience::default();
            while self.drop_page_if(page, true) == Dropped::InUse {
                if patience.wait(|| self.page_busy(page)).is_err() {
                    break;
                }
            }
        }
        self.manager.files.strike(self.owner);
        self.manager.sweep_groups();
        self.manager.frames.budget().uncharge(OPEN_FILE_BYTES);
    }
}
