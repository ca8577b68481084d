//! The state of an open file, which all its handles share.

use std::path::{Path, PathBuf};

use frames::{PageMap, PageState};
use sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Backoff, Ordering};
use sync::lock::{Mutex, OnceCell};
use sync::{Arc, tasks};

use crate::dirty::error_latch::ErrorLatch;
use crate::dirty::file_dirt::FileDirt;
use crate::dirty::turn::Writeback;
use crate::error::Error;
use crate::file::in_flight::InFlight;
use crate::file::table::FileTable;
use crate::file::watch::{Pace, WatchCell};
use crate::group::table::SWEPT_GROUPS;
use crate::manager::Manager;
use crate::manager::group_handle::GroupHandle;
use crate::stats::Counters;
use crate::stats::hits::HitsList;
use io::{Access, BackingFile, Identity, IoError, uninterrupted};

/// The bytes that an open file takes besides its page map, path and handles, rounded up: for its
/// state, its counters, the backend's file, and entries in tables.
const OPEN_FILE_BYTES: u64 = 1 << 10;
/// Hits are fastest on a file's first pages, whose page words lie in one run. If enough page words
/// are free, that run covers this many times the pages that the file has when it is opened
/// (`PageMap::growing`).
const GROWTH: u64 = 2;
/// The least number of pages that the run covers, if enough page words are free.
const PAGES_MIN: u64 = 1 << 18;
/// The same least number if the file is opened for writing: 64 GiB of 4 KiB pages.
const WRITER_PAGES_MIN: u64 = 1 << 24;

/// Only a limited number of workers serve one device number at a time. So the closing of an idle
/// file, which has neither loads in flight nor dirty pages, is queued under its device's number
/// with this bit inverted. Such a closing seldom needs the device, and shouldn't wait behind work
/// for a device that doesn't answer. Its progress doesn't restart the timeouts of the device's
/// queued errands (WATCH-3 of `watchdog`).
const IDLE: u64 = 1 << 63;

/// The state of one file, identified by device and inode.
pub(crate) struct FileState {
    pub(crate) manager: Arc<Manager>,
    /// The table that the file removes itself from.
    table: Arc<FileTable<Self>>,
    pub(crate) path: PathBuf,
    pub(crate) backing: Arc<dyn BackingFile>,
    pub(crate) map: PageMap,
    pub(crate) counters: Arc<Counters>,
    /// The hits of the file's open handles, and of mappings.
    pub(crate) hits: HitsList,
    /// The file's number in the records of its pages' frames.
    pub(crate) owner: u32,
    page_shift: u32,
    /// The file as it was first opened for writing, if it was.
    writer: OnceCell<Arc<dyn BackingFile>>,
    /// Whether `writer` holds the file's lock.
    is_locked: Mutex<bool>,
    /// The length that the file is known to have on its device (`length`).
    pub(crate) disk_len: AtomicU64,
    /// Held by the thread that changes the length (`length`).
    pub(crate) extension: Mutex<()>,
    /// Whether `set_len` is truncating the file: `len` is lower already, but the file isn't shorter
    /// yet.
    pub(crate) is_cutting: AtomicBool,
    /// How often a truncation by another process was adopted. `last_cut` has the number and the new
    /// length of the last such truncation. It is set before `cuts` counts the truncation (L5 of
    /// `write`).
    pub(crate) cuts: AtomicU64,
    pub(crate) last_cut: Mutex<(u64, u64)>,
    pub(crate) writeback: Writeback,
    pub(crate) dirt: FileDirt,
    pub(crate) latch: ErrorLatch,
    /// Loads that are in flight, independent of the thread that began them.
    pub(crate) in_flight: Arc<InFlight>,
    /// How long calls wait for the device, if there is a limit.
    pub(crate) watch: WatchCell<Self>,
    /// The number of open handles.
    pub(crate) handles: AtomicUsize,
    /// The number of guards that change a page (`PageMut`), plus the number of atomic updates
    /// through mappings (`space::write`): the closure of such an update may take any time, like a
    /// guard.
    guards: AtomicUsize,
    /// The number of pages that writes through mappings are creating in memory, without reading
    /// them.
    makers: AtomicUsize,
    /// Bytes charged to the budget for the file.
    bytes: u64,
}

/// The result of an attempt to remove a page from memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Dropped {
    /// The page is no longer in memory.
    Gone,
    /// A thread has the page pinned.
    Pinned,
    /// The page is being loaded, written to or examined, or it is dirty.
    InUse,
}

