//! Files that are mapped in a space: which page of which file is at an address.
//!
//! An entry has the number of a mapping, and the mapping has a delta: file page = space page +
//! delta. So all pages of a mapping have the same entry, unless their protection or advice differs.
//! If pages in the middle of a mapping are unmapped, the pages on both sides keep their entry, and
//! no mapping has to be split.
//!
//! A hit looks only at the mapping's window, without a lock (`window`). A thread that faults or
//! writes has to keep the mapping alive, so it takes its CPU's handle of the mapping
//! (`sync::nearby`). If each CPU uses only a few mappings at a time, the thread then writes to no
//! cache line that another CPU writes to.
//!
//! A mapping takes the same memory whatever the number of CPUs. Unmapping looks only at the CPUs
//! that used the mapping.
//!
//! - M1. A mapping is put into its place in the table before any entry has its number. It stays
//!   there until all entries that still have the number are *vacated*: a vacated entry permits no
//!   access, and is about to be removed. Suppose that a thread reads an entry that permits the
//!   access, but doesn't find the mapping that the entry names. Then the entry has changed since
//!   the thread read it, and the thread looks at the entry again. (`pages` counts the pages of the
//!   mapping; only changes of entries update it.)
//! - M2. No number is used twice. The low bits of a number are the mapping's place in the table;
//!   the bits above them count up. (After 2^40 mappings, a space reports an error.)
//! - M3. The thread that drops the last handle of a mapped file closes the file, and closing may
//!   write to the file. So the thread must hold no lock when it drops the handle.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::{Mutex, OnceCell};
use sync::nearby::{Handle, Home, Nearby};
use sync::{Arc, CounterPlace};

use super::account::{Account, Payer};
use super::entry::{Entry, FILE_BITS};
use super::lazy_table::LazyTable;
use super::window::Window;
use crate::api::file::File;
use crate::api::group::Group;
use crate::error::Error;
use crate::file::handle::Handle as FileHandle;
use crate::file::state::FileState;
use crate::manager::group_handle::GroupHandle;
use crate::protection::Protection;
use crate::read_ahead::advice::Advice;
use crate::size::ALLOCATION;
use crate::stats::hits::{HitCount, Hits};
use crate::write::page_mut;

/// The most mappings that a space can have at a time, as a power of two. The low bits of a
/// mapping's number are the index of its place.
const PLACE_BITS: u32 = 16;

/// A table with that many places.
type Places = LazyTable<Place, 256>;

/// One mapping of a file.
pub(crate) struct Mapping {
    number: u64,
    /// File page = space page + `delta`, modulo 2^64.
    delta: u64,
    openings: Arc<Openings>,
    /// The number of pages that have an entry with this number.
    pages: AtomicU64,
}

/// The file's handles, opened for the space's group: one for each kind of advice. If a part of a
/// mapping is moved, the new mapping shares the handles of the old mapping.
struct Openings {
    group: Arc<GroupHandle>,
    normal: Arc<FileHandle>,
    random: OnceCell<Arc<FileHandle>>,
    sequential: OnceCell<Arc<FileHandle>>,
}

/// A place in the table of mappings: what a hit looks at. A place serves one mapping after another.
pub(super) struct Place {
    pub(super) window: Window,
    hits: HitCount,
    /// The counter of `hits`, kept at hand.
    counter: CounterPlace,
    mapping: Home<Mapping>,
}

impl Place {
    /// Returns the bytes that a place takes, from its first use until the space is dropped.
    fn bytes(counter: CounterPlace) -> u64 {
        size_of::<Self>() as u64 + ALLOCATION + HitCount::bytes() + counter.bytes() + FREE_PLACE_BYTES
    }

    /// Counts a hit.
    #[inline]
    pub(super) fn count_hit(&self) {
        if !self.counter.try_add(1) {
            self.hits.counter.add(1); // The counter has no place, or the thread is ending.
        }
    }
}

/// A CPU's handle of a mapping.
pub(crate) type Mapped = Handle<Mapping>;

impl Mapping {
    /// Returns the bytes that a mapping takes, without its place.
    fn bytes() -> u64 {
        [size_of::<Self>(), size_of::<Openings>()].iter().map(|&part| part as u64 + ALLOCATION).sum()
    }

    pub(crate) fn file(&self) -> &FileState {
        &self.handle().file
    }

