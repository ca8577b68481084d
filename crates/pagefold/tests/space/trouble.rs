//! Swap areas that come and go, a device of swap that fails now and then, and limits that change.

use std::ops::Range;
use std::path::Path;

use pagefold::io::{Access, Backend, BackingFile, IoError, automatic};
use pagefold::{AddError, Error, Group, Pagefold, RemoveError, SwapArea};
use sync::Arc;
use sync::lock::Mutex;
use sync::random::Random;
use test_disks::{Fault, FaultyBackend, Schedule, SimulatedDisk};

use crate::support::eventually;
use crate::world::PAGE;

/// The names of the areas that may be on the simulated disk.
const ON_DISK: [&str; 3] = ["/swap/a", "/swap/b", "/swap/c"];
/// The most areas beside the spare one.
const AREAS_MAX: usize = 5;
/// There is a slot for each page of the model in the spare area alone, and a few for exchanges.
const SPARE_SLOTS: u64 = 256;

/// The areas of swap on a simulated disk that fails; all other files on the machine's own.
struct Routes {
    files: Box<dyn Backend>,
    swap: FaultyBackend,
}

impl Backend for Routes {
    fn name(&self) -> &'static str {
        "routes"
    }

    fn open(&self, path: &Path, access: Access) -> Result<Box<dyn BackingFile>, IoError> {
        if path.starts_with("/swap") { self.swap.open(path, access) } else { self.files.open(path, access) }
    }

    fn waits_in_submit(&self) -> bool {
        self.files.waits_in_submit() || self.swap.waits_in_submit()
    }
}

/// An area that may be removed.
struct Area {
    /// Unlike numbers, never reused.
    id: u64,
    number: u32,
    /// On the disk.
    path: Option<&'static str>,
    /// A thread is removing it.
    is_leaving: bool,
}

/// What makes calls fail that would succeed otherwise: faults of the device of swap, and nothing
/// else. One area is in memory, has slots for all pages, and is never removed. The budget always
/// has room for the tables and the memory of the other areas, and for some pages. So if no fault
/// happens, memory is short only for a while.
#[derive(Clone)]
pub(crate) struct Trouble(Arc<Inner>);

struct Inner {
    mm: Pagefold,
    group: Group,
    faulty: FaultyBackend,
    /// One fault in so many calls.
    rate: u64,
    areas: Mutex<Vec<Area>>,
}

/// The least and the greatest budget. At their largest, [`AREAS_MAX`] compressed areas take less
/// than 2 MiB.
const BUDGET_MIN: u64 = 5 << 19;
const BUDGET_MAX: u64 = 3 << 20;
/// The least limit of the group: 24 pages that four moves may hold at once, tables of the space,
/// two parts of the page map with the words of the model's pages, and some pages to spare.
const PAGES_MIN: u64 = 38;

impl Trouble {
    /// Makes a group with less memory than the model has pages.
    pub(crate) fn new(seed: u64) -> Self {
        let mut random = Random::seeded(seed);
        let disk = SimulatedDisk::default();
        for path in ON_DISK {
            disk.add_bytes(path, vec![0; ((8 + random.below(200)) * PAGE) as usize]);
        }
        let faulty = FaultyBackend::new(disk, Schedule::Never);
        let routes = Routes { files: automatic(), swap: faulty.clone() };
        let spare = SwapArea::memory((SPARE_SLOTS + 1) * PAGE).priority(-2);
        let mm = Pagefold::builder().memory(BUDGET_MAX).backend(routes).swap_area(spare).build().unwrap();
        let group = mm.group("a").max((PAGES_MIN + random.below(32)) * PAGE).build().unwrap();
        let rate = [0, 1000, 200, 32][random.below(4) as usize];
        let areas = Mutex::new(Vec::new());
        let trouble = Self(Arc::new(Inner { mm, group, faulty, rate, areas }));
        for (at, priority) in [(0, random.below(3) as i32), (1, 0)] {
            trouble.add(Self::on_disk(at), priority, &mut random);
        }
        trouble
    }

    /// From now on, the device fails.
    pub(crate) fn begin(&self, seed: u64) {
        self.0.faulty.set_schedule(self.faults(seed));
    }

    pub(crate) fn mm(&self) -> &Pagefold {
        &self.0.mm
    }

    pub(crate) fn group(&self) -> &Group {
        &self.0.group
    }

    fn faults(&self, seed: u64) -> Schedule {
        let faults = vec![Fault::Errno(5), Fault::Errno(28), Fault::Interrupted, Fault::Again, Fault::Short(512)];
        Schedule::OneIn { n: self.0.rate, seed, faults }
    }

    /// Whether a fault can have made the device return this error. A transfer makes no progress if
    /// it is short twice in a row. Only reads and writes are repeated after `EAGAIN`. When the
    /// fault happened isn't known: the error may be that of another thread's read, which the failed
    /// call has waited for.
    fn was_injected(&self, error: IoError) -> bool {
        matches!(error, IoError::Os(5 | 28) | IoError::AGAIN | IoError::NoProgress) && self.fired() > 0
    }

    /// Makes a call to the pages at `range`, which can succeed. Repeats it while it fails only
    /// because other threads use a page, or the memory. Returns `None` if the call fails because of
    /// a fault.
    pub(crate) fn call<T>(&self, range: &Range<u64>, mut call: impl FnMut() -> Result<T, Error>) -> Option<T> {
        let before = self.fired();
        let mut result = call();
        eventually("memory stays short without a fault, or a page stays in use", || {
            let is_over = result.as_ref().err().is_none_or(|error| self.is_due(error, before, range));
            if !is_over {
                result = call();
            }
            is_over
        });
        result.ok()
    }

