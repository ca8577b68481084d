//! Reading ahead: from what the policy says (`read_ahead`) to loads in flight.

use std::ops::Range;

use frames::PageState;
use sync::CachePadded;
use sync::atomic::Backoff;
use sync::lock::{Mutex, MutexGuard, OnceBox};

use crate::error::Error;
use crate::file::handle::Handle;
use crate::io::{Batch, Queue};
use crate::read::flight::{Launched, Purpose};
use crate::read_ahead::{Bounds, Eagerness, Streams, Window};
use crate::reclaim::unwanted::Looks;

/// Readers on so many CPUs share what is known of their streams, also where others have met: a miss
/// may touch a line that few others do.
const CPUS_SHARING: usize = 8;
/// How often the lock is tried. Without it an access is overlooked, which does no harm.
const TURNS_MAX: u32 = 8;
/// The largest window, in bytes.
const WINDOW_BYTES_MAX: u64 = 1 << 20;
/// A window is at most this part of what the group may hold: several streams have two windows each
/// at a time.
const LIMIT_SHARE: u64 = 64;
/// Pages after a mark that are looked for.
const FOLLOWERS_MAX: u64 = 1024;

/// What a handle, or a space, knows of its readers' streams: nothing, and next to no memory, before
/// the first miss.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    first: OnceShare,
    /// Those of further CPUs, if there are more than one share has.
    more: Box<[OnceShare]>,
    /// Held while a share is made.
    making: Mutex<()>,
}

type OnceShare = OnceBox<CachePadded<Mutex<Share>>>;

#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(crate) streams: Streams,
    /// Where to help with the window that was read ahead last.
    last: Option<(Range<u64>, Queue)>,
}

const SHARE_BYTES: u64 = size_of::<CachePadded<Mutex<Share>>>() as u64;

impl Default for ReadAhead {
    fn default() -> Self {
        let more = (1..sync::cpu::count().div_ceil(CPUS_SHARING)).map(|_| OnceBox::new()).collect();
        Self { first: OnceBox::new(), more, making: Mutex::default() }
    }
}

impl ReadAhead {
    /// Bytes that this takes, without what is charged as it is made.
    pub(crate) fn bytes_at_first() -> u64 {
        ((sync::cpu::count().div_ceil(CPUS_SHARING) - 1) * size_of::<OnceShare>()) as u64
    }

    /// Bytes that were charged.
    pub(crate) fn charged(&self) -> u64 {
        [&self.first].into_iter().chain(&self.more).filter(|share| share.get().is_some()).count() as u64 * SHARE_BYTES
    }

    /// Has `act` look at what is known here. `None` if others do for long, or `try_charge` has no
    /// room for it.
    ///
    /// There is one share for all CPUs until two of them meet there. So a handle that many CPUs use
    /// now and then takes no more memory than one that a single CPU uses.
    pub(crate) fn here<T>(&self, try_charge: impl Fn(u64) -> bool, act: impl FnOnce(&mut Share) -> T) -> Option<T> {
        let (own, first) = (self.own(), &self.first);
        if own.get().is_none() && first.get().is_none() {
            self.make(first, &try_charge)?;
        }
        let known = own.get().or_else(|| first.get())?;
        if let Some(mut share) = Self::lock(known) {
            return Some(act(&mut share));
        }
        if own.get().is_some() {
            return None;
        }
        self.make(own, &try_charge)?;
        Some(act(&mut *Self::lock(own.get()?)?))
    }

    /// Makes a share. `None` if there is no room for it, or another thread is making one.
    fn make(&self, share: &OnceShare, try_charge: impl Fn(u64) -> bool) -> Option<()> {
        let _making = self.making.try_lock()?;
        if share.get().is_none() {
            if !try_charge(SHARE_BYTES) {
                return None;
            }
            let _ = share.set(Box::default()); // There was none, and only one thread makes one.
        }
        Some(())
    }

    fn own(&self) -> &OnceShare {
        if self.more.is_empty() {
            return &self.first; // Without asking for the CPU.
        }
        let number = sync::cpu::current() / CPUS_SHARING % (self.more.len() + 1);
        number.checked_sub(1).map_or(&self.first, |at| &self.more[at])
    }

    fn lock(share: &Mutex<Share>) -> Option<MutexGuard<'_, Share>> {
        let mut backoff = Backoff::new();
        loop {
            let locked = share.try_lock();
            if locked.is_some() || backoff.turns() == TURNS_MAX {
                return locked;
            }
            backoff.wait();
        }
    }

    /// Where to help with the page, if it was in the window that was read ahead last.
    pub(crate) fn queue_of(&self, page: u64) -> Option<Queue> {
        let share = Self::lock(self.own().get().or_else(|| self.first.get())?)?;
        share.last.as_ref().filter(|(pages, _)| pages.contains(&page)).map(|(_, queue)| queue.clone())
    }
}

impl Handle {
    /// Begins to load what may come after an access to `pages`, which first misses at `missing`.
    pub(crate) fn read_ahead_of(&self, pages: Range<u64>, missing: u64) {
        let Some(bounds) = self.bounds() else { return };
        let is_used = |page| self.file.map.is_used(page);
        let window = self.look_ahead(|share| share.streams.missed(pages, missing, &is_used, &bounds));
        self.read_window(window.flatten());
    }

    /// Begins to load what may come after a marked page that a reader has reached.
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
        self.read_ahead.here(|bytes| self.file.manager.frames.try_charge_beside_maps(bytes), act)
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

    /// Begins to load pages that a call will come to, of the many that it wants.
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

    /// The whole of [`File::prefetch`](crate::File::prefetch), for pages of the file.
    pub(crate) fn prefetch(&self, pages: Range<u64>) {
        let most = self.launch_max().saturating_mul(2);
        let _ = self.each_advised(pages, most, &Batch::default(), |_, _| Ok(()));
    }

    /// Begins to load `pages`, which an advice says will be wanted, part by part, and has each part
    /// visited: as far as there is memory beside pages in use, and up to `most` pages.
    ///
    /// # Errors
    /// Those of `visit`; [`Error::DeviceTimeout`](crate::Error::DeviceTimeout).
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
            // Up to as many that aren't in memory as may come.
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