    pub(crate) fn handle(&self) -> &FileHandle {
        &self.openings.normal
    }

    /// Checks that the file can be mapped with that protection.
    pub(super) fn check(&self, protection: Protection) -> Result<(), Error> {
        match protection {
            Protection::ReadWrite => self.openings.normal.check_writable(),
            Protection::None | Protection::Read => Ok(()),
        }
    }

    /// Returns the file, opened for the kind of accesses that the entry's advice names.
    pub(super) fn opening(&self, entry: Entry) -> Result<&FileHandle, Error> {
        let openings = &*self.openings;
        let advice = entry.advice();
        let cell = match advice {
            Advice::Random => &openings.random,
            Advice::Sequential => &openings.sequential,
            _ => return Ok(&openings.normal),
        };
        if let Some(file) = cell.get() {
            return Ok(file);
        }
        let handle = openings.normal.open_again(&openings.group)?;
        handle.advise(0..0, advice)?;
        Ok(cell.get_or_init(|| handle))
    }

    /// Returns the number in the file of a page of the space.
    pub(super) fn page_of(&self, page: u64) -> u64 {
        page.wrapping_add(self.delta)
    }

    /// Returns whether this mapping's pages and the pages of `other` can form one area, if their
    /// entries are alike otherwise: both mappings map the same file with the same delta.
    pub(super) fn continues(&self, other: &Self) -> bool {
        self.delta == other.delta && std::ptr::eq(self.file(), other.file())
    }
}

impl page_mut::Mapped for Mapped {
    fn handle(&self) -> &FileHandle {
        Mapping::handle(self)
    }
}

/// The mapped files of a space.
pub(super) struct MappedFiles {
    places: Places,
    /// CPUs' handles of the mapped files of all spaces.
    nearby: Arc<Nearby<Mapping>>,
    /// Held while places and windows change.
    made: Mutex<Made>,
}

#[derive(Default)]
struct Made {
    /// The number of mappings made so far.
    mappings: u64,
    /// The number of places that were taken at least once. Those that are free now are in `free`.
    places: u64,
    free: Vec<u64>,
}

/// Bytes that a place's number takes in `Made::free`. Doubled, because a `Vec` may have twice the
/// capacity that it needs.
const FREE_PLACE_BYTES: u64 = 2 * size_of::<u64>() as u64;

impl MappedFiles {
    pub(super) fn new(nearby: Arc<Nearby<Mapping>>) -> Self {
        Self { places: Places::new(), nearby, made: Mutex::default() }
    }

    /// Adds a mapping of `file`, opened for `group`, with that delta. Returns its number. The
    /// mapping has no pages until [`added`](Self::added) is called.
    pub(super) fn add(
        &self,
        account: &Account,
        payer: Payer<'_>,
        group: &Group,
        file: &File,
        delta: u64,
    ) -> Result<u64, Error> {
        let openings = Openings {
            group: Arc::clone(group.handle()),
            normal: file.handle().open_again(group.handle())?,
            random: OnceCell::new(),
            sequential: OnceCell::new(),
        };
        self.insert(account, payer, Arc::new(openings), delta)
    }

    /// Adds a mapping of the same file as `mapped`, whose delta is that of `mapped` plus `by`. So
    /// at each address, the new mapping shows the page that is `by` pages after the page that
    /// `mapped` shows.
    pub(super) fn add_moved(
        &self,
        account: &Account,
        payer: Payer<'_>,
        mapped: &Mapped,
        by: u64,
    ) -> Result<u64, Error> {
        self.insert(account, payer, Arc::clone(&mapped.openings), mapped.delta.wrapping_add(by))
    }

