//! Address spaces: memory that isn't a file's, at addresses of its own, mapped and unmapped by many threads at once.
//!
//! **There is no object for an area.** What is mapped at a page is said by the page's *entry* in one index (`index`): bits
//! for reading and writing, or nothing. An area is a run of pages with the same entry, and exists only in listings and
//! messages. So there is nothing that two changes within one area share, nothing to split or to merge, and one way only
//! to find out what is at an address.
//!
//! ```text
//!   unmap [2 MiB, 4 MiB)            protect [0, 2 MiB)         one area of 8 MiB
//!   range write lock of its own     range write lock of its own: disjoint, at once
//!   entries of its pages = none     entries of its pages = read-only
//!                    listed after: 0-2 r, (2-4 nothing), 4-8 rw: right whoever was first
//! ```
//! The entry of 2 MiB that are all alike is one word, so mapping 128 MiB stores 64 of them.
//!
//! **Page words lie by address** (`region`): each GiB that was ever mapped has a page map, and a page of it its word in
//! there: *vacant* until first touched. Looking up costs no more than in a file, and mapping again needs nothing new.
//!
//! | | excludes each other by |
//! |---|---|
//! | map, unmap, protect, drop of one range | range write lock |
//! | first touches of one page | page word: *vacant* → *loading* |
//! | first touch against unmap | S1 |
//! | write against protect and unmap | S1, by the page's frozen frame |
//! | read against everything | nothing: it looks at the entry, then reads as from a file |
//!
//! - S1. Who changes a page (a toucher with the word in *loading*, a writer with the frame frozen) looks at the entry
//!   again while it has the page; who changes entries looks at the pages after it has changed them, and waits for whoever
//!   has one. A fence on each side, so at least one sees the other:
//!   ```text
//!     toucher: word = loading        unmap: entry = none
//!              fence                        fence
//!              entry? mapped: publish       word? loading: wait, then take the page out
//!   ```
//!   So nothing is in memory that isn't mapped, once unmap has returned, and nothing is written after protect has.
//! - S2. A touch takes no lock, and a hit writes nothing that is shared. It obtains its frame before it has the word.
//!
//! A page that was never written is zeros, and takes no memory: reading doesn't touch it. Pages of a space aren't on their
//! group's lists and aren't evicted, as there is no place to bring them to; the group's limit answers with an error.

mod access;
mod address;
mod index;
mod listing;
mod region;
mod touch;
mod warm;

pub use address::Protection;
pub use listing::Area;

use std::fmt;
use std::ops::Range;

use range_lock::{LockRange, RangeLock};
use sync::Arc;
use sync::atomic::{Backoff, Ordering, fence};

use crate::error::Error;
use crate::group::Group;
use crate::manager::Manager;
use address::{Addresses, Pages};
use index::{Entry, Index};
use warm::WarmFrames;

/// An address space of a group: anonymous memory at addresses from 0 to 2^47. Clones are the same space; with the last one
/// its memory is freed.
#[derive(Clone)]
pub struct Space {
    state: Arc<SpaceState>,
}

/// What the handles of a space share.
struct SpaceState {
    group: Group,
    index: Index,
    /// Of changes to the index.
    lock: RangeLock,
    addresses: Addresses,
    warm: WarmFrames,
    page_shift: u32,
}

impl Space {
    /// An empty space.
    pub(crate) fn new(group: &Group) -> Result<Self, Error> {
        let manager = group.pagefold().manager();
        manager.refuse_child()?;
        let page_shift = manager.frames.page_size().trailing_zeros();
        let index = Index::new(manager, page_shift)?;
        let state = SpaceState {
            group: group.clone(),
            index,
            lock: RangeLock::with_unit_bits(page_shift),
            addresses: Addresses::new(page_shift),
            warm: WarmFrames::new(),
            page_shift,
        };
        Ok(Self { state: Arc::new(state) })
    }