impl FileState {
    pub(crate) fn new(
        manager: &Arc<Manager>,
        table: &Arc<FileTable<Self>>,
        path: &Path,
        backing: Arc<dyn BackingFile>,
        len: u64,
        access: Access,
    ) -> Result<Arc<Self>, Error> {
        let page_shift = manager.memory.frames.page_size().trailing_zeros();
        let pages = (len >> page_shift) + 1;
        let too_large = |_| Error::FileTooLarge { path: path.to_owned(), pages };
        let counters = Arc::<Counters>::default();
        let least = if access.writes() { WRITER_PAGES_MIN } else { PAGES_MIN };
        let roomy = pages.saturating_mul(GROWTH).max(least);
        let map = PageMap::growing(Arc::clone(&manager.memory.frames), pages, roomy).map_err(too_large)?;
        let bytes = OPEN_FILE_BYTES + path.as_os_str().len() as u64 + map.length_bytes();
        manager.charge_metadata(bytes)?;
        map.set_len(len);
        Ok(Arc::new(Self {
            owner: manager.memory.owners.enrol(&counters),
            manager: Arc::clone(manager),
            table: Arc::clone(table),
            path: path.to_owned(),
            backing,
            map,
            counters,
            hits: HitsList::default(),
            page_shift,
            writer: OnceCell::new(),
            is_locked: Mutex::new(false),
            disk_len: AtomicU64::new(len),
            extension: Mutex::new(()),
            is_cutting: AtomicBool::new(false),
            cuts: AtomicU64::new(0),
            last_cut: Mutex::default(),
            writeback: Writeback::default(),
            dirt: FileDirt::default(),
            latch: ErrorLatch::default(),
            in_flight: Arc::default(),
            watch: WatchCell::new(),
            handles: AtomicUsize::new(0),
            guards: AtomicUsize::new(0),
            makers: AtomicUsize::new(0),
            bytes,
        }))
    }

    #[inline]
    pub(crate) fn page_shift(&self) -> u32 {
        self.page_shift
    }

    pub(crate) fn page_bytes(&self) -> u64 {
        1 << self.page_shift
    }

    /// Returns the file for writing, if it is open for writing.
    pub(crate) fn writer(&self) -> Option<&dyn BackingFile> {
        self.writer.get().map(|writer| &**writer)
    }

    /// Sets the file to write through, unless there is one already.
    pub(crate) fn become_writable(&self, backing: Arc<dyn BackingFile>) {
        let _ = self.writer.set(backing);
    }

    /// Locks the file against other Pagefolds and processes, unless this Pagefold has locked it
    /// already. The caller must have a handle of the file, because the lock is held only while
    /// there are handles.
    ///
    /// # Errors
    /// [`Error::FileInUse`]; [`Error::OpenFailed`] with the system's error; those of
    /// [`forget_before_lock`](Self::forget_before_lock).
    pub(crate) fn take_lock(&self) -> Result<(), Error> {
        let Some(writer) = self.writer() else { return Ok(()) };
        let mut is_locked = self.is_locked.lock();
        if !*is_locked {
            uninterrupted(|| writer.lock()).map_err(|error| match error {
                IoError::BUSY => Error::FileInUse { path: self.path.clone() },
                error => Error::OpenFailed { path: self.path.clone(), error },
            })?;
            self.forget_before_lock().inspect_err(|_| writer.unlock())?;
            *is_locked = true;
        }
        Ok(())
    }

    /// Removes pages that were read before this Pagefold had the lock. The previous holder of the
    /// lock may have overwritten the bytes of such a page in the file. If the page stayed in
    /// memory, a later write-back could store its stale bytes in the file. A pinned page can't be
    /// removed; it may stay if it equals the file's content.
    ///
    /// # Errors
    /// [`Error::PageBusy`] if a page differs and stays pinned; [`Error::ReadFailed`].
    fn forget_before_lock(&self) -> Result<(), Error> {
        for page in self.map.pages_in_memory(0..self.map.pages()) {
            if self.map.state(page) == PageState::Loading {
                self.wait_for_page(page)?; // May also have been read before the lock was taken.
            }
        }
        self.drop_clean(0..self.map.pages());
        let mut backoff = Backoff::new();
        for page in self.map.pages_in_memory(0..self.map.pages()) {
            // Dirty pages stay: they were written through a handle that doesn't use the lock.
            while !self.may_be_dirty(page)
                && self.drop_page_if(page, false) != Dropped::Gone
                && !self.is_as_in_file(page)?
            {
                backoff.wait_or(|| self.page_busy(page))?;
            }
        }
        let _ = self.try_refresh_len(); // Checked again where it matters.
        Ok(())
    }

    /// Returns whether a page in memory equals the file's content, up to the known length. False if
    /// the page can't be pinned.
    fn is_as_in_file(&self, page: u64) -> Result<bool, Error> {
        let start = page << self.page_shift();
        let in_file = self.in_time(Pace::Answer, move |file| file.read_apart(start))?;
        let Ok(Some(pinned)) = self.map.pin(page) else { return Ok(false) };
        let len = self.len().saturating_sub(start).min(in_file.len() as u64) as usize;
        Ok(pinned.bytes().iter().zip(&in_file[..len]).all(|(one, other)| one == other))
    }

