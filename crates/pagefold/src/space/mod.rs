//! Address spaces: memory and files at addresses, which many threads map, access and unmap at once.
//!
//! **There is no object for an area.** An area is a run of pages with the same *entry*. A page's
//! entry has bits that permit reading and writing, and the mapped file, if any (`entry`). One index
//! (`index`) has the entry of each page; areas exist only in listings and error messages. So two
//! threads that change different parts of one area share no object, and no area has to be split or
//! merged. The only way to find out what is mapped at an address is to look up its entry.
//!
//! ```text
//!   unmap [2 MiB, 4 MiB)            protect [0, 2 MiB)         one area of 8 MiB
//!   range write lock of its own     range write lock of its own: disjoint, at once
//!   entries of its pages = none     entries of its pages = read-only
//!                    listed after: 0-2 r, (2-4 nothing), 4-8 rw: the same in either order
//! ```
//! The index takes memory only where something is mapped (`tree`, `index`). One word of the index
//! describes 512 GiB, 1 GiB, 2 MiB or one page. A change of entries may begin or end inside the
//! part of the space that one word describes. The index then makes a table of words for smaller
//! parts. It frees the table when nothing is mapped in that part any more (`tidy`).
//!
//! An access to an unmapped address allocates nothing. A space's index and records (`account`), and
//! its page words (`memory::part_charge`), are charged to its group, within the group's limit.
//!
//! **Own memory** is anonymous memory, which belongs to no file. The page words of the own memory
//! in one GiB of the space are in one page map (`region`). The space makes the map when a page in
//! the GiB is first written, or when entries are changed in a range that begins or ends inside the
//! GiB. A page's word is *vacant* until the page is first written. A lookup of this word costs no
//! more than a lookup in a file's page map.
//!
//! **Pages of files** have their words in the file's page map, which all users of the file share. A
//! mapping only tells which page of which file is at an address (`mapped`). A write through the
//! mapping is a write to the file.
//!
//! | | arbitrated by |
//! |---|---|
//! | map, unmap, protect, move, discard of one range | range write lock |
//! | first touches of one page | page word: *vacant* → *loading* |
//! | first touch against unmap | S1 |
//! | write against protect and unmap | S1, by the page's frozen frame, or the file's count of pages being made |
//! | guard of a page against unmap | S1, by the frame's pin |
//! | read against everything | nothing: S5 |
//!
//! - S1. Before a thread uses a page, it gets hold of the page, and then looks at the page's entry
//!   again. A faulting thread gets hold of the page by putting its word in *loading*, a writer by
//!   freezing its frame, and any other thread by pinning it.
//!
//!   A thread that changes entries stores the new entries first. Then it looks at the pages, and
//!   waits for each thread that holds one of the pages. Each side has a fence between its two
//!   steps; a writer's fence follows the update that froze the frame. So at least one side sees the
//!   other:
//!   ```text
//!     toucher: word = loading        unmap: entry = none
//!              fence                        fence
//!              entry? mapped: publish       word? loading: wait, then take the page out
//!   ```
//!   So once `unmap` has returned, none of the own pages that it unmapped is resident. And once
//!   `protect` has returned, no thread writes to a page that the new protection makes read-only or
//!   inaccessible.
//!
//!   A file's page in *loading* is a special case. Usually a thread is only reading the page from
//!   the device, which may take long. The change needn't wait for that: a thread that writes to the
//!   page afterwards freezes its frame, and looks at the entry again. But a write through a mapping
//!   may also be *making* the page: filling it without reading it. The file counts such writes. A
//!   write raises the count before it looks at the entry, and lowers the count after it has
//!   published the page. So if the changing thread finds the count at 0 (`FileState::has_makers`),
//!   it waits for no page of the file in *loading*.
//! - S2. A touch takes no range lock, and a hit writes nothing that CPUs share. A fault obtains its
//!   frame before it puts the page word in *loading*.
//! - S3. A reader may treat a vacant page as zeros, and a same-filled page in swap as copies of the
//!   word that the page repeats, on one condition: the page's entry was the same before and after
//!   the reader looked at the page word. After a page of own memory was unmapped, it never has the
//!   same mapping number again (ENTRY-1 of `entry`). So if the reader finds the same entry both
//!   times, the page was mapped all the time in between.
//! - S4. If a page has a swap slot, the thread that unmaps the page finds that slot, even while
//!   another thread swaps the page out or in. If the page is in swap, its page word has the slot.
//!   If the page kept its slot when it came back into memory, the record of its frame has the slot
//!   (`frames::swapping`).
//! - S5. A hit loads the entry, the page word and, if the page is a *written* one, the frame's
//!   version. It copies the bytes. Then it loads the entry again, then the version, then the word.
//!   So it loads the word and the version once before its second load of the entry, and once after
//!   that. If the two loads return the same, neither the word nor the version changed in between.
//!   So at the moment of the second load of the entry, the page was in its frame, with these bytes,
//!   and mapped as the entry says (`read`).
//!
//! A page that was never written is zeros and takes no memory; reading it allocates nothing.
//!
//! With swap, own pages are on their group's LRU lists, as pages of files are, and `swap_out`
//! evicts them. The word of an evicted page holds the page's place in swap, and a fault brings the
//! page back (`fault`). Without swap, own pages are on no list and stay in memory: at the group's
//! limit, an access that needs memory fails.

