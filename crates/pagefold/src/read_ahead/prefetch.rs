//! Reading ahead: from what the policy says (`read_ahead`) to loads in flight.

use std::ops::Range;

use frames::PageState;
use sync::CachePadded;
use sync::atomic::Backoff;
use sync::lock::Mutex;

use crate::file::handle::Handle;
use crate::io::Queue;
use crate::read::flight::Purpose;
use crate::read_ahead::{Bounds, Eagerness, Streams, Window};

/// Readers on so many CPUs share what is known of their streams: a miss may touch a line that few others do.
const CPUS_SHARING: usize = 8;
/// How often the lock is tried. Without it an access is overlooked, which does no harm.
const TURNS_MAX: u32 = 8;
/// The largest window, in bytes.
const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// A window is at most this part of what the group may hold: several streams have two windows each at a time.
const LIMIT_SHARE: u64 = 64;
/// Pages after a mark that are looked for.
const FOLLOWERS_MAX: u64 = 1024;

/// What a handle, or a space, knows of its readers' streams.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    shares: Box<[CachePadded<Mutex<Share>>]>,
}

#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(crate) streams: Streams,
    /// Where to help with what was read ahead last.
    queue: Option<Queue>,
}

impl Default for ReadAhead {
    fn default() -> Self {
        Self { shares: (0..sync::cpu::count().div_ceil(CPUS_SHARING)).map(|_| CachePadded::default()).collect() }
    }
}

impl ReadAhead {
    pub(crate) fn here<T>(&self, act: impl FnOnce(&mut Share) -> T) -> Option<T> {
        let share = &self.shares[sync::cpu::current() / CPUS_SHARING % self.shares.len()];
        let mut backoff = Backoff::new();
        loop {
            if let Some(mut share) = share.try_lock() {
                return Some(act(&mut share));
            }
            if backoff.turns() == TURNS_MAX {
                return None;
            }
            backoff.wait();
        }
    }

    pub(crate) fn queue(&self) -> Option<Queue> {
        self.here(|share| share.queue).flatten()
    }
}

impl Handle {
    /// Begins to load what may come after an access to `pages`, which first misses at `missing`.
    pub(crate) fn read_ahead_of(&self, pages: Range<u64>, missing: u64) {
        let Some(bounds) = self.bounds() else { return };
        let is_used = |page| self.file.map.is_used(page);
        let window = self.read_ahead.here(|share| share.streams.missed(pages, missing, &is_used, &bounds));
        self.read_window(window.flatten());
    }

    /// Begins to load what may come after a page whose mark says that somebody should.
    #[cold]
    pub(crate) fn mark_reached(&self, page: u64) {
        let Some(bounds) = self.bounds() else { return };
        let is_there = |page: &u64| !matches!(self.file.map.state(*page), PageState::Vacant { .. });
        let followers = || (page + 1..=page + FOLLOWERS_MAX).take_while(is_there).count() as u64;
        let is_used = |page| self.file.map.is_used(page);
        let window = self.read_ahead.here(|share| share.streams.reached(page, followers, &is_used, &bounds));
        self.read_window(window.flatten());
    }

    fn read_window(&self, window: Option<Window>) {
        let Some(window) = window else { return };
        let queue = self.launch(window.ascending(), Purpose::ReadAhead(window.first())).queue;
        if queue.is_some() {
            self.read_ahead.here(|share| share.queue = queue);
        }
    }

    /// `None` if nothing is to be read ahead.
    fn bounds(&self) -> Option<Bounds> {
        if self.is_random() || !self.has_device() {
            return None;
        }
        let (counters, group) = (&self.file.counters, self.group.state());
        let get = |counter: &sync::atomic::AtomicU64| counter.load(sync::atomic::Ordering::Relaxed);
        Some(Bounds {
            pages: self.file.len().div_ceil(self.file.page_bytes()),
            window: (WINDOW_BYTES_MAX >> self.file.page_shift()).min(self.page_limit() / LIMIT_SHARE),
            eagerness: if self.is_sequential() { Eagerness::Sequential } else { Eagerness::Normal },
            read: get(&counters.read_ahead),
            wasted: get(&counters.read_ahead_wasted),
            evicted: group.evicted_so_far(),
            waiting: group.lists.waiting(),
        })
    }

    /// The whole of [`File::prefetch`](crate::File::prefetch), for pages of the file.
    pub(crate) fn prefetch(&self, pages: Range<u64>) {
        let most = self.launch_max();
        let end = pages.end.min(pages.start.saturating_add(most.saturating_mul(2)));
        let mut from = pages.start;
        while from < end {
            let to = end.min(from + most);
            let wanted = (from..to).filter(|&page| matches!(self.file.map.state(page), PageState::Vacant { .. }));
            if wanted.count() > 0 && self.launch(from..to, Purpose::Use).pages == 0 {
                return;
            }
            from = to;
        }
    }
}
