//! Keeps the streams of a handle's or a space's readers in *shares*. A share serves a few CPUs.

use std::ops::Range;

use sync::CachePadded;
use sync::atomic::Backoff;
use sync::lock::{Mutex, MutexGuard, OnceBox};

use crate::read_ahead::Streams;
use io::Queue;

/// All CPUs begin with one share. If a CPU can't lock it, the set of `CPUS_SHARING` CPUs to which
/// this CPU belongs gets a share of its own. Misses on these CPUs then touch a cache line that few
/// other CPUs use.
const CPUS_SHARING: usize = 8;
/// How often a thread tries to lock a share. If it never succeeds, the access isn't noted, which
/// does no harm.
const TURNS_MAX: u32 = 8;

/// The streams of a handle's, or a space's, readers. Takes next to no memory before the first miss.
#[derive(Debug)]
pub(crate) struct ReadAhead {
    first: OnceShare,
    /// The shares of further CPUs, if there are more CPUs than one share serves.
    more: Box<[OnceShare]>,
    /// Held while a share is created.
    making: Mutex<()>,
}

type OnceShare = OnceBox<CachePadded<Mutex<Share>>>;

#[derive(Debug, Default)]
pub(crate) struct Share {
    pub(crate) streams: Streams,
    /// The window that was read ahead last, and the queue of its loads. A thread that waits for
    /// them can help to process the queue's requests.
    pub(crate) last: Option<(Range<u64>, Queue)>,
}

const SHARE_BYTES: u64 = size_of::<CachePadded<Mutex<Share>>>() as u64;

impl Default for ReadAhead {
    fn default() -> Self {
        let more = (1..sync::cpu::count().div_ceil(CPUS_SHARING)).map(|_| OnceBox::new()).collect();
        Self { first: OnceBox::new(), more, making: Mutex::default() }
    }
}

impl ReadAhead {
    /// Returns the bytes that a `ReadAhead` takes before any share is created. Each share is
    /// charged when it is created.
    pub(crate) fn bytes_at_first() -> u64 {
        ((sync::cpu::count().div_ceil(CPUS_SHARING) - 1) * size_of::<OnceShare>()) as u64
    }

    /// Returns the bytes that were charged.
    pub(crate) fn charged(&self) -> u64 {
        [&self.first].into_iter().chain(&self.more).filter(|share| share.get().is_some()).count() as u64 * SHARE_BYTES
    }

    /// Calls `act` with the share for this CPU. Returns `None`, without calling `act`, if other
    /// threads hold the share for long, or if `try_charge` has no room for a new share.
    ///
    /// All CPUs use one share until two of them contend for it. So if many CPUs use a handle, but
    /// only now and then, the handle takes no more memory than a handle that a single CPU uses.
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

    /// Creates a share. Returns `None` if there is no room for it, or another thread is creating
    /// one.
    fn make(&self, share: &OnceShare, try_charge: impl Fn(u64) -> bool) -> Option<()> {
        let _making = self.making.try_lock()?;
        if share.get().is_none() {
            if !try_charge(SHARE_BYTES) {
                return None;
            }
            let _ = share.set(Box::default()); // It was empty, and only one thread fills it.
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

    /// Returns the queue in which a thread can help with the load of the page. Returns `None`
    /// unless the page was in the last window that was read ahead through this CPU's share.
    pub(crate) fn queue_of(&self, page: u64) -> Option<Queue> {
        let share = Self::lock(self.own().get().or_else(|| self.first.get())?)?;
        share.last.as_ref().filter(|(pages, _)| pages.contains(&page)).map(|(_, queue)| queue.clone())
    }
}