mod account;
mod address;
mod advise;
mod change;
mod entry;
mod fault;
mod fault_types;
#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod for_tests;
mod free;
mod free_addresses;
mod grow;
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

pub use listing::{Area, AreaFile};

use std::fmt;
use std::ops::Range;

use frames::PageMaps;
use io::Identity;
use span_lock::RangeLock;
use sync::atomic::{AtomicBool, Backoff, Ordering};
use sync::{Arc, tasks};

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

/// An address space of a group. It maps files and anonymous memory at addresses from 0 to 2^47.
/// (Anonymous memory belongs to no file.) Clones are handles of the same space. Dropping the last
/// handle frees the space's memory and closes its files.
///
/// ```
/// # fn main() -> Result<(), Box<dyn std::error::Error>> {
/// # use pagefold::Pagefold;
/// # let disk = test_disks::SimulatedDisk::default();
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
    /// Access to the page maps. Each handle has its own, so that a hit needn't load it from
    /// `state`.
    maps: PageMaps,
    /// The last field, so it is dropped last.
    known: Arc<Known>,
}

/// Keeps the space registered as the owner of its page words (`manager::page_owners`). All handles
/// and owned guards share it. Dropping the last handle or guard ends the registration, and then
/// tears the space down.
///
/// If a task's waker drops the last one, the thread that calls the waker leaves this work to a
/// worker. The calling thread may be the thread that completes all loads, so it must neither work
/// for long nor wait. But ending the registration waits for visitors (O1 of `page_owners`), which
/// may wait for a swap area's device. And the teardown waits for pages that are in use. Until the
/// worker is done, the space keeps its group, and so the Pagefold, alive.
struct Known(Option<Arc<SpaceState>>);

/// The identity under which workers tear spaces down. It has a device number of its own, so the
/// work doesn't queue behind the work of a slow device's files.
const TEARDOWN: Identity = Identity { device: u64::MAX, inode: 0 };

/// The state that all handles of a space share.
struct SpaceState {
    group: Group,
    index: Index,
    files: MappedFiles,
    /// Held for changes to the index.
    lock: RangeLock,
    addresses: FreeAddresses,
    /// The streams of swap readahead (`read_along`).
    read_ahead: ReadAhead,
    /// Whether the table that the lock allocates on contention is charged.
    lock_is_charged: AtomicBool,
    /// Tables of the index that may not be needed any more.
    noted: Noted,
    page_shift: u32,
    /// Whether a page was ever handed out as a guard. Until then, changes of entries don't look for
    /// pins.
    has_guards: AtomicBool,
}

impl Group {
    /// Creates an empty address space, whose memory is charged to this group. With swap, anonymous
    /// memory is swapped out when memory is short. Without swap, anonymous memory is never evicted:
    /// at the group's limit, accesses that need memory fail.
    ///
    /// # Errors
    /// [`Error::LimitReached`], or no room in the budget for the space's index.
    pub fn space(&self) -> Result<Space, Error> {
        Space::new(self)
    }
}

impl Space {
    fn new(group: &Group) -> Result<Self, Error> {
        let manager = group.manager();
        manager.memory.refuse_child()?;
        let page_shift = manager.memory.frames.page_size().trailing_zeros();
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
        let known = Arc::new(Known(Some(Arc::clone(&state))));
        Ok(Self { state, maps: PageMaps::new(Arc::clone(&manager.memory.frames)), known })
    }

