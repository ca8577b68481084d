//! The older designs: each group has an active and an inactive list. One lock protects the lists of
//! all groups, or each group has a lock.
//!
//! Readers find pages without a lock, and count themselves while they read, as in Linux since
//! 2.6.27. Pages that are used twice are activated 15 at a time, and new pages are listed 15 at a
//! time. A reader that has no free page takes 32 pages, one by one, off the inactive list under the
//! lock. It puts back those that are being read.

use std::marker::PhantomData;

use sync::atomic::{AtomicU32, Backoff, Ordering};

use super::{MEMORY, PART, PageCache, measure};
use crate::experiments::older::NODES;
use crate::experiments::older::lru_lists::BATCH;
use crate::experiments::older::records::Pages;
use crate::experiments::older::ring::Ring;
use crate::experiments::older::spin_lock::SpinLock;
use crate::scaling::experiment::Scheme;

/// One lock.
pub(super) const GLOBAL: Scheme = Scheme {
    name: "global-lock",
    about: "one lock over the lists of all groups, as in Linux before 5.11",
    hidden: false,
    measure: measure::<Older<OneLock>>,
};

/// A lock for each group.
pub(super) const GROUP: Scheme = Scheme {
    name: "group-lock",
    about: "a lock over the lists of each group, as in Linux from 5.11 on (Alex Shi)",
    hidden: false,
    measure: measure::<Older<GroupLocks>>,
};

/// A lock for each group, held for a shorter time.
pub(super) const GROUP_CUT: Scheme = Scheme {
    name: "group-lock-cut",
    about: "the same, but reclaim fetches the last pages' records before it takes the lock, and cuts the pages off at \
            once (only when asked for)",
    hidden: true,
    measure: measure::<Older<GroupLocksCut>>,
};

/// Pages that reclaim takes off in one go: Linux's.
const RECLAIM: usize = 32;

/// Bits of a page's `flags`.
const REFERENCED: u32 = 1;
const ACTIVE: u32 = 2;
/// A page's `below` is the number of its readers, or this: the page belongs to the thread that
/// froze it.
const FROZEN: u32 = 1 << 31;

/// What a page's slot says.
const VACANT: u32 = 0;
const LOADING: u32 = u32::MAX;

/// The lists of a group.
#[derive(Default)]
struct Group {
    lock: SpinLock,
    inactive: Ring,
    active: Ring,
}

/// Which lock protects lists, and for how long reclaim holds it.
trait Locking: Sync {
    /// One lock protects the lists of all groups.
    const ONE: bool = false;
    /// Reclaim cuts pages off at once, rather than move them one by one.
    const CUT: bool = false;
}

struct OneLock;
struct GroupLocks;
struct GroupLocksCut;

impl Locking for OneLock {
    const ONE: bool = true;
}
impl Locking for GroupLocks {}
impl Locking for GroupLocksCut {
    const CUT: bool = true;
}

struct Older<L> {
    of: PhantomData<L>,
    pages: Pages,
    /// A page's record, plus one: a file's page table, as flat as Pagefold's.
    slots: Box<[AtomicU32]>,
    groups: Box<[Group]>,
}

struct Reader {
    first: usize,
    group: usize,
    free: Vec<u32>,
    entering: Vec<u32>,
    activating: Vec<u32>,
}

impl<L: Locking> Older<L> {
    fn lists<T>(&self, group: usize, what: impl FnOnce(&Group) -> T) -> T {
        let group = &self.groups[group];
        let lock = if L::ONE { &self.groups[0].lock } else { &group.lock };
        lock.with(|| what(group))
    }