    /// Releases the lock if it is held, unless the file still has a handle, a dirty page, or an
    /// errand whose caller has given up. Such an errand may still change the file; it calls this
    /// function when it ends. If there is a dirty page, the flusher may still write that page, so
    /// the lock is held until this state is dropped. Closing the descriptor wouldn't reliably
    /// release the lock, because the flusher or a forked child may keep the descriptor open.
    pub(crate) fn release_lock(&self) {
        let Some(writer) = self.writer() else { return };
        let mut is_locked = self.is_locked.lock();
        // A handle that is opened concurrently is counted before it locks `is_locked`. So either
        // this thread sees the handle here, or the handle finds the file unlocked, and locks it
        // again. The thread that drops the last handle locks `is_locked` afterwards. So does the
        // thread that ends the last errand without a caller. The later of these two threads sees
        // that neither a handle nor such an errand is left. Relaxed is enough for `left`.
        let has_errands = self.watch().is_some_and(|watch| watch.left.load(Ordering::Relaxed) > 0);
        if *is_locked && self.handles.load(Ordering::Acquire) == 0 && self.unclean() == 0 && !has_errands {
            writer.unlock();
            *is_locked = false;
        }
    }

    /// Counts a guard of one of the file's pages.
    pub(crate) fn guard_begins(&self) {
        // Relaxed, like all accesses to `guards`: only a hint (`space/change`).
        self.guards.fetch_add(1, Ordering::Relaxed);
    }

    /// Ends the count of a guard.
    pub(crate) fn guard_ends(&self) {
        self.guards.fetch_sub(1, Ordering::Relaxed);
    }

    /// Counts a guard until the value is dropped.
    pub(crate) fn counted_guard(&self) -> GuardCount<'_> {
        self.guard_begins();
        GuardCount(self)
    }

    /// Returns whether there are guards that change pages of the file.
    pub(crate) fn has_guards(&self) -> bool {
        self.guards.load(Ordering::Relaxed) > 0
    }

    /// Counts a thread that writes through a mapping and is about to make a page, until the value
    /// is dropped. The thread calls this before it looks at the mapping's entry for the last time,
    /// and drops the value once the page is published.
    pub(crate) fn counted_maker(&self) -> MakerCount<'_> {
        // Relaxed: ordered by the fence before the look at the entry (S1 of `space`).
        self.makers.fetch_add(1, Ordering::Relaxed);
        MakerCount(self)
    }

    /// Returns whether a write through a mapping may be making a page. The caller has changed
    /// entries and then executed a fence. If this returns false, each such write either finds the
    /// changed entry, or is done.
    pub(crate) fn has_makers(&self) -> bool {
        // Acquire pairs with the Release of `MakerCount`: the pages that were made are seen.
        self.makers.load(Ordering::Acquire) > 0
    }

    /// Counts a new handle.
    pub(crate) fn handle_opened(&self) {
        if self.handles.fetch_add(1, Ordering::AcqRel) == 0 {
            self.in_flight.reopened();
        }
    }

    /// Completes the closing of the last handle. Waits for loads in flight and writes dirty pages
    /// back. During this time other threads can still find the file in the table.
    ///
    /// If a task's waker dropped the handle, this call returns at once, and a worker does all this
    /// and also drops the file. The reason is that the thread that calls the waker may be the
    /// thread that completes the loads. So it must not wait for the loads or for pages in use, and
    /// must not free very many pages. Until the worker is done, it keeps the handle's group alive,
    /// and so the Pagefold. So the dirty pages are written even if the process ends meanwhile. The
    /// closing of a file without dirty pages or loads doesn't queue behind work that may hang on
    /// the device (`IDLE`), because another process may be waiting for the file's lock.
    pub(crate) fn last_handle_closed(self: &Arc<Self>, group: &Arc<GroupHandle>) {
        let is_idle = self.in_flight.is_empty() && self.unclean() == 0;
        if tasks::is_waking() {
            let (file, group) = (Arc::clone(self), Arc::clone(group));
            // The closure runs after the handle that is being dropped has given up its reference to
            // the file. So the worker gives up the last reference.
            tasks::after_waking(move || file.close_by_worker(group, is_idle));
        } else if is_idle {
            self.release_lock();
        } else {
            self.close_in_time(Self::close);
        }
    }

    fn close_by_worker(self: Arc<Self>, group: Arc<GroupHandle>, is_idle: bool) {
        let manager = Arc::clone(&self.manager);
        if manager.memory.frames.forked() {
            return; // The waker has forked after it dropped the handle.
        }
        let Ok(workers) = manager.file_io.workers() else { return self.close() };
        if is_idle {
            let own = self.backing.identity();
            workers.run(Identity { device: own.device ^ IDLE, ..own }, move || {
                self.close();
                drop(self);
                drop(group);
            });
        } else {
            let _ = self.run_by_worker(move |file| {
                file.close();
                file.worker_progresses();
                drop(file);
                drop(group);
            });
        }
    }

    fn close(&self) {
        self.in_flight.wait_for_none(|| self.handles.load(Ordering::Acquire) > 0);
        if self.unclean() > 0 {
            let _ = self.write_out_despite_cuts(Self::notice_cut_in_closing); // No caller is left to report to.
        }
        self.release_lock();
    }

    /// Takes the pin that a page's mailbox holds for a future. Returns whether there was one.
    pub(crate) fn take_kept_pin(&self, page: u64) -> bool {
        self.manager.file_io.mailboxes.take_pin(self.owner, page)
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

    pub(crate) fn read_failed(&self, page: u64, error: IoError) -> Error {
        Error::ReadFailed { path: self.path.clone(), page, error }
    }
}

