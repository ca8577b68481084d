//! Readahead: turns the windows that the policy returns (`read_ahead`) into loads in flight.

use std::ops::Range;

use frames::PageState;

use crate::error::Error;
use crate::file::handle::Handle;
use crate::manager::reclaim::unwanted::Looks;
use crate::read::call::{Launched, Purpose};
use crate::read_ahead::shares::Share;
use crate::read_ahead::{Bounds, Eagerness, Window};
use io::Batch;

/// The largest window, in bytes.
const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// A window is at most 1/`LIMIT_SHARE` of the pages that the group may hold, because several
/// streams may have two windows each at the same time.
const LIMIT_SHARE: u64 = 64;
/// The most pages after a mark that are checked for being in memory.
const FOLLOWERS_MAX: u64 = 1024;

impl Handle {
    /// Begins to load pages that may be used after an access to `pages`. `missing` is the first
    /// page of `pages` that isn't in memory.
    pub(crate) fn read_ahead_of(&self, pages: Range<u64>, missing: u64) {
        let Some(bounds) = self.bounds() else { return };
        let is_used = |page| self.file.map.is_used(page);
        let window = self.look_ahead(|share| share.streams.missed(pages, missing, &is_used, &bounds));
        self.read_window(window.flatten());
    }

    /// Begins to load pages that may be used after a marked page that a reader has reached.
    #[cold]
    pub(crate) fn mark_reached(&self, page: u64) {
        let Some(bounds) = self.bounds() else { return };
        let is_there = |page: &u64| !matches!(self.file.map.state(*page), PageState::Vacant { .. });
        let followers = || (page + 1..=page + FOLLOWERS_MAX).take_while(is_there).count() as u64;
        let is_used = |page| self.file.map.is_used(page);
        let window = self.look_ahead(|share| share.streams.reached(page, followers, &is_used, &bounds));
        self.read_window(window.flatten());
    }

    fn look_ahead<T>(&self, act: impl FnOnce(&mut Share) -> T) -> Option<T> {
        self.read_ahead.here(|bytes| self.file.manager.memory.frames.try_charge_beside_maps(bytes), act)
    }

    fn read_window(&self, window: Option<Window>) {
        let Some(window) = window else { return };
        let launched = self.launch(window.ascending(), Purpose::ReadAhead(window.first()), &Batch::default());
        if let Some(queue) = launched.queue {
            let bounds = window.ascending().fold(None, |bounds: Option<Range<u64>>, page| {
                Some(bounds.map_or(page..page + 1, |it| it.start.min(page)..it.end.max(page + 1)))
            });
            self.look_ahead(|share| share.last = bounds.map(|pages| (pages, queue)));
        }
    }

    /// Returns the limits of readahead; `None` if nothing should be read ahead.
    fn bounds(&self) -> Option<Bounds> {
        if self.is_random() || !self.has_device() {
            return None;
        }
        let (counters, group) = (&self.file.counters, self.group.state());
        let now = group.now();
        let get = |counter: &sync::atomic::AtomicU64| counter.load(sync::atomic::Ordering::Relaxed);
        Some(Bounds {
            pages: self.file.len().div_ceil(self.file.page_bytes()),
            window: (WINDOW_BYTES_MAX >> self.file.page_shift()).min(self.page_limit() / LIMIT_SHARE),
            eagerness: if self.is_sequential() { Eagerness::Sequential } else { Eagerness::Normal },
            read: get(&counters.read_ahead),
            wasted: get(&counters.read_ahead_wasted),
            evicted: now.evicted(),
            waiting: group.lists.waiting(now),
        })
    }

    /// Begins to load those of `pages` that aren't in memory, because a call will use them soon.
    /// Looks only at the first 2 × [`launch_max`](Self::launch_max) pages. Stops when no missing
    /// page can be launched.
    pub(crate) fn load_soon(&self, pages: Range<u64>) {
        let most = self.launch_max();
        let end = pages.end.min(pages.start.saturating_add(most.saturating_mul(2)));
        let mut from = pages.start;
        while from < end {
            let to = end.min(from + most);
            let wanted = (from..to).filter(|&page| matches!(self.file.map.state(page), PageState::Vacant { .. }));
            if wanted.count() > 0 && self.launch(from..to, Purpose::Use, &Batch::default()).pages == 0 {
                return;
            }
            from = to;
        }
    }

    /// Implements [`File::prefetch`](crate::File::prefetch), for pages of the file.
    pub(crate) fn prefetch(&self, pages: Range<u64>) {
        let most = self.launch_max().saturating_mul(2);
        let _ = self.each_advised(pages, most, &Batch::default(), |_, _| Ok(()));
    }

    /// Begins to load `pages` because the user advised it. Does so in parts, and calls `visit`
    /// after each part. Loads at most `most` pages in all. Stops early if it could get more memory
    /// only by evicting pages in use.
    ///
    /// # Errors
    /// The errors of `visit`; [`Error::DeviceTimeout`](crate::Error::DeviceTimeout).
    pub(crate) fn each_advised(
        &self,
        pages: Range<u64>,
        most: u64,
        batch: &Batch,
        mut visit: impl FnMut(Range<u64>, Launched) -> Result<(), Error>,
    ) -> Result<(), Error> {
        let (mut from, mut left, mut looks) = (pages.start, most, Looks::new(self.group.state()));
        while from < pages.end && left > 0 {
            let part = from..pages.end.min(from + self.launch_max());
            let mut vacant = part.clone().filter(|&page| matches!(self.file.map.state(page), PageState::Vacant { .. }));
            // At most `left` pages of the part may be missing. So the part ends before missing page
            // number `left + 1`.
            let end = vacant.nth(left as usize).unwrap_or(part.end);
            let part = part.start..end;
            let missing = part.clone().filter(|&page| matches!(self.file.map.state(page), PageState::Vacant { .. }));
            let launched = match missing.count() {
                0 => Launched::default(),
                count => {
                    self.file.check_device()?;
                    left -= left.min(count as u64);
                    self.launch_advised(part.clone(), batch, &mut looks)
                }
            };
            let is_short = launched.is_short;
            from = part.end;
            visit(part, launched)?;
            if is_short {
                break;
            }
        }
        Ok(())
    }
}
