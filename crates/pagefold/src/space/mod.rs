//! Address spaces: memory and files at addresses, mapped and unmapped by many threads at once.
//!
//! **There is no object for an area.** What is mapped at a page is said by the page's *entry* in
//! one index (`index`): bits for reading and writing, and which mapped file, if any (`entry`). An
//! area is a run of pages with the same entry, and exists only in listings and messages. So there
//! is nothing that two changes within one area share, nothing to split or to merge, and one way
//! only to find out what is at an address.
//!
//! ```text
//!   unmap [2 MiB, 4 MiB)            protect [0, 2 MiB)         one area of 8 MiB
//!   range write lock of its own     range write lock of its own: disjoint, at once
//!   entries of its pages = none     entries of its pages = read-only
//!                    listed after: 0-2 r, (2-4 nothing), 4-8 rw: the same in either order
//! ```
//! The index costs what is mapped (`tree`, `index`): one word covers 512 GiB, 1 GiB, 2 MiB or a
//! page, tables of smaller words are made where a range is cut, and go when nothing is mapped in
//! them (`tidy`). A request for what isn't mapped takes nothing. All that a space takes is charged
//! to its group, within the group's limit (`account`).
//!
//! **Page words lie by address** (`region`), for memory that is no file's: each GiB in which a page
//! was written, or a range cut, has a page map, and a page of it its word in there: *vacant* until
//! first touched. Looking up costs no more than in a file. **Pages of files** are in their file's
//! page map, where all other users of the file find them, so a mapping only leads there (`mapped`),
//! and a write through the mapping is a write to the file.
//!
//! | | excludes each other by |
//! |---|---|
//! | map, unmap, protect, move, drop of one range | range write lock |
//! | first touches of one page | page word: *vacant* → *loading* |
//! | first touch against unmap | S1 |
//! | write against protect and unmap | S1, by the page's frozen frame, or the file's page in *loading* |
//! | guard of a page against unmap | S1, by the frame's pin |
//! | read against everything | nothing: S5 |
//!
//! - S1. A thread that changes a page (a toucher with the word in *loading*, a writer with the
//!   frame frozen), or pins one, looks at the entry again while it has the page. A thread that
//!   changes entries looks at the pages after it has changed their entries, and waits for each
//!   thread that has one of them. There is a fence on each side (a writer's is behind the change
//!   that froze the frame), so at least one side sees the other:
//!   ```text
//!     toucher: word = loading        unmap: entry = none
//!              fence                        fence
//!              entry? mapped: publish       word? loading: wait, then take the page out
//!   ```
//!   So nothing is in memory that isn't mapped, once unmap has returned, and nothing is written
//!   after protect has.
//! - S2. A touch takes no lock, and a hit writes nothing that CPUs share. It obtains its frame
//!   before it has the word.
//! - S3. A page that is found vacant reads as zeros, and one that was swapped out as a word as that
//!   word, only if its entry is the same before and afterwards. As the number in an entry never
//!   comes back (ENTRY-1 of `entry`), the page was mapped all the time in between.
//! - S4. The thread that unmaps a page gets the slot that the page was swapped out to, or that it
//!   kept, whatever the page was on its way to: the word tells, or the frame's record
//!   (`frames::swapping`).
//! - S5. A hit finds the entry, then the page as in a file, and looks at the entry again before it
//!   looks at the page's word again, and a written page's version: so at that moment the page was
//!   there, with these bytes, and mapped as the entry says (`read`).
//!
//! A page that was never written is zeros, and takes no memory: reading doesn't touch it. Where
//! there is swap, pages are on their group's lists as those of files are, and leave memory by
//! `swap_out`; their word says then where they are, and a fault brings them back (`fault`). Where
//! there is none, they are on no list, and the group's limit answers with an error.

mod account;
mod address;
mod advise;
mod change;
mod entry;
mod fault;
mod fault_types;
mod free;
mod free_addresses;
mod guard;
mod index;
mod lazy_table;
mod listing;
mod mapped;
mod ranges;
mod read;
mod read_along;
mod refusal;
mod region;
mod relocate;
mod slots;
mod tidy;
mod tree;
mod window;
mod word_owner;
mod write;

pub use guard::MappedPage;
pub use listing::{Area, AreaFile};

use std::fmt;
use std::ops::Range;

use frames::PageMaps;
use span_lock::RangeLock;
use sync::Arc;
use sync::atomic::{AtomicBool, Ordering};

use crate::api::file::File;
use crate::api::group::Group;
use crate::error::Error;
use crate::manager::Manager;
use crate::protection::Protection;
use crate::read_ahead::shares::ReadAhead;
use account::{Account, Payer};
use address::Pages;
use entry::Entry;
use free_addresses::FreeAddresses;
use index::Index;
use mapped::{Mapped, MappedFiles};
use tidy::Noted;