    /// Maps anonymous memory, all zeros, at addresses that the space chooses. `len` is in bytes,
    /// and is rounded up to whole pages. Returns the range of the addresses, which starts and ends
    /// at page boundaries. A page takes no memory before it is written to.
    ///
    /// # Errors
    /// [`Error::BadAddress`] if `len` is 0 or too large; [`Error::NoAddresses`];
    /// [`Error::LimitReached`] or no room in the budget for the index, which is charged to the
    /// group.
    pub fn map(&self, len: u64, protection: Protection) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        state.map_somewhere(len, |pages| state.map_own(pages, protection))
    }

    /// Maps anonymous memory, all zeros, at `range`, in which nothing may be mapped yet.
    ///
    /// # Errors
    /// [`Error::BadAddress`] unless the range is whole pages below 2^47; [`Error::Mapped`]; those
    /// of [`map`](Self::map).
    pub fn map_at(&self, range: Range<u64>, protection: Protection) -> Result<(), Error> {
        let state = &*self.state;
        let pages = state.pages(&range)?;
        if state.map_own(pages, protection)? { Ok(()) } else { Err(Error::Mapped { range }) }
    }

    /// Maps `len` bytes of a file, rounded up to whole pages, at addresses that the space chooses.
    /// `offset` is the place of the first byte in the file, and must be a multiple of the page
    /// size. The file stays open until no part of it is mapped any more.
    ///
    /// A write to the mapping is a write to the file, as by [`File::write_at`], and all readers of
    /// the file see it. Pages are loaded when they are first used, and charged to the space's
    /// group.
    ///
    /// The file may be shorter than the mapping, or become shorter later. Then an access to a byte
    /// past the file's end is an error, even if the byte is in the file's last page. A write
    /// through the mapping never makes the file longer.
    ///
    /// # Errors
    /// [`Error::ReadOnly`] for [`Protection::ReadWrite`] of a file that isn't open for writing;
    /// [`Error::BadAddress`], also for a file of another Pagefold, and for an offset above 2^62;
    /// [`Error::TooManyMappings`]; those of [`map`](Self::map).
    pub fn map_file(&self, file: &File, offset: u64, len: u64, protection: Protection) -> Result<Range<u64>, Error> {
        let state = &*self.state;
        state.map_somewhere(len, |pages| state.map_file(pages, file, offset, protection))
    }

    /// Maps a part of a file at `range`, in which nothing may be mapped yet. See also
    /// [`map_file`](Self::map_file).
    ///
    /// # Errors
    /// Those of [`map_file`](Self::map_file) and [`map_at`](Self::map_at).
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

    /// Unmaps `range` and frees its memory. All of `range` must be mapped, but it may be a part of
    /// a mapping, or contain parts of several. Pages of files may stay in memory as long as the
    /// file is open, and dirty ones are written back as before.
    ///
    /// # Errors
    /// - [`Error::BadAddress`]; [`Error::NotMapped`].
    /// - [`Error::AddressBusy`] if a page of anonymous memory in the range is pinned, or a page
    ///   stays busy for seconds because another thread is changing it.
    /// - [`Error::LimitReached`] if only a part of a mapping is unmapped, and the index has no room
    ///   for the entries of the rest.
    ///
    /// After an error the range is still mapped, and unchanged. Exception: if the index has no
    /// room, anonymous memory in the range may have been [discarded](Self::discard).
    pub fn unmap(&self, range: Range<u64>) -> Result<(), Error> {
        let state = &*self.state;
        state.unmap_pages(state.pages(&range)?)
    }

    /// Changes the protection of the memory in `range`, all of which must be mapped. Once this has
    /// returned, no thread writes where the new protection forbids it. While the change is in
    /// progress, an access waits if the old protection permits it and the new one doesn't.
    ///
    /// # Errors
    /// Those of [`unmap`](Self::unmap); [`Error::ReadOnly`], as for [`map_file`](Self::map_file).
    pub fn protect(&self, range: Range<u64>, protection: Protection) -> Result<(), Error> {
        let state = &*self.state;
        let check = |run: Pages, entry: Entry| match entry.file().and_then(|number| state.mapped(number)) {
            Some(mapped) => mapped.check(protection).map_err(|error| state.at(run.first, error)),
            None => Ok(()),
        };
        state.change_protection(state.pages(&range)?, check, protection)
    }

    /// Returns the group that is charged for the space's memory.
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

    /// Returns this CPU's handle of the mapping with that number, if there is one.
    fn mapped(&self, number: u64) -> Option<Arc<Mapped>> {
        self.files.get(number)
    }

    /// Charges the group for the lock's table once the table exists. (The lock allocates it when
    /// two threads first contend for the lock.) Called before a range is locked. If there is no
    /// room for the charge, the next caller tries again.
    fn charge_lock(&self) {
        // Relaxed: the swap below decides which thread charges.
        let owes = || self.lock.table_bytes() > 0 && !self.lock_is_charged.load(Ordering::Relaxed);
        if owes() && !self.lock_is_charged.swap(true, Ordering::Relaxed) {
            let charged = self.index.account().try_charge(self.payer(), self.lock.table_bytes() as u64);
            self.lock_is_charged.store(charged, Ordering::Relaxed);
        }
    }

    /// Maps own memory. Returns false, with nothing changed, if something is mapped there.
    fn map_own(&self, pages: Pages, protection: Protection) -> Result<bool, Error> {
        self.map_pages(pages, Entry::own(self.manager().spaces.numbers.fresh(), protection))
    }

    /// Calls `map` with free addresses for `len` bytes, until it reports that it has mapped them.
    /// Returns the addresses.
    fn map_somewhere(&self, len: u64, map: impl Fn(Pages) -> Result<bool, Error>) -> Result<Range<u64>, Error> {
        let count = self.count(len)?;
        // Checked before any lock is taken, here and elsewhere: a lock that another thread held at
        // the fork is never released in the child.
        self.manager().memory.refuse_child()?;
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

    /// Takes addresses that no other thread is given, and at which a lookup without a lock has
    /// found nothing mapped. The caller looks again once it holds the range's lock.
    fn take_addresses(&self, count: u64) -> Option<Pages> {
        loop {
            let pages = self.addresses.take(count)?;
            if self.is_free(pages) {
                return Some(pages);
            }
            self.pass_over(pages);
        }
    }

    /// Handles addresses that were taken for a mapping that wasn't made, perhaps because another
    /// caller had mapped something there, at an address of its own choice. Gives the unmapped runs
    /// of `pages` back to the free addresses. Removes the mapped runs from the free addresses; if
    /// the last mapped run extends past the end of `pages`, removes that run as a whole.
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

    /// Removes `pages`, which were found mapped, from the free addresses.
    fn forget_addresses(&self, pages: Pages) {
        self.addresses.forget(pages);
        // Before `forget` removed these addresses, another thread may have unmapped some of them
        // and given them back. `forget` has then removed them although they are free. So they are
        // given back again here; otherwise no thread would ever get them again.
        let unmapped = self.index.runs(pages).filter(|&(_, entry)| entry == Entry::NONE);
        unmapped.for_each(|(run, _)| self.addresses.give(run));
    }

    /// Maps a part of a file. Returns false, with nothing changed, if something is mapped there.
    fn map_file(&self, pages: Pages, file: &File, offset: u64, protection: Protection) -> Result<bool, Error> {
        let bad = |why| Error::BadAddress { address: offset, len: pages.count() << self.page_shift, why };
        if offset & ((1 << self.page_shift) - 1) != 0 {
            return Err(bad("an offset in a file that isn't whole pages"));
        }
        // With this limit, no offset in the file overflows 64 bits, even after the mapping has
        // grown (`grow`).
        if offset > 1 << 62 {
            return Err(bad("an offset past the end of any file"));
        }
        if !Arc::ptr_eq(&file.handle().file.manager, self.manager()) {
            return Err(bad("a file of another Pagefold"));
        }
        self.manager().memory.refuse_child()?;
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
        let Some(space) = self.0.take() else { return };
        // A forked child tears nothing down, because that takes locks. A lock that another thread
        // held at the fork is never released in the child.
        if space.manager().memory.frames.forked() {
            return;
        }
        let manager = Arc::clone(space.manager());
        let tear_down = move || {
            space.index.forget(space.manager()); // O3 of `page_owners`.
            drop(space);
        };
        if tasks::is_waking()
            && let Ok(workers) = manager.file_io.workers()
        {
            workers.run(TEARDOWN, tear_down); // This thread keeps no reference to the space.
        } else {
            tear_down();
        }
    }
}

