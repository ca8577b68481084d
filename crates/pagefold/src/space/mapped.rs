//! Files that are mapped in a space: which page of which file is at an address.
//!
//! An entry has a mapping's number, and the mapping has a delta: file page = space page + delta. So
//! all pages of a mapping have the same entry, and splitting a mapping changes nothing here.
//!
//! A hit looks at the mapping's window alone, which takes no lock (`window`). A thread that faults
//! or writes needs the mapping to stay: it takes a handle of its CPU's (`sync::nearby`), and so
//! writes to no line that another CPU does, as long as each uses a few mappings at a time. A
//! mapping takes the same on a machine with any number of CPUs, and mapping and unmapping looks at
//! those CPUs alone that used it.
//!
//! - M1. A mapping is at its place before an entry has its number, and until no page has it
//!   (`pages`, which only changes of entries count). A number that isn't found is thus an entry's
//!   that has changed meanwhile: look at it again.
//! - M2. Numbers don't come back: they count up above the place in the table. (After 2^40 files the
//!   answer is an error.)
//! - M3. The thread that drops the last handle of a mapped file closes it, which may write to the
//!   file. That thread has no lock then.

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

/// Mappings that a space can have, as a power of two: the lower bits of a number.
const PLACE_BITS: u32 = 16;

/// Enough for so many.
type Places = LazyTable<Place, 256>;

/// One mapping of a file.
pub(crate) struct Mapping {
    number: u64,
    /// What a page's number in the space is plus this, modulo 2^64, is its number in the file.
    delta: u64,
    openings: Arc<Openings>,
    /// Pages that have an entry with the number.
    pages: AtomicU64,
}

/// The file, opened for the space's group once for each kind of accesses that are to come. Mappings
/// that were made by moving a part of another share it.
struct Openings {
    group: Arc<GroupHandle>,
    normal: Arc<FileHandle>,
    random: OnceCell<Arc<FileHandle>>,
    sequential: OnceCell<Arc<FileHandle>>,
}

/// What a hit finds of the mapping that has a place.
pub(super) struct Place {
    pub(super) window: Window,
    hits: HitCount,
    /// Where they are counted, at hand.
    counter: CounterPlace,
    mapping: Home<Mapping>,
}

impl Place {
    /// What one takes, from when it is first taken until the space goes.
    fn bytes(counter: CounterPlace) -> u64 {
        size_of::<Self>() as u64 + ALLOCATION + HitCount::bytes() + counter.bytes() + FREE_PLACE_BYTES
    }

    /// Counts a hit.
    #[inline]
    pub(super) fn count_hit(&self) {
        if !self.counter.try_add(1) {
            self.hits.counter.add(1); // It has no place, or the thread is ending.
        }
    }
}

/// A CPU's handle of a mapping.
pub(crate) type Mapped = Handle<Mapping>;

impl Mapping {
    /// What one takes, without its place.
    fn bytes() -> u64 {
        [size_of::<Self>(), size_of::<Openings>()].iter().map(|&part| part as u64 + ALLOCATION).sum()
    }

    pub(crate) fn file(&self) -> &FileState {
        &self.handle().file
    }

    pub(crate) fn handle(&self) -> &Arc<FileHandle> {
        &self.openings.normal
    }

    /// Whether the file can be mapped so.
    pub(super) fn check(&self, protection: Protection) -> Result<(), Error> {
        match protection {
            Protection::ReadWrite => self.openings.normal.check_writable(),
            Protection::None | Protection::Read => Ok(()),
        }
    }

    /// The file, opened for such accesses as the entry says.
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

    /// The number in the file of a page of the space.
    pub(super) fn page_of(&self, page: u64) -> u64 {
        page.wrapping_add(self.delta)
    }

    /// Whether the other one's pages, with the same entry otherwise, would go on with this one's.
    pub(super) fn continues(&self, other: &Self) -> bool {
        self.delta == other.delta && std::ptr::eq(self.file(), other.file())
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
    /// Mappings there have been.
    mappings: u64,
    /// Places that were ever taken, and those of them that are free.
    places: u64,
    free: Vec<u64>,
}

/// A number on the list of free places, which may have twice the room that it needs.
const FREE_PLACE_BYTES: u64 = 2 * size_of::<u64>() as u64;

impl MappedFiles {
    pub(super) fn new(nearby: Arc<Nearby<Mapping>>) -> Self {
        Self { places: Places::new(), nearby, made: Mutex::default() }
    }

    /// Adds `file`, opened for `group`, so that a page is what `delta` says. It has no pages as
    /// yet: [`added`](Self::added).
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

    /// Adds the file of another mapping, with every page `by` further up in the file.
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
        let frames = &payer.manager.frames;
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
            drop(made); // To charge it may take pages of others.
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
        // 1 at least, as 0 stands for no file.
        made.mappings += 1;
        let number = made.mappings << PLACE_BITS | place;
        at.mapping.put(Arc::new(Mapping { number, delta, openings, pages: AtomicU64::new(0) }));
        Ok(number)
    }

    /// The place of a mapping, which may have gone: it is another one's then.
    #[inline]
    pub(super) fn place(&self, number: u64) -> Option<&Place> {
        self.places.get(number % (1 << PLACE_BITS))
    }

    /// This CPU's handle of a mapping. `None` if it is gone (M1).
    pub(super) fn get(&self, number: u64) -> Option<Arc<Mapped>> {
        let mapped = self.nearby.get(&self.place(number)?.mapping)?;
        (mapped.number == number).then_some(mapped)
    }

    /// Pages got an entry with the number. Before they do.
    pub(super) fn added(&self, number: u64, pages: u64) {
        // Relaxed, here and below: changes of one mapping's entries that end at none come after all
        // others, by their locks.
        self.find(number).map(|mapping| mapping.pages.fetch_add(pages, Ordering::Relaxed));
    }

    /// The mapping, for a thread that doesn't use its file.
    fn find(&self, number: u64) -> Option<Arc<Mapping>> {
        self.place(number)?.mapping.thing().filter(|mapping| mapping.number == number)
    }

    /// Pages have no longer an entry with the number. If they were the last ones, the mapping goes:
    /// what is returned is to be dropped without a lock (M3).
    #[must_use]
    pub(super) fn removed(&self, account: &Account, payer: Payer<'_>, number: u64, pages: u64) -> Option<Arc<Mapping>> {
        let before = self.find(number)?.pages.fetch_sub(pages, Ordering::AcqRel);
        debug_assert!(before >= pages, "more pages unmapped than mapped");
        if before == pages { self.remove(account, payer, number) } else { None }
    }

    /// Takes a mapping without pages out.
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

    /// When the space goes.
    pub(super) fn clear(&self, account: &Account, payer: Payer<'_>) {
        for place in self.places.iter() {
            if let Some(mapping) = place.mapping.thing() {
                drop(self.remove(account, payer, mapping.number));
            }
            place.hits.leave(&payer.group.hits);
        }
    }
}