/// See [`FileState::counted_guard`].
pub(crate) struct GuardCount<'a>(&'a FileState);

impl Drop for GuardCount<'_> {
    fn drop(&mut self) {
        self.0.guard_ends();
    }
}

/// See [`FileState::counted_maker`].
pub(crate) struct MakerCount<'a>(&'a FileState);

impl Drop for MakerCount<'_> {
    fn drop(&mut self) {
        // Release pairs with the Acquire in `has_makers`.
        self.0.makers.fetch_sub(1, Ordering::Release);
    }
}

impl Drop for FileState {
    fn drop(&mut self) {
        if self.manager.memory.frames.forked() {
            return;
        }
        // Puts the pages that still wait in batches on their lists. Otherwise such a page of this
        // file would be freed only when its batch is full.
        self.manager.memory.drain_entries();
        // No handle is left, so no page is being loaded. Only a leaked guard can still pin a page.
        // In that case the page's frame, and its part of the page map, are never freed.
        if self.unclean() > 0 {
            let (pages, error) = (self.unclean(), self.latch.failing());
            tracing::error!(file = %self.path.display(), pages, ?error, "closed with pages that couldn't be written");
        }
        let pages = self.map.pages_in_memory(0..self.map.pages());
        // A page may be in use for a moment, by a thread that examines the page for eviction and
        // has been preempted; or forever, by a leaked `PageMut`. So the wait is limited. The limit
        // applies to all pages together, not to each page.
        let mut backoff = Backoff::new();
        let in_use: Vec<_> = pages.filter(|&page| self.drop_page_if(page, true) == Dropped::InUse).collect();
        for page in in_use {
            while self.drop_page_if(page, true) == Dropped::InUse && backoff.wait_or(|| ()).is_ok() {}
        }
        self.manager.memory.owners.remove(self.owner);
        self.table.remove(self, self.backing.identity());
        self.manager.sweep_groups(SWEPT_GROUPS);
        self.manager.memory.frames.budget().uncharge(self.bytes);
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use std::task::{Wake, Waker};

    use super::*;
    use crate::patience::WATCHDOG;
    use crate::{File, Pagefold};
    use io::Backend as _;
    use sync::lock::RwLock;
    use sync::time::Instant;
    use test_disks::SimulatedDisk;

    /// Drops a file when it is woken.
    struct Drops(Mutex<Option<File>>);

    impl Wake for Drops {
        fn wake(self: Arc<Self>) {
            drop(self.0.lock().take());
        }
    }

    /// Regression: a task's waker dropped the last handle of a file without changes, while all
    /// workers of the file's device were waiting for the device. The closing waited behind them, so
    /// the file stayed locked.
    #[test]
    fn an_idle_file_that_a_waker_drops_is_closed_beside_workers_that_hang() {
        let disk = SimulatedDisk::default();
        disk.add_bytes("file", vec![1; 4096]);
        let mm = Pagefold::builder().memory("4MiB").backend(disk.clone()).build().unwrap();
        let file = mm.group("tenant").build().unwrap().open_options().write(true).open("file").unwrap();
        let (workers, gate) = (mm.manager().file_io.workers().unwrap(), Arc::new(RwLock::new(())));
        let closed = gate.write();
        for _ in 0..100 {
            let gate = Arc::clone(&gate);
            workers.run(file.handle().file.backing.identity(), move || drop(gate.read()));
        }
        let other = disk.open(Path::new("file"), Access::Write).unwrap();
        assert_eq!(other.lock(), Err(IoError::BUSY));
        tasks::wake_all([Waker::from(Arc::new(Drops(Mutex::new(Some(file)))))]);
        let start = Instant::now();
        while other.lock().is_err() {
            assert!(start.elapsed() < WATCHDOG, "the file stays locked");
        }
        drop(closed);
    }
}
