//! What users know of accesses to come, and what is made of it.

use std::ops::Range;

use frames::PageState;
use sync::atomic::Ordering;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::state::FileState;
use crate::lru::admission::ANONYMOUS;
use crate::lru::batch::Leftovers;
use crate::read::Call;

/// What the user knows about the accesses to come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
#[non_exhaustive]
pub enum Advice {
    /// Nothing.
    #[default]
    Normal,
    /// In no order.
    Random,
    /// From the front to the back, and not again soon: pages loaded by this handle start without
    /// the credit that they may have from earlier stays. Holds for the whole handle.
    Sequential,
    /// The range will be needed soon: it is loaded now, before the call returns. From its front on,
    /// as far as there is memory that isn't used, or whose pages aren't: no more than the group's
    /// limit can hold, and pages in use stay.
    WillNeed,
    /// The range won't be needed soon: pages that lie in it as a whole leave memory, unless they
    /// are pinned or their file doesn't have them yet.
    DontNeed,
    /// The range is used less than other memory: its pages are evicted before others.
    Cold,
    /// The range won't be needed for long: what differs from the file is written to it, and then
    /// all its pages leave memory, unless they are pinned.
    PageOut,
}

impl Handle {
    /// The whole of [`File::advise`](crate::File::advise).
    pub(crate) fn advise(&self, advice: Advice, range: Range<u64>) -> Result<(), Error> {
        let shift = self.file.page_shift();
        let end = range.end.min(self.file.len());
        let pages = range.start >> shift..end.div_ceil(1 << shift);
        match advice {
            Advice::Normal | Advice::Random | Advice::Sequential => {
                self.advice.store(advice as u8, Ordering::Relaxed);
            }
            Advice::WillNeed if range.start < end => {
                self.will_need(pages)?;
            }
            Advice::DontNeed => {
                let first = range.start.div_ceil(1 << shift);
                let after = if end == self.file.len() { pages.end } else { end >> shift };
                self.file.drop_clean(first..after.max(first));
            }
            Advice::Cold => self.file.cool(pages),
            Advice::PageOut if range.start < end => {
                self.sync(Some(pages.clone()))?;
                self.file.drop_clean(pages);
            }
            Advice::WillNeed | Advice::PageOut => {}
        }
        Ok(())
    }
}

impl Handle {
    fn will_need(&self, pages: Range<u64>) -> Result<(), Error> {
        let mut call = Call::told(pages.clone());
        let batch = call.batch();
        self.each_advised(pages, self.page_limit(), &batch, |part, launched| {
            let is_short = launched.is_short;
            call.begin(part.clone());
            call.launched = part.end;
            call.add(launched);
            for page in part {
                // Without memory for all, those that were left out stay out. Otherwise one that
                // isn't there couldn't be read.
                if !(is_short && matches!(self.file.map.state(page), PageState::Vacant { .. })) {
                    self.bring_in(&mut call, page)?;
                }
            }
            Ok(())
        })
    }
}

impl FileState {
    /// Has pages evicted before others: they go to the cold ends of their groups' lists, as never
    /// used.
    fn cool(&self, pages: Range<u64>) {
        let (manager, frames) = (&*self.manager, &*self.manager.frames);
        manager.drain_entries();
        for page in self.map.pages_in_memory(pages) {
            let PageState::Resident { frame } = self.map.state(page) else { continue };
            let Some(isolated) = frames.isolate(frame) else { continue };
            // It may have become another page's: that loses a place on a list at most, if it is on
            // one.
            let group = manager.groups.get(frames.group(frame)).filter(|_| frames.owner(frame) != ANONYMOUS);
            let Some(group) = group else {
                manager.return_isolated(isolated);
                continue;
            };
            let mut leftovers = Leftovers::default();
            group.lists.cool(frames, isolated, &mut leftovers);
            manager.settle(&group, leftovers);
        }
    }
}