    /// Maps `len` bytes of zeros, rounded up to whole pages, where there is room. Says where: the range's start is whole
    /// pages. No memory is taken before pages are written to.
    ///
    /// # Errors
    /// [`Error::BadAddress`] for no bytes or too many; [`Error::NoAddresses`]; no room in the budget for the index.
    pub fn map(&self, len: u64, protection: Protection) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        let count = state.count(len)?;
        loop {
            let pages = state.addresses.take(count).ok_or(Error::NoAddresses { len })?;
            // Somebody may have asked for these addresses by name.
            if state.map_pages(pages, protection)? {
                return Ok(state.bytes(pages));
            }
        }
    }

    /// Maps `range`, in which nothing is mapped yet.
    ///
    /// # Errors
    /// [`Error::BadAddress`] unless the range is whole pages below 2^47; [`Error::Mapped`]; as [`map`](Self::map).
    pub fn map_at(&self, range: Range<u64>, protection: Protection) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        if state.map_pages(pages, protection)? { Ok(()) } else { Err(Error::Mapped { range }) }
    }

    /// Unmaps `range` and frees its memory. Any part of what is mapped will do; all of it has to be.
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::NotMapped`], with nothing changed.
    pub fn unmap(&self, range: Range<u64>) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        state.change(pages, Entry::NONE)?;
        state.addresses.give(pages);
        Ok(())
    }

    /// Changes what may be done with the memory in `range`, all of which is mapped. No write that isn't permitted any more
    /// happens after this has returned.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap).
    pub fn protect(&self, range: Range<u64>, protection: Protection) -> Result<(), Error> {
        let state = &*self.state;
        state.change(state.pages(&range)?, Entry::mapped(protection))
    }

    /// Frees the memory in `range`, all of which is mapped, and stays so: it is zeros again.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap).
    pub fn discard(&self, range: Range<u64>) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        let _guard = state.lock_mapped(pages)?;
        state.free(pages);
        Ok(())
    }

    /// Takes memory for all of `range` now.
    ///
    /// # Errors
    /// Those of writing: [`Error::BadAddress`], [`Error::NotMapped`], [`Error::NotPermitted`], [`Error::LimitReached`].
    pub fn populate(&self, range: Range<u64>) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        (pages.first..pages.end).try_for_each(|page| state.populate(page))
    }

    /// The group that is charged for the space's memory.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.state.group
    }
}

impl SpaceState {
    fn manager(&self) -> &Arc<Manager> {
        self.group.pagefold().manager()
    }

    /// The lock's range for pages: in bytes.
    fn lock_range(&self, pages: Pages) -> LockRange {
        let bytes = self.bytes(pages);
        LockRange::new(bytes.start, bytes.end).unwrap_or(LockRange::FULL)
    }

    /// Maps what isn't mapped. False, and nothing is changed, if some of it is.
    fn map_pages(&self, pages: Pages, protection: Protection) -> Result<bool, Error> {
        self.manager().refuse_child()?;
        self.index.prepare(self.manager(), pages)?;
        let _guard = self.lock.write(self.lock_range(pages));
        if self.index.find(pages, |entry| entry != Entry::NONE).is_some() {
            return Ok(false);
        }
        self.index.change(pages, Entry::mapped(protection));
        Ok(true)
    }

    /// The range for this thread alone, all of it mapped.
    fn lock_mapped(&self, pages: Pages) -> Result<range_lock::RangeWriteGuard<'_>, Error> {
        self.manager().refuse_child()?;
        let guard = self.lock.write(self.lock_range(pages));
        match self.index.find(pages, |entry| entry == Entry::NONE) {
            Some(page) => Err(Error::NotMapped { address: page << self.page_shift }),
            None => Ok(guard),
        }
    }

    /// Changes the entries of pages that are all mapped, and waits for those who go by the old ones (S1).
    fn change(&self, pages: Pages, to: Entry) -> Result<(), Error> {
        self.index.prepare(self.manager(), pages)?;
        let _guard = self.lock_mapped(pages)?;
        self.index.change(pages, to);
        fence(Ordering::SeqCst); // S1
        if to == Entry::NONE {
            self.free(pages);
        } else if !to.may_write() {
            self.await_writers(pages);
        }
        Ok(())
    }

    /// Waits until nobody writes to a page who began before.
    fn await_writers(&self, pages: Pages) {
        for (region, local) in self.index.regions(pages) {
            for page in region.map.pages_in_memory(local) {
                let mut backoff = Backoff::new();
                while region.is_busy(page) {
                    backoff.wait();
                }
            }
        }
    }
}

impl Drop for SpaceState {
    fn drop(&mut self) {
        if self.manager().frames.forked() {
            return;
        }
        for pages in self.index.all() {
            self.free(pages);
        }
        self.index.uncharge(self.manager());
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("group", &self.state.group.name()).finish_non_exhaustive()
    }
}