    /// Whether a fault is the reason of this error. Otherwise the call has to be repeated. There
    /// were `before` faults before the call.
    fn is_due(&self, error: &Error, before: u64, range: &Range<u64>) -> bool {
        match error.cause() {
            Error::PageBusy { .. } | Error::AddressBusy { .. } => false,
            Error::SwapReadFailed { address, error, .. } if range.contains(address) && self.was_injected(*error) => {
                true
            }
            // A page that should leave memory stays there if it can't be written to swap.
            Error::LimitReached { swap: None, .. } | Error::BudgetBusy { .. } => self.fired() > before,
            Error::LimitReached { swap: Some(failure), .. } if self.was_injected(failure.error) => {
                self.fired() > before
            }
            _ => panic!("at {range:#x?}: {error}\n{}", self.0.mm.stats()),
        }
    }

    /// Changes something for all threads. The caller has no guard.
    pub(crate) fn meddle(&self, random: &mut Random) {
        match random.below(6) {
            0 | 1 => {
                let area = Self::some_area(random);
                let priority = random.below(6) as i32 - 3;
                self.add(area, priority, random);
            }
            2 | 3 => self.remove(random),
            4 => {
                let max = if random.one_in(4) { 32 << 20 } else { (PAGES_MIN + random.below(64)) * PAGE };
                self.0.group.set_max(max).unwrap();
            }
            _ => self.resize(BUDGET_MIN + random.below((BUDGET_MAX - BUDGET_MIN) / PAGE) * PAGE),
        }
    }

    /// Other threads have pages pinned, but only for a moment.
    fn resize(&self, size: u64) {
        eventually("pages stay pinned", || match self.0.mm.resize(size) {
            Ok(()) => true,
            Err(Error::BudgetBusy { .. }) => false,
            Err(error) => panic!("{error}"),
        });
    }

    /// An area of any kind, with its path if it is on the disk.
    fn some_area(random: &mut Random) -> (SwapArea, Option<&'static str>) {
        match random.below(4) {
            0 => (SwapArea::compressed((80 + random.below(192)) << 10), None),
            1 => (SwapArea::memory((8 + random.below(100)) * PAGE), None),
            _ => Self::on_disk(random.below(3) as usize),
        }
    }

    fn on_disk(at: usize) -> (SwapArea, Option<&'static str>) {
        (SwapArea::path(ON_DISK[at]).overwrite(true), Some(ON_DISK[at]))
    }

    fn add(&self, (area, path): (SwapArea, Option<&'static str>), priority: i32, random: &mut Random) {
        let mut areas = self.0.areas.lock();
        if areas.len() >= AREAS_MAX || path.is_some() && areas.iter().any(|area| area.path == path) {
            return;
        }
        match self.0.mm.add_swap(area.priority(priority)) {
            Ok(number) => areas.push(Area { id: random.next_u64(), number, path, is_leaving: false }),
            Err(Error::SwapRefused(AddError::OpenFailed { error, .. } | AddError::HeaderFailed { error, .. }))
                if path.is_some() && self.was_injected(error) => {}
            // The tables, and the stock of a compressed area, need memory, which other threads'
            // pages in use may take.
            Err(Error::SwapRefused(AddError::NoRoom { .. }) | Error::BudgetBusy { .. }) => {}
            Err(error) => panic!("{error}\n{}", self.0.mm.stats()),
        }
    }

    fn remove(&self, random: &mut Random) {
        let (id, number) = {
            let mut areas = self.0.areas.lock();
            let mut staying: Vec<_> = areas.iter_mut().filter(|area| !area.is_leaving).collect();
            if staying.is_empty() {
                return;
            }
            let at = random.below(staying.len() as u64) as usize;
            staying[at].is_leaving = true;
            (staying[at].id, staying[at].number)
        };
        let is_removed = self.remove_area(number);
        let mut areas = self.0.areas.lock();
        let at = areas.iter().position(|area| area.id == id).unwrap();
        if is_removed {
            areas.swap_remove(at);
        } else {
            areas[at].is_leaving = false;
        }
    }

    /// Returns whether the area could be removed. It can't be if a page in it can't be read, or if
    /// memory is short.
    fn remove_area(&self, number: u32) -> bool {
        let mut removed = self.0.mm.remove_swap(number);
        // Other threads use pages of the area, but only for a moment.
        eventually("pages of an area stay in use", || {
            let is_over = !matches!(removed, Err(Error::SwapInUse(RemoveError::InUse { .. })));
            if !is_over {
                removed = self.0.mm.remove_swap(number);
            }
            is_over
        });
        // Another thread may have given the number of a removed area to its own one.
        let is_there = || self.0.mm.stats().swap.iter().any(|area| area.number == number);
        assert!(removed.is_ok() || is_there(), "area {number}: {removed:?}");
        match &removed {
            Ok(()) | Err(Error::SwapInUse(RemoveError::NoMemory { .. })) => {}
            Err(Error::SwapInUse(RemoveError::Stuck { error: Some(error), .. })) if self.was_injected(*error) => {}
            Err(error) => panic!("area {number}: {error}\n{}", self.0.mm.stats()),
        }
        removed.is_ok()
    }

    /// Faults so far.
    pub(crate) fn fired(&self) -> u64 {
        self.0.faulty.fired_total()
    }

    /// Ends the faults.
    pub(crate) fn end(&self) {
        self.0.faulty.set_schedule(Schedule::Never);
    }

    /// Removes all areas but the spare one, when no call fails and no thread has a guard.
    pub(crate) fn remove_all(&self) {
        for area in std::mem::take(&mut *self.0.areas.lock()) {
            eventually("an area can't be removed without a fault", || self.remove_area(area.number));
        }
        assert_eq!(self.0.mm.stats().swap.len(), 1, "the spare one");
    }
}
