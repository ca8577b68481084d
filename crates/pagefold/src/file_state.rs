//! An open file: what all its handles share.

use std::path::{Path, PathBuf};

use frames::{Detach, PageMap};
use sync::Arc;
use sync::atomic::Backoff;
use sync::lock::Mutex;

use crate::error::Error;
use crate::io::BackingFile;
use crate::manager::Manager;
use crate::stats::Counters;

/// What an open file takes besides its page map, rounded up: its state, a handle, its path.
const OPEN_FILE_BYTES: u64 = 4 << 10;
/// A file may grow by this factor while it is open before it has to be opened again.
const GROWTH: u64 = 2;
/// And every file to this many pages.
const PAGES_MIN: u64 = 1 << 18;
/// How often a page is found pinned before it is believed.
const PINNED_ATTEMPTS: u32 = 6;

/// One file, by device and inode.
pub(crate) struct FileState {
    pub(crate) manager: Arc<Manager>,
    pub(crate) path: PathBuf,
    pub(crate) backing: Box<dyn BackingFile>,
    pub(crate) map: PageMap,
    pub(crate) counters: Arc<Counters>,
    /// The number that frames carry.
    pub(crate) owner: u32,
    page_shift: u32,
    /// Held while the length changes.
    length_change: Mutex<()>,
}

impl FileState {
    pub(crate) fn new(
        manager: &Arc<Manager>,
        path: &Path,
        backing: Box<dyn BackingFile>,
        len: u64,
    ) -> Result<Self, Error> {
        let page_shift = manager.frames.page_size().trailing_zeros();
        let pages = (len >> page_shift) + 1;
        let too_large = |_| Error::FileTooLarge { path: path.to_owned(), pages };
        let counters = Arc::new(Counters::new()?);
        manager.charge_metadata(OPEN_FILE_BYTES)?;
        let map = PageMap::new(Arc::clone(&manager.frames), pages.saturating_mul(GROWTH).max(PAGES_MIN))
            .or_else(|_| PageMap::new(Arc::clone(&manager.frames), pages))
            .map_err(too_large)
            .inspect_err(|_| manager.frames.budget().uncharge(OPEN_FILE_BYTES))?;
        map.set_len(len);
        Ok(Self {
            owner: manager.files.enrol(&counters),
            manager: Arc::clone(manager),
            path: path.to_owned(),
            backing,
            map,
            counters,
            page_shift,
            length_change: Mutex::new(()),
        })
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

    /// Asks the system for the length, which another process may have changed, takes it over and says what it is.
    ///
    /// # Errors
    /// The system's; [`Error::FileTooLarge`] if the file has a byte at `at`, but the page map no place for it.
    pub(crate) fn refresh_len(&self, at: u64) -> Result<u64, Error> {
        let _turn = self.length_change.lock();
        let before = self.len();
        let actual = self.backing.len().map_err(|error| self.read_failed(before >> self.page_shift, error))?;
        // The map has no room for more pages than this.
        let now = actual.min(self.map.pages() << self.page_shift);
        if now > before {
            // The page at the old end, and those that were there when the file was longer once, are out of date.
            let stale = before >> self.page_shift..=now >> self.page_shift;
            let all_gone = self.pages_within(stale).all(|page| self.drop_page(page));
            if !all_gone {
                return Ok(before); // Somebody has one pinned: the growth has to wait.
            }
        }
        self.map.set_len(now);
        if (now..actual).contains(&at) {
            return Err(Error::FileTooLarge { path: self.path.clone(), pages: actual >> self.page_shift });
        }
        Ok(now)
    }

    fn pages_within(&self, range: std::ops::RangeInclusive<u64>) -> impl Iterator<Item = u64> + '_ {
        self.map.pages_in_memory(*range.start()..range.end().saturating_add(1))
    }

    /// Takes a page out of memory. False if it is pinned, or being loaded.
    pub(crate) fn drop_page(&self, page: u64) -> bool {
        let frames = &*self.manager.frames;
        let mut backoff = Backoff::new();
        loop {
            match self.map.detach(page, 0) {
                Detach::Vacant | Detach::Orphaned => return true,
                Detach::Listed(frame) => {
                    let group = self.manager.groups.get(frames.group(frame.id()));
                    if let Some(group) = group {
                        group.lists.lock().unlink(frames, frame.id());
                        self.manager.release(&group, [frame]);
                    }
                    return true;
                }
                // Whoever has it frozen doesn't wait for anything.
                Detach::Busy => backoff.wait(),
                // It may be somebody who looks at the page and finds that it isn't the one he wanted.
                Detach::Pinned if backoff.turns() < PINNED_ATTEMPTS => backoff.wait(),
                Detach::Pinned | Detach::Loading => return false,
            }
        }
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
        for page in self.map.pages_in_memory(0..self.map.pages()) {
            self.drop_page(page);
        }
        self.manager.files.strike(self.owner);
        self.manager.groups.sweep();
        self.manager.frames.budget().uncharge(OPEN_FILE_BYTES);
    }
}
