//! Removes a file's pages from memory regardless of the replacement policy: for truncation, advice
//! and closing.

use std::ops::Range;

use frames::{Detach, PageState};
use sync::atomic::Backoff;

use crate::error::Error;
use crate::file::state::{Dropped, FileState};
use crate::file::watch::Pace;
use crate::lru::batch::Gone;

impl FileState {
    /// Removes pages from memory, even if they are dirty. Waits for pages that are in use or being
    /// loaded. The caller holds `extension`.
    fn drop_pages(&self, pages: Range<u64>) -> Result<(), Error> {
        for page in self.map.pages_in_memory(pages) {
            let mut backoff = Backoff::new();
            while self.drop_page_if(page, true) != Dropped::Gone {
                if self.map.state(page) == PageState::Loading {
                    self.wait_for_page(page)?; // Whether the load succeeded doesn't matter here.
                } else {
                    backoff.wait_or(|| self.page_busy(page))?;
                }
                self.progresses(Pace::Length);
            }
        }
        Ok(())
    }

    /// Removes stale pages before the file grows by `range`, which starts at the file's end or
    /// after it. Pages past the old end may have been read or written when the file was longer.
    /// Their old bytes must not reappear.
    pub(crate) fn forget_beyond_end(&self, range: Range<u64>) -> Result<(), Error> {
        let first = self.len().div_ceil(self.page_bytes());
        let end = range.end.div_ceil(self.page_bytes());
        if first < end { self.drop_pages(first..end) } else { Ok(()) }
    }

    /// Removes a page from memory. A dirty page is discarded if `discard` is set; otherwise it
    /// stays.
    pub(crate) fn drop_page_if(&self, page: u64, discard: bool) -> Dropped {
        let mut gone = Gone::new();
        let dropped = self.detach_page(page, discard, &mut gone);
        self.manager.memory.free_gone(gone);
        dropped
    }

    /// Removes clean pages that aren't pinned or in use. Unlinks their frames in batches.
    pub(crate) fn drop_clean(&self, pages: Range<u64>) {
        let mut gone = Gone::new();
        for page in self.map.pages_in_memory(pages) {
            self.detach_page(page, false, &mut gone);
            if gone.is_full() {
                self.manager.memory.free_gone(std::mem::take(&mut gone));
            }
        }
        self.manager.memory.free_gone(gone);
    }

    /// Removes a page from memory. If its frame is on a list, the frame is added to `gone`.
    fn detach_page<'a>(&'a self, page: u64, discard: bool, gone: &mut Gone<'a>) -> Dropped {
        let mut backoff = Backoff::new();
        loop {
            match self.map.detach(page, 0, discard) {
                Detach::Vacant | Detach::Swapped { .. } => return Dropped::Gone,
                Detach::Orphaned { group, discarded, .. } => {
                    self.discarded(group, discarded);
                    return Dropped::Gone;
                }
                Detach::Listed { frame, discarded, .. } => {
                    self.discarded(self.manager.memory.frames.group(frame.id()), discarded);
                    gone.push(frame);
                    return Dropped::Gone;
                }
                // A short wait usually suffices. A thread that has frozen the page seldom blocks
                // before it unfreezes the page, and a pin may belong to a reader that only checks
                // whether it found the right page.
                Detach::Pinned if self.take_kept_pin(page) => {}
                Detach::Busy | Detach::Pinned if backoff.wait_awake() => {}
                Detach::Pinned => return Dropped::Pinned,
                Detach::Busy | Detach::Loading | Detach::Unclean => return Dropped::InUse,
            }
        }
    }

    fn discarded(&self, group: u32, discarded: bool) {
        if discarded {
            self.part_of_number(group).into_iter().for_each(|part| self.manager.file_io.became_clean(&part, 1));
        }
    }
}