impl Drop for SpaceState {
    fn drop(&mut self) {
        if self.manager().memory.frames.forked() {
            return;
        }
        // A leaked guard keeps its frame, and the page map of its region, for good.
        let _ = self.free_unheld(Index::ALL, &mut Backoff::new());
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
    use test_disks::SimulatedDisk;

    /// Regression: one thread looked for free addresses. It found that a caller had mapped a range
    /// there, at an address of its own choice. Before the thread removed that range from the free
    /// addresses, another thread unmapped a part of the range and gave the part's addresses back.
    /// The first thread then removed these addresses too, so they were lost.
    #[test]
    fn addresses_that_are_unmapped_while_they_are_passed_over_come_back() {
        const GIB: u64 = 1 << 30;
        let mm = Pagefold::builder().memory("16MiB").backend(SimulatedDisk::default()).build().unwrap();
        let space = mm.group("tenant").build().unwrap().space().unwrap();
        let chosen = GIB..GIB + 64 * 4096;
        let pages = space.state.pages(&chosen).unwrap();
        for parts in [&[(0, 64)][..], &[(0, 10)], &[(50, 64)], &[(20, 30), (40, 41)]] {
            space.map_at(chosen.clone(), Protection::Read).unwrap();
            // The first thread has seen the mapping; now the other thread unmaps it.
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
