//! Files that are mapped in a space: which page of which file is at an address.
//!
//! An entry has a mapping's number, and the mapping says what to add to a page's number in the space for its number in the
//! file. So a mapping of any size is one entry for all of its pages, and splitting it changes nothing here.
//!
//! The table has a copy for each CPU, under a reader/writer lock of its own, and each copy has its own handle of each
//! mapping, with its own count: so who reads or faults writes to no line that another CPU does. Who maps, or unmaps the last
//! page of a mapping, changes one copy after the other. A hit doesn't look here, but in the mapping's window, which takes no lock
//! (`window`).
//!
//! - M1. A mapping is in all copies before an entry has its number, and until no page has it (`pages`, which only changes
//!   of entries count). A number that isn't found is thus an entry's that has changed meanwhile: look at it again.
//! - M2. Numbers don't come back: they count up above the place in the table. (After 2^40 files the answer is an error.)
//! - M3. Mapped files are closed, which may write to them, by whoever lets go of the last handle: never with a lock.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::{Mutex, OnceCell, RwLock};
use sync::{Arc, CounterPlace, PerCpu};

use super::address::Protection;
use super::entry::{Entry, FILE_BITS};
use super::lazy_table::LazyTable;
use super::window::Window;
use crate::error::Error;
use crate::file::File;
use crate::file::state::FileState;
use crate::group::Group;
use crate::manager::Manager;
use crate::read_ahead::advice::Advice;
use crate::stats::census::Hits;

/// Mappings that a space can have, as a power of two: the lower bits of a number.
const PLACE_BITS: u32 = 16;

/// Enough for so many.
type Places = LazyTable<Place, 256>;
/// What a mapping is charged, and each CPU's handle of it; rounded up.
const MAPPING_BYTES: u64 = 2 << 10;
const HANDLE_BYTES: u64 = 64;

/// One mapping of a file.
pub(super) struct Mapping {
    number: u64,
    /// What a page's number in the space is plus this, modulo 2^64, is its number in the file.
    delta: u64,
    openings: Arc<Openings>,
    /// Pages that have an entry with the number.
    pages: AtomicU64,
}

/// The file, opened for the space's group once for each kind of accesses that are to come. Mappings that were made by moving
/// a part of another share it.
struct Openings {
    group: Group,
    normal: File,
    random: OnceCell<File>,
    sequential: OnceCell<File>,
}

/// What a hit finds of the mapping that has a place.
pub(super) struct Place {
    pub(super) window: Window,
    hits: Arc<Hits>,
    /// Where they are counted, at hand.
    counter: CounterPlace,
}

impl Place {
    /// Counts a hit.
    #[inline]
    pub(super) fn count_hit(&self) {
        if !self.counter.try_add(1) {
            self.hits.counter.add(1); // The thread is ending.
        }
    }
}

/// A CPU's handle of a mapping.
pub(crate) struct Mapped {
    mapping: Arc<Mapping>,
}

impl Mapped {
    pub(crate) fn file(&self) -> &FileState {
        &self.mapping.openings.normal.handle().file
    }

    /// Whether the file can be mapped so.
    pub(super) fn check(&self, protection: Protection) -> Result<(), Error> {
        match protection {
            Protection::ReadWrite => self.mapping.openings.normal.handle().check_writable(),
            Protection::None | Protection::Read => Ok(()),
        }
    }

    /// The file, opened for such accesses as the entry says.
    pub(super) fn opening(&self, entry: Entry) -> Result<&File, Error> {
        let openings = &*self.mapping.openings;
        let advice = entry.advice();
        let cell = match advice {
            Advice::Random => &openings.random,
            Advice::Sequential => &openings.sequential,
            _ => return Ok(&openings.normal),
        };
        if let Some(file) = cell.get() {
            return Ok(file);
        }
        let file = openings.normal.open_again(&openings.group)?;
        file.advise(advice, 0..0)?;
        Ok(cell.get_or_init(|| file))
    }

    /// The number in the file of a page of the space.
    pub(super) fn page_of(&self, page: u64) -> u64 {
        page.wrapping_add(self.mapping.delta)
    }

    /// Whether the other one's pages, with the same entry otherwise, would go on with this one's.
    pub(super) fn continues(&self, other: &Self) -> bool {
        self.mapping.delta == other.mapping.delta && std::ptr::eq(self.file(), other.file())
    }

    pub(super) fn normal(&self) -> &File {
        &self.mapping.openings.normal
    }
}

type Copy = Vec<Option<Arc<Mapped>>>;

/// The mapped files of a space.
pub(super) struct MappedFiles {
    copies: PerCpu<RwLock<Copy>>,
    places: Places,
    /// Mappings there have been. Held while copies and windows change.
    made: Mutex<u64>,
}

impl MappedFiles {
    pub(super) fn new() -> Self {
        Self { copies: PerCpu::new(|| RwLock::new(Vec::new())), places: Places::new(), made: Mutex::new(0) }
    }

    fn bytes() -> u64 {
        MAPPING_BYTES + HANDLE_BYTES * sync::cpu::count() as u64
    }