    fn insert(&self, account: &Account, payer: Payer<'_>, openings: Arc<Openings>, delta: u64) -> Result<u64, Error> {
        let frames = &payer.manager.memory.frames;
        let charge_nearby = |bytes| frames.try_charge_beside_maps(bytes);
        self.nearby.prepare(charge_nearby, |bytes| frames.budget().uncharge(bytes));
        let (mut charged, mut hits) = (0, None);
        let (mut made, place, new_place) = loop {
            let made = self.made.lock();
            let place = made.free.last().copied().unwrap_or(made.places);
            if place >> PLACE_BITS != 0 || (made.mappings + 1) >> (FILE_BITS - PLACE_BITS) != 0 {
                account.uncharge(payer, charged);
                return Err(Error::TooManyMappings);
            }
            let new_place = match self.places.get(place) {
                Some(_) => 0,
                None => Place::bytes(hits.get_or_insert_with(Hits::at_hand).1),
            };
            let bytes = Mapping::bytes() + new_place + self.places.bytes_for(place);
            if bytes <= charged {
                account.uncharge(payer, charged - bytes);
                self.places.prepare(place);
                break (made, place, new_place);
            }
            drop(made); // Charging may reclaim, so not under the lock.
            account.charge(payer, bytes - charged).inspect_err(|_| account.uncharge(payer, charged))?;
            charged = bytes;
        };
        let file = &*openings.normal.file;
        if let (true, Some((hits, counter))) = (new_place > 0, hits) {
            let hits = HitCount::enter(hits, &openings.group.state().hits);
            self.places.fill(place, Place { window: Window::new(), hits, counter, mapping: Home::default() });
        }
        let at = self.place(place).expect("it was filled");
        at.window.show(file.map.number(), delta << file.page_shift());
        at.hits.begin(&file.hits);
        if made.free.pop().is_none() {
            made.places += 1;
        }
        // At least 1, because 0 means no file.
        made.mappings += 1;
        let number = made.mappings << PLACE_BITS | place;
        at.mapping.put(Arc::new(Mapping { number, delta, openings, pages: AtomicU64::new(0) }));
        Ok(number)
    }

    /// Returns the place of a mapping. If the mapping is gone, the place may be another mapping's.
    #[inline]
    pub(super) fn place(&self, number: u64) -> Option<&Place> {
        self.places.get(number % (1 << PLACE_BITS))
    }

    /// Returns this CPU's handle of a mapping, or `None` if the mapping is gone (M1).
    pub(super) fn get(&self, number: u64) -> Option<Arc<Mapped>> {
        let mapped = self.nearby.get(&self.place(number)?.mapping)?;
        (mapped.number == number).then_some(mapped)
    }

    /// Counts pages that are about to get an entry with the number.
    pub(super) fn added(&self, number: u64, pages: u64) {
        // Relaxed: a page's entry is removed after it was added, and the lock of the page orders
        // the two changes. So the subtraction in `removed` that reaches 0 comes after all
        // additions.
        self.find(number).map(|mapping| mapping.pages.fetch_add(pages, Ordering::Relaxed));
    }

    /// Returns the mapping itself rather than this CPU's handle of it. For threads that don't use
    /// the mapping's file.
    fn find(&self, number: u64) -> Option<Arc<Mapping>> {
        self.place(number)?.mapping.thing().filter(|mapping| mapping.number == number)
    }

    /// Subtracts `pages` from the mapping's count of pages: the pages are vacated, and the caller
    /// is about to remove their entries. If no page is left, removes the mapping and returns it.
    /// The caller must hold no lock when it drops the mapping (M3).
    #[must_use]
    pub(super) fn removed(&self, account: &Account, payer: Payer<'_>, number: u64, pages: u64) -> Option<Arc<Mapping>> {
        let before = self.find(number)?.pages.fetch_sub(pages, Ordering::AcqRel);
        debug_assert!(before >= pages, "more pages unmapped than mapped");
        if before == pages { self.remove(account, payer, number) } else { None }
    }

    /// Removes a mapping that has no pages, and returns it.
    pub(super) fn remove(&self, account: &Account, payer: Payer<'_>, number: u64) -> Option<Arc<Mapping>> {
        let mut made = self.made.lock();
        let place = self.place(number)?;
        let gone = self.nearby.take(&place.mapping)?;
        let normal = gone.handle();
        place.hits.settle(&normal.file.hits, [&normal.file.counters, &normal.group.state().counters]);
        made.free.push(number % (1 << PLACE_BITS));
        account.uncharge(payer, Mapping::bytes());
        Some(gone)
    }

    /// Removes all mappings. Called when the space is dropped.
    pub(super) fn clear(&self, account: &Account, payer: Payer<'_>) {
        for place in self.places.iter() {
            if let Some(mapping) = place.mapping.thing() {
                drop(self.remove(account, payer, mapping.number));
            }
            place.hits.leave(&payer.group.hits);
        }
    }
}
