//! Carries out a user's advice.

use std::ops::Range;

use frames::PageState;
use sync::atomic::Ordering;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::file::state::FileState;
use crate::lru::admission::ANONYMOUS;
use crate::lru::batch::Leftovers;
use crate::read::call::Call;
use crate::read_ahead::advice::Advice;

impl Handle {
    /// Implements [`File::advise`](crate::File::advise).
    pub(crate) fn advise(&self, range: Range<u64>, advice: Advice) -> Result<(), Error> {
        self.file.manager.memory.refuse_child()?;
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
                // Waits for the page's load. If the read of the page's run failed (F4 of `flight`),
                // loads the page alone; if this load fails too, returns its error. There is one
                // exception: if memory was short at the launch, pages that are still vacant were
                // probably left out for lack of memory. They aren't loaded here either.
                if !(is_short && matches!(self.file.map.state(page), PageState::Vacant { .. })) {
                    self.bring_in(&mut call, page)?;
                }
            }
            Ok(())
        })
    }
}

impl FileState {
    /// Makes pages the next to be evicted: moves each to the cold end of its group's LRU list
    /// *window*, and clears its history and its uses.
    fn cool(&self, pages: Range<u64>) {
        let (manager, frames) = (&*self.manager, &*self.manager.memory.frames);
        manager.memory.drain_entries();
        for page in self.map.pages_in_memory(pages) {
            let PageState::Resident { frame } = self.map.state(page) else { continue };
            let Some(isolated) = frames.isolate(frame) else { continue };
            // The frame may hold another page by now. At worst, that page is evicted next.
            let group = manager.memory.groups.get(frames.group(frame)).filter(|_| frames.owner(frame) != ANONYMOUS);
            let Some(group) = group else {
                manager.memory.return_isolated(isolated);
                continue;
            };
            let mut leftovers = Leftovers::default();
            group.lists.cool(frames, isolated, group.now(), &mut leftovers);
            manager.memory.settle(&group, leftovers);
        }
    }
}