/// An address space of a group: memory and files at addresses from 0 to 2^47. Clones are the same
/// space; with the last one its memory is freed, and its files are closed.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = pagefold::io::SimulatedDisk::default();
/// # disk.add_bytes("data", (0..100_000).map(|at| (at % 251) as u8).collect::<Vec<u8>>());
/// # let mm = Pagefold::builder().memory("16MiB").backend(disk).build()?;
/// # let group = mm.group("tenant-a").build()?;
/// use pagefold::Protection;
///
/// let space = group.space()?;
/// let area = space.map(1 << 20, Protection::ReadWrite)?; // Takes no memory yet.
/// space.write_at(b"hello", area.start + 5000)?;
/// let file = group.open("data")?;
/// let mapped = space.map_file(&file, 0, file.len(), Protection::Read)?;
/// let mut byte = [0];
/// space.read_at(&mut byte, mapped.start + 300)?;
/// assert_eq!(byte[0], (300 % 251) as u8);
/// space.unmap(area)?;
/// # Ok(())
/// # }
/// ```
#[derive(Clone)]
pub struct Space {
    state: Arc<SpaceState>,
    /// At hand for hits.
    maps: PageMaps,
    /// Drops last.
    _known: Arc<Known>,
}

/// The space is found by its page words (`table`) until the last handle goes, which tears it down.
struct Known(Arc<SpaceState>);

/// What the handles of a space share.
struct SpaceState {
    group: Group,
    index: Index,
    files: MappedFiles,
    /// Of changes to the index.
    lock: RangeLock,
    addresses: FreeAddresses,
    /// How slots are walked along (`read_along`).
    read_ahead: ReadAhead,
    /// Whether what the lock takes, once it has spread, is charged.
    lock_is_charged: AtomicBool,
    /// Tables of the index that may not be needed any more.
    noted: Noted,
    page_shift: u32,
    /// Whether there ever was a guard of a page: only then does unmapping look for pins first.
    has_guards: AtomicBool,
}

impl Group {
    /// An empty address space, whose memory is charged to this group. Where there is swap, it goes
    /// there when memory is short; otherwise it isn't evicted: the group's limit answers with an
    /// error.
    ///
    /// # Errors
    /// No room in the budget for its index.
    pub fn space(&self) -> Result<Space, Error> {
        Space::new(self)
    }
}

impl Space {
    fn new(group: &Group) -> Result<Self, Error> {
        let manager = group.manager();
        manager.refuse_child()?;
        let page_shift = manager.frames.page_size().trailing_zeros();
        let account = Account::default();
        let payer = Payer { manager, group: group.state() };
        account.charge(payer, size_of::<SpaceState>() as u64 + free_addresses::CHARGED_AT_ONCE)?;
        let state = Arc::new_cyclic(|space| SpaceState {
            group: group.clone(),
            index: Index::new(manager, account, space.clone()),
            files: MappedFiles::new(manager.spaces.shared()),
            lock: RangeLock::with_unit_bits(page_shift),
            addresses: FreeAddresses::new(page_shift),
            read_ahead: ReadAhead::default(),
            lock_is_charged: AtomicBool::new(false),
            noted: Noted::default(),
            page_shift,
            has_guards: AtomicBool::new(false),
        });
        let known = Arc::new(Known(Arc::clone(&state)));
        Ok(Self { state, maps: PageMaps::new(Arc::clone(&manager.frames)), _known: known })
    }