    fn ring<'a>(&self, group: &'a Group, page: u32) -> &'a Ring {
        // Relaxed, as all that is under the lock.
        if self.pages.record(page).flags.load(Ordering::Relaxed) & ACTIVE == 0 {
            &group.inactive
        } else {
            &group.active
        }
    }

    /// Marks a page as used: the second time it is to become active.
    fn used(&self, reader: &mut Reader, page: u32) {
        let flags = &self.pages.record(page).flags;
        let now = flags.load(Ordering::Relaxed);
        if now & REFERENCED == 0 {
            flags.fetch_or(REFERENCED, Ordering::Relaxed);
        } else if now & ACTIVE == 0 {
            reader.activating.push(page);
            if reader.activating.len() == BATCH {
                self.activate(reader);
            }
        }
    }

    fn activate(&self, reader: &mut Reader) {
        self.lists(reader.group, |group| {
            for page in reader.activating.drain(..) {
                let record = self.pages.record(page);
                // The page may have been taken off meanwhile, or activated by another reader.
                if record.listed.load(Ordering::Relaxed) == 1
                    && record.flags.load(Ordering::Relaxed) & ACTIVE == 0
                    && record.owner.load(Ordering::Relaxed) / PART as u32 == reader.first as u32 / PART as u32
                {
                    group.inactive.unlink(&self.pages, page);
                    record.flags.store(ACTIVE, Ordering::Relaxed);
                    group.active.push(&self.pages, page);
                }
            }
        });
    }

    fn enter(&self, reader: &mut Reader) {
        self.lists(reader.group, |group| {
            for page in reader.entering.drain(..) {
                self.pages.record(page).listed.store(1, Ordering::Relaxed);
                group.inactive.push(&self.pages, page);
            }
        });
    }

    /// Takes pages off the inactive list. First moves pages there from the active list if the
    /// inactive list is shorter.
    fn isolate(&self, group: &Group, into: &mut Vec<u32>) {
        if L::CUT {
            return self.cut(group, into);
        }
        for _ in 0..RECLAIM {
            if group.inactive.len() < group.active.len()
                && let Some(page) = group.active.last()
            {
                group.active.unlink(&self.pages, page);
                self.pages.record(page).flags.store(0, Ordering::Relaxed);
                group.inactive.push(&self.pages, page);
            }
            let Some(page) = group.inactive.last() else { return };
            group.inactive.unlink(&self.pages, page);
            self.pages.record(page).listed.store(0, Ordering::Relaxed);
            into.push(page);
        }
    }

    /// Does the same with all pages at once.
    fn cut(&self, group: &Group, into: &mut Vec<u32>) {
        if group.inactive.len() < group.active.len() {
            for page in group.active.cut_last(&self.pages, RECLAIM) {
                self.pages.record(page).flags.store(0, Ordering::Relaxed);
                group.inactive.push(&self.pages, page);
            }
        }
        for page in group.inactive.cut_last(&self.pages, RECLAIM) {
            self.pages.record(page).listed.store(0, Ordering::Relaxed);
            into.push(page);
        }
    }

    fn reclaim(&self, reader: &mut Reader) {
        self.enter(reader);
        let mut isolated = Vec::with_capacity(RECLAIM);
        if L::CUT {
            let Group { inactive, active, .. } = &self.groups[reader.group];
            [inactive, active].iter().for_each(|ring| ring.prefetch_last(&self.pages, RECLAIM));
        }
        self.lists(reader.group, |group| self.isolate(group, &mut isolated));
        let mut stay = Vec::new();
        for page in isolated {
            let record = self.pages.record(page);
            // Acquire, with the Release of readers: they are done with the page.
            if record.below.compare_exchange(0, FROZEN, Ordering::Acquire, Ordering::Relaxed).is_ok() {
                self.slots[record.owner.load(Ordering::Relaxed) as usize].store(VACANT, Ordering::Relaxed);
                record.flags.store(0, Ordering::Relaxed);
                reader.free.push(page);
            } else {
                stay.push(page);
            }
        }
        self.lists(reader.group, |group| {
            for page in stay {
                self.pages.record(page).listed.store(1, Ordering::Relaxed);
                self.ring(group, page).push(&self.pages, page);
            }
        });
    }

    /// Reads a page that is in memory.
    fn hit(&self, reader: &mut Reader, at: usize, found: u32, into: &mut [u8]) -> bool {
        let page = found - 1;
        let record = self.pages.record(page);
        if record.below.fetch_add(1, Ordering::Acquire) & FROZEN != 0 || self.slots[at].load(Ordering::Relaxed) != found
        {
            record.below.fetch_sub(1, Ordering::Release);
            return false;
        }
        self.pages.copy(page, into);
        self.used(reader, page);
        record.below.fetch_sub(1, Ordering::Release);
        true
    }

    /// Brings a page into memory. Returns false if another reader is loading it.
    fn load(&self, reader: &mut Reader, at: usize, into: &mut [u8]) -> bool {
        let page = loop {
            match reader.free.pop() {
                Some(page) => break page,
                None => self.reclaim(reader),
            }
        };
        if self.slots[at].compare_exchange(VACANT, LOADING, Ordering::Relaxed, Ordering::Relaxed).is_err() {
            reader.free.push(page);
            return false;
        }
        let record = self.pages.record(page);
        self.pages.zero(page);
        self.pages.copy(page, into);
        record.owner.store(at as u32, Ordering::Relaxed);
        record.flags.store(0, Ordering::Relaxed);
        record.below.fetch_and(!FROZEN, Ordering::Release);
        self.slots[at].store(page + 1, Ordering::Release);
        reader.entering.push(page);
        if reader.entering.len() == BATCH {
            self.enter(reader);
        }
        true
    }
}

impl<L: Locking> PageCache for Older<L> {
    type Reader = Reader;

    fn new(parts: usize, one_group: bool) -> Self {
        let pages = Pages::new(parts * MEMORY as usize / NODES + 1);
        pages.records.iter().for_each(|record| record.below.store(FROZEN, Ordering::Relaxed));
        let slots = (0..parts as u64 * PART).map(|_| AtomicU32::new(VACANT)).collect();
        let groups = (0..if one_group { 1 } else { parts }).map(|_| Group::default()).collect();
        Self { of: PhantomData, pages, slots, groups }
    }

    fn begin(&self, part: usize, reader: usize) -> Reader {
        let first = part * MEMORY as usize + reader * MEMORY as usize / 2;
        Reader {
            first: part * PART as usize,
            group: part % self.groups.len(),
            free: (first as u32..(first + MEMORY as usize / 2) as u32).collect(),
            entering: Vec::with_capacity(BATCH),
            activating: Vec::with_capacity(BATCH),
        }
    }

    fn read(&self, reader: &mut Reader, page: u64, into: &mut [u8]) {
        let at = reader.first + page as usize;
        let mut backoff = Backoff::new();
        loop {
            match self.slots[at].load(Ordering::Acquire) {
                VACANT if self.load(reader, at, into) => return,
                VACANT => {}
                LOADING => backoff.wait(),
                found if self.hit(reader, at, found, into) => return,
                _ => backoff.wait(),
            }
        }
    }
}
