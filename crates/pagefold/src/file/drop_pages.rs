//! Taking a file's pages out of memory whatever the policy thinks of them: truncation, advice,
//! closing.

use std::ops::Range;

use frames::Detach;
use sync::atomic::Backoff;

use crate::error::Error;
use crate::file::state::{Dropped, FileState};
use crate::lru::batch::Gone;

impl FileState {
    /// Has pages leave memory, whatever they hold.
    fn drop_pages(&self, pages: Range<u64>) -> Result<(), Error> {
        for page in self.map.pages_in_memory(pages) {
            let mut backoff = Backoff::new();
            while self.drop_page_if(page, true) != Dropped::Gone {
                backoff.wait_or(|| self.page_busy(page))?;
            }
        }
        Ok(())
    }

    /// Before the file grows by `range`, which starts at its end or after: pages that were read, or
    /// written to, when it was longer must not come back with what they had.
    pub(crate) fn forget_beyond_end(&self, range: Range<u64>) -> Result<(), Error> {
        let first = self.len().div_ceil(self.page_bytes());
        let end = range.end.div_ceil(self.page_bytes());
        if first < end { self.drop_pages(first..end) } else { Ok(()) }
    }

    /// Takes a page out of memory. What its file doesn't have is thrown away if `discard` says so;
    /// else such a page stays.
    pub(crate) fn drop_page_if(&self, page: u64, discard: bool) -> Dropped {
        let mut gone = Gone::new();
        let dropped = self.detach_page(page, discard, &mut gone);
        self.manager.free_gone(gone);
        dropped
    }

    /// Takes pages out of memory that their file has, and that aren't pinned or in use: many at a
    /// time off their lists.
    pub(crate) fn drop_clean(&self, pages: Range<u64>) {
        let mut gone = Gone::new();
        for page in self.map.pages_in_memory(pages) {
            self.detach_page(page, false, &mut gone);
            if gone.is_full() {
                self.manager.free_gone(std::mem::take(&mut gone));
            }
        }
        self.manager.free_gone(gone);
    }

    /// Takes a page out of memory; its frame, if it is on a list, is added to `gone`.
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
                    self.discarded(self.manager.frames.group(frame.id()), discarded);
                    gone.push(frame);
                    return Dropped::Gone;
                }
                // A thread that has the page frozen seldom waits for anything itself. A pin may be
                // that of a reader that only checks whether this is the page it wants.
                Detach::Pinned if self.take_kept_pin(page) => {}
                Detach::Busy | Detach::Pinned if backoff.wait_awake() => {}
                Detach::Pinned => return Dropped::Pinned,
                Detach::Busy | Detach::Loading | Detach::Unclean => return Dropped::InUse,
            }
        }
    }

    fn discarded(&self, group: u32, discarded: bool) {
        if discarded {
            self.part_of_number(group).into_iter().for_each(|part| self.manager.became_clean(&part, 1));
        }
    }
}