    /// Maps `len` bytes of zeros, rounded up to whole pages, where there is room. Says where: the
    /// range's start is whole pages. No memory is taken before pages are written to.
    ///
    /// # Errors
    /// [`Error::BadAddress`] for no bytes or too many; [`Error::NoAddresses`];
    /// [`Error::LimitReached`] or no room in the budget for the index, which is charged to the
    /// group.
    pub fn map(&self, len: u64, protection: Protection) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        state.map_somewhere(len, |pages| state.map_own(pages, protection))
    }

    /// Maps `range`, in which nothing is mapped yet.
    ///
    /// # Errors
    /// [`Error::BadAddress`] unless the range is whole pages below 2^47; [`Error::Mapped`]; as
    /// [`map`](Self::map).
    pub fn map_at(&self, range: Range<u64>, protection: Protection) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        if state.map_own(pages, protection)? { Ok(()) } else { Err(Error::Mapped { range }) }
    }

    /// Maps `len` bytes of a file, rounded up to whole pages, from `offset` in it on, which is
    /// whole pages; where there is room. A write there is a write to the file, as by
    /// [`File::write_at`], and all readers of the file see it. Pages are loaded when they are first
    /// used, and charged to the space's group, which keeps the file open until no part of it is
    /// mapped any more.
    ///
    /// The file may be shorter than what is mapped, or become so: then an access past its end is an
    /// error, down to the byte. Nothing that is written here makes it longer.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for [`Protection::ReadWrite`] of a file that isn't open for writing;
    /// [`Error::BadAddress`], also for a file of another Pagefold, and for an offset above 2^62;
    /// [`Error::TooManyMappings`]; as [`map`](Self::map).
    pub fn map_file(&self, file: &File, offset: u64, len: u64, protection: Protection) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        state.map_somewhere(len, |pages| state.map_file(pages, file, offset, protection))
    }

    /// As [`map_file`](Self::map_file), at `range`, in which nothing is mapped yet.
    ///
    /// # Errors
    /// As [`map_file`](Self::map_file) and [`map_at`](Self::map_at).
    pub fn map_file_at(
        &self,
        range: Range<u64>,
        file: &File,
        offset: u64,
        protection: Protection,
    ) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        if state.map_file(pages, file, offset, protection)? { Ok(()) } else { Err(Error::Mapped { range }) }
    }

    /// Unmaps `range` and frees its memory. Any part of what is mapped will do; all of it has to
    /// be. Pages of files stay in memory as long as the file is open, and their changes get to it
    /// as ever.
    ///
    /// # Errors
    /// [`Error::BadAddress`]; [`Error::NotMapped`]; [`Error::AddressBusy`] if a page of it that is
    /// no file's is pinned, or a page is being changed for seconds. Nothing is changed then.
    /// [`Error::LimitReached`] if a part of what was mapped together goes, and the index has no
    /// room for what stays: then the range is still mapped, and its own memory
    /// [discarded](Self::discard).
    pub fn unmap(&self, range: Range<u64>) -> Result<(), Error> {
        let state = &*self.state;
        state.unmap_pages(state.pages(&range)?)
    }

    /// Changes what may be done with the memory in `range`, all of which is mapped. No write that
    /// isn't permitted any more happens after this has returned. An access that the change refuses
    /// waits until it is over.
    ///
    /// # Errors
    /// As [`unmap`](Self::unmap); [`Error::ReadOnly`], as [`map_file`](Self::map_file).
    pub fn protect(&self, range: Range<u64>, protection: Protection) -> Result<(), Error> {
        let state = &*self.state;
        let check = |run: Pages, entry: Entry| match entry.file().and_then(|number| state.mapped(number)) {
            Some(mapped) => mapped.check(protection).map_err(|error| state.at(run.first, error)),
            None => Ok(()),
        };
        state.change_protection(state.pages(&range)?, check, protection)
    }

    /// The group that is charged for the space's memory.
    #[must_use]
    pub fn group(&self) -> &Group {
        &self.state.group
    }
}

impl SpaceState {
    fn manager(&self) -> &Arc<Manager> {
        self.group.manager()
    }