    /// Adds `file`, opened for `group`, so that a page is what `delta` says. It has no pages as yet: [`added`](Self::added).
    pub(super) fn add(&self, manager: &Manager, group: &Group, file: &File, delta: u64) -> Result<u64, Error> {
        let openings = Openings {
            group: group.clone(),
            normal: file.open_again(group)?,
            random: OnceCell::new(),
            sequential: OnceCell::new(),
        };
        self.insert(manager, Arc::new(openings), delta)
    }

    /// Adds the file of another mapping, with every page `by` further up in the file.
    pub(super) fn add_moved(&self, manager: &Manager, mapped: &Mapped, by: u64) -> Result<u64, Error> {
        self.insert(manager, Arc::clone(&mapped.mapping.openings), mapped.mapping.delta.wrapping_add(by))
    }

    fn insert(&self, manager: &Manager, openings: Arc<Openings>, delta: u64) -> Result<u64, Error> {
        manager.charge_metadata(Self::bytes())?;
        let uncharge = || manager.frames.budget().uncharge(Self::bytes());
        let mut made = self.made.lock();
        let place = self.copies.here().read().iter().position(Option::is_none);
        let place = place.unwrap_or_else(|| self.copies.here().read().len());
        if place >> PLACE_BITS != 0 || (*made + 1) >> (FILE_BITS - PLACE_BITS) != 0 {
            uncharge();
            return Err(Error::TooManyCounters);
        }
        let file = &*openings.normal.handle().file;
        let at = self.prepare_place(manager, &openings.group, place as u64).inspect_err(|_| uncharge())?;
        at.window.show(file.map.number(), delta << file.page_shift());
        at.hits.begin(file);
        // 1 at least, as 0 stands for no file.
        *made += 1;
        let number = *made << PLACE_BITS | place as u64;
        let mapping = Arc::new(Mapping { number, delta, openings, pages: AtomicU64::new(0) });
        for copy in self.copies.iter() {
            let mapped = Arc::new(Mapped { mapping: Arc::clone(&mapping) });
            let mut copy = copy.write();
            if place == copy.len() {
                copy.push(None);
            }
            copy[place] = Some(mapped);
        }
        Ok(number)
    }

    /// A place, made when it is first taken.
    fn prepare_place(&self, manager: &Manager, group: &Group, place: u64) -> Result<&Place, Error> {
        if self.places.get(place).is_none() {
            let hits = Arc::new(Hits::new(group.state())?);
            manager.handles.add(&hits);
            self.places.prepare(place);
            let counter = hits.counter.place();
            self.places.fill(place, Place { window: Window::new(), hits, counter });
        }
        Ok(self.place(place).expect("it was filled"))
    }

    /// The place of a mapping, which may have gone: it is another one's then.
    #[inline]
    pub(super) fn place(&self, number: u64) -> Option<&Place> {
        self.places.get(number % (1 << PLACE_BITS))
    }

    /// This CPU's handle of a mapping. `None` if it is gone (M1).
    pub(super) fn get(&self, number: u64) -> Option<Arc<Mapped>> {
        let copy = self.copies.here().read();
        let mapped = copy.get(number as usize % (1 << PLACE_BITS))?.as_ref()?;
        (mapped.mapping.number == number).then(|| Arc::clone(mapped))
    }

    /// Pages got an entry with the number. Before they do.
    pub(super) fn added(&self, number: u64, pages: u64) {
        // Relaxed, here and below: changes of one mapping's entries that end at none come after all others, by their locks.
        self.get(number).map(|mapped| mapped.mapping.pages.fetch_add(pages, Ordering::Relaxed));
    }

    /// Pages have no longer an entry with the number. If they were the last ones, the mapping goes: what is returned is to be
    /// dropped without a lock (M3).
    #[must_use]
    pub(super) fn removed(&self, manager: &Manager, number: u64, pages: u64) -> Option<Vec<Arc<Mapped>>> {
        let before = self.get(number)?.mapping.pages.fetch_sub(pages, Ordering::AcqRel);
        debug_assert!(before >= pages, "more pages unmapped than mapped");
        (before == pages).then(|| self.remove(manager, number))
    }

    /// Takes a mapping without pages out.
    pub(super) fn remove(&self, manager: &Manager, number: u64) -> Vec<Arc<Mapped>> {
        let _made = self.made.lock();
        let place = number as usize % (1 << PLACE_BITS);
        let gone: Vec<_> = self.copies.iter().filter_map(|copy| copy.write()[place].take()).collect();
        if let (Some(place), Some(mapped)) = (self.place(number), gone.first()) {
            let normal = mapped.normal().handle();
            place.hits.settle(&normal.file, normal.group.state());
        }
        manager.frames.budget().uncharge(Self::bytes());
        gone
    }

    /// When the space goes.
    pub(super) fn clear(&self, manager: &Manager) {
        let numbers: Vec<_> = self.copies.here().read().iter().flatten().map(|mapped| mapped.mapping.number).collect();
        for number in numbers {
            drop(self.remove(manager, number));
        }
    }
}