    fn payer(&self) -> Payer<'_> {
        Payer { manager: self.manager(), group: self.group.state() }
    }

    /// This CPU's handle of the mapping with that number, if there is one.
    fn mapped(&self, number: u64) -> Option<Arc<Mapped>> {
        self.files.get(number)
    }

    /// Before a range is locked: charges what the lock takes, once two threads have met there.
    /// Where there is no room, the next one tries.
    fn charge_lock(&self) {
        // Relaxed: the exchange decides.
        let owes = || self.lock.table_bytes() > 0 && !self.lock_is_charged.load(Ordering::Relaxed);
        if owes() && !self.lock_is_charged.swap(true, Ordering::Relaxed) {
            let charged = self.index.account().try_charge(self.payer(), self.lock.table_bytes() as u64);
            self.lock_is_charged.store(charged, Ordering::Relaxed);
        }
    }

    /// Maps memory that is no file's. False, and nothing is changed, if something is mapped there.
    fn map_own(&self, pages: Pages, protection: Protection) -> Result<bool, Error> {
        self.map_pages(pages, Entry::own(self.manager().spaces.numbers.fresh(), protection))
    }

    /// Has `map` map as many pages as there are in `len` bytes, wherever it says that it could.
    fn map_somewhere(&self, len: u64, map: impl Fn(Pages) -> Result<bool, Error>) -> Result<Range<u64>, Error> {
        let count = self.count(len)?;
        // Before a lock is taken, here and elsewhere: it may have been held at the fork.
        self.manager().refuse_child()?;
        self.addresses.prepare(self.index.account(), self.payer())?;
        loop {
            let pages = self.take_addresses(count).ok_or(Error::NoAddresses { len })?;
            match map(pages) {
                Ok(true) => return Ok(self.bytes(pages)),
                Ok(false) => self.pass_over(pages),
                Err(error) => {
                    self.addresses.give(pages);
                    return Err(error);
                }
            }
        }
    }

    /// Addresses that no other thread is given, and where nothing is mapped as far as a look
    /// without a lock shows.
    fn take_addresses(&self, count: u64) -> Option<Pages> {
        loop {
            let pages = self.addresses.take(count)?;
            if self.is_free(pages) {
                return Some(pages);
            }
            self.pass_over(pages);
        }
    }

    /// Has addresses that were taken, and of which some turned out to be mapped at the caller's
    /// choice, be given out no more; all of what is mapped there.
    fn pass_over(&self, pages: Pages) {
        for (run, entry) in self.index.runs(pages) {
            if entry == Entry::NONE {
                self.addresses.give(run);
                continue;
            }
            let mut end = run.end;
            while end == pages.end || end > pages.end && end < Index::ALL.end {
                let (next, next_end) = self.index.run(end);
                if next == Entry::NONE {
                    break;
                }
                end = next_end.min(Index::ALL.end);
            }
            self.forget_addresses(Pages { end, ..run });
        }
    }

    /// Has addresses be given out no more that were found mapped.
    fn forget_addresses(&self, pages: Pages) {
        self.addresses.forget(pages);
        // Those that were unmapped meanwhile were given back before they were forgotten, perhaps.
        let unmapped = self.index.runs(pages).filter(|&(_, entry)| entry == Entry::NONE);
        unmapped.for_each(|(run, _)| self.addresses.give(run));
    }

    /// Maps a part of a file. False, and nothing is changed, if something is mapped there.
    fn map_file(&self, pages: Pages, file: &File, offset: u64, protection: Protection) -> Result<bool, Error> {
        let bad = |why| Error::BadAddress { address: offset, len: pages.count() << self.page_shift, why };
        if offset & ((1 << self.page_shift) - 1) != 0 {
            return Err(bad("an offset in a file that isn't whole pages"));
        }
        // So that no address is past what 64 bits count; nor any that it is grown to (`relocate`).
        if offset > 1 << 62 {
            return Err(bad("an offset past the end of any file"));
        }
        if !Arc::ptr_eq(&file.handle().file.manager, self.manager()) {
            return Err(bad("a file of another Pagefold"));
        }
        self.manager().refuse_child()?;
        let delta = (offset >> self.page_shift).wrapping_sub(pages.first);
        let number = self.files.add(self.index.account(), self.payer(), &self.group, file, delta)?;
        self.files.added(number, pages.count());
        let permitted = self.mapped(number).map_or(Ok(()), |mapped| mapped.check(protection));
        let mapped = permitted.and_then(|()| self.map_pages(pages, Entry::of_file(number, protection)));
        if !matches!(mapped, Ok(true)) {
            drop(self.files.remove(self.index.account(), self.payer(), number));
        }
        mapped
    }
}

impl Drop for Known {
    fn drop(&mut self) {
        let Self(space) = self;
        // In a forked child a thread of the parent's may have the locks for ever.
        if !space.manager().frames.forked() {
            space.index.forget(space.manager());
        }
    }
}

impl Drop for SpaceState {
    fn drop(&mut self) {
        if self.manager().frames.forked() {
            return;
        }
        // Guards that were leaked keep their frames, and their part of the map, for good.
        let _ = self.free_unheld(Index::ALL);
        self.files.clear(self.index.account(), self.payer());
        self.index.clear(self.payer());
    }
}

impl fmt::Debug for Space {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Space").field("group", &self.state.group.name()).finish_non_exhaustive()
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use io::SimulatedDisk;

    /// A thread that looked for room found a range mapped, at addresses of another thread's choice,
    /// and had all of it given out no more until it is unmapped. But some of it had been unmapped,
    /// and given back, in between: that part was never given out again.
    #[test]
    fn addresses_that_are_unmapped_while_they_are_passed_over_come_back() {
        const GIB: u64 = 1 << 30;
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let space = mm.group("tenant").build().unwrap().space().unwrap();
        let chosen = GIB..GIB + 64 * 4096;
        let pages = space.state.pages(&chosen).unwrap();
        for parts in [&[(0, 64)][..], &[(0, 10)], &[(50, 64)], &[(20, 30), (40, 41)]] {
            space.map_at(chosen.clone(), Protection::Read).unwrap();
            // The one thread has seen that; now the other one unmaps it.
            for (first, end) in parts {
                space.unmap(GIB + first * 4096..GIB + end * 4096).unwrap();
            }
            space.state.forget_addresses(pages);
            for area in space.areas() {
                space.unmap(area.range).unwrap();
            }
            let all = space.map((1 << 47) - GIB, Protection::Read).unwrap_or_else(|_| panic!("{parts:?} are lost"));
            space.unmap(all).unwrap();
        }
    }
}
