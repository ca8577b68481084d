//! All swap areas: which one a page goes to, and coming and going of areas.
//!
//! Every CPU has a copy of the list of areas under a reader/writer lock of its own. Who swaps takes its CPU's lock as a
//! reader, and so writes nothing that CPUs share; who adds or removes an area changes one copy after the other. It holds
//! that
//!
//! - A1. An area that is in no copy's *order* any more gets no new pages: who was allocating there held the lock of the
//!   copy that it had it from, and has written its pages and let go.
//! - A2. An area is in every copy's *table* before it is in any order, and stays there until all its slots are free: so who
//!   has the number of a slot finds the area.
//!
//! Removing an area is thus: out of all orders; each page in it back into memory, by its owner ([`Owners`]); out of all
//! tables. If memory is short, it goes back into the orders.
//!
//! Lock order: `changing` → CPU's copy → what [`Slots`](crate::Slots) has.

use std::time::Duration;

use io::{Backend, IoError};
use sync::atomic::{AtomicBool, Ordering};
use sync::lock::{Mutex, RwLock, RwLockReadGuard};
use sync::thread::sleep;
use sync::{Arc, PerCpu, SharedBytes};

use crate::StaleSlot;
use crate::allowance::Need;
use crate::area::{Area, AreaOptions, Source};
use crate::area_list::AreaList;
use crate::compressed::{Compressed, CompressedInfo};
use crate::error::{AddError, RemoveError, SwapInError, SwapOutError};
use crate::page_out::{PageOut, Tried, write_out};
use crate::slot_word::{Note, Owner, SlotId, SlotState};
use crate::slots::{Placement, Slots};

/// How often removal goes through an area: pages may be on their way into slots or out of them.
const ROUNDS_MAX: u32 = 8;

/// What removal and spilling ask of whoever the pages belong to. Called without any lock of a copy or a cluster.
pub trait Owners {
    /// Brings a page back into memory from its slot, and frees the slot; or finds that somebody else just does.
    ///
    /// # Errors
    /// There is no memory for it, or it can't be read.
    fn bring_back(&self, owner: Owner, slot: SlotId) -> Result<(), NotBack>;

    /// Has a page that is in `slot` be in the slot that `moved` says from now on, if it says one. Nobody else reads the page or
    /// frees its slot meanwhile. If it isn't there any more, or somebody is at it, nothing happens.
    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>);

    /// Has the page in that frame do without its slot, and frees the slot. If the frame has another page by now, or is
    /// being written to the slot, nothing happens.
    fn give_up_slot(&self, frame: u32, slot: SlotId);
}

/// Why a page didn't come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBack {
    /// There is no memory for it.
    NoMemory,
    /// It can't be read, or isn't what was written.
    Failed,
}

/// An area as it is now.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaInfo {
    /// By which it is removed.
    pub number: u32,
    /// What it is.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// How its slots are given out.
    pub placement: Placement,
    /// Pages that it has room for.
    pub slots: u64,
    /// How many of them are in use, or about to be free.
    pub used: u64,
    /// If it has pages compressed in memory: how much of that.
    pub compressed: Option<CompressedInfo>,
}

/// The swap areas of a Pagefold.
pub struct Swap {
    copies: PerCpu<RwLock<AreaList>>,
    changing: Mutex<()>,
    /// Some area has pages come along with others. A hint that spares its readers a lock, and changes with the list.
    has_device: AtomicBool,
    page_size: usize,
}

impl Swap {
    /// No area, for pages of `page_size` bytes.
    #[must_use]
    pub fn new(page_size: usize) -> Self {
        Self {
            copies: PerCpu::new(|| RwLock::new(AreaList::default())),
            changing: Mutex::new(()),
            has_device: AtomicBool::new(false),
            page_size,
        }
    }

    /// Adds an area, and says its number.
    ///
    /// # Errors
    /// What is there isn't an area and isn't to be overwritten, or is too small, or can't be opened or written.
    pub fn add(&self, source: &Source, backend: &dyn Backend, options: AreaOptions) -> Result<u32, AddError> {
        self.add_admitted(source, backend, options, &mut |_| true)
    }

    /// As [`add`](Self::add), if `admit` says yes to the bytes that the area's tables will take, of which it is told before they
    /// take them. It may have said so, too, for an area that then couldn't be added.
    ///
    /// # Errors
    /// As [`add`](Self::add); [`AddError::NoRoom`].
    pub fn add_admitted(
        &self,
        source: &Source,
        backend: &dyn Backend,
        options: AreaOptions,
        admit: &mut dyn FnMut(u64) -> bool,
    ) -> Result<u32, AddError> {
        let _turn = self.changing.lock();
        let number = self.here().free_number()?;
        let area = Arc::new(Area::open(number, source, backend, options, self.page_size, admit)?);
        if self.here().has(area.identity) {
            return Err(AddError::InUse { area: area.name.clone() });
        }
        tracing::info!(area = area.name, slots = area.slots.slots(), placement = ?area.placement, "swap area added");
        for copy in self.copies.iter() {
            copy.write().add(&area);
        }
        for copy in self.copies.iter() {
            copy.write().fill(&area);
        }
        self.look_for_devices();
        Ok(number)
    }

    /// Removes an area when everything in it is back in memory.
    ///
    /// # Errors
    /// Memory is short, or a page can't be read. The area is in use as before then, but for the pages that are back.
    pub fn remove(&self, number: u32, owners: &dyn Owners) -> Result<(), RemoveError> {
        let _turn = self.changing.lock();
        let area = self.here().get(number).cloned().ok_or(RemoveError::Unknown { area: number })?;
        for copy in self.copies.iter() {
            copy.write().stop_filling(&area);
        }
        let emptied = self.empty(&area, owners);
        for copy in self.copies.iter() {
            match emptied {
                Ok(()) => copy.write().remove(&area),
                Err(_) => copy.write().fill(&area),
            }
        }
        self.look_for_devices();
        emptied
    }

    fn look_for_devices(&self) {
        let has_device = self.here().all().any(|area| area.has_device());
        self.has_device.store(has_device, Ordering::Relaxed); // A hint.
    }

    /// Brings back all pages of an area that gets no new ones.
    fn empty(&self, area: &Area, owners: &dyn Owners) -> Result<(), RemoveError> {
        for round in 0..ROUNDS_MAX {
            if round > 0 {
                sleep(Duration::from_millis(1)); // For whoever has such a page just now.
            }
            for (slot, state) in area.slots.held() {
                let back = match state {
                    SlotState::Swapped { owner } => owners.bring_back(owner, slot),
                    SlotState::Cached { frame } => {
                        owners.give_up_slot(frame, slot);
                        Ok(())
                    }
                    SlotState::Taken | SlotState::Free | SlotState::Freed => Ok(()),
                };
                if back == Err(NotBack::NoMemory) {
                    let missing_bytes = area.slots.held().count() as u64 * self.page_size as u64;
                    return Err(RemoveError::NoMemory { area: area.number, missing_bytes });
                }
            }
            area.drain();
            if area.slots.used() == 0 {
                return Ok(());
            }
        }
        Err(RemoveError::Stuck { area: area.number, pages: area.slots.used() })
    }

    /// Writes pages to slots, those that follow each other in one request, and calls `done` for each page, by its place in
    /// `pages`: with its slot, in which it is *cached* and which is the caller's, or with why it has none. A page that
    /// couldn't be written in one place was tried in others.
    pub fn swap_out(&self, pages: &[PageOut<'_>], mut done: impl FnMut(usize, Result<SlotId, SwapOutError>)) {
        let areas = self.here();
        write_out(&areas, pages, Tried::default(), &mut |at, result| done(at, result));
    }

    /// Writes a page to a slot that is kept for this, in the area of `slot` or another one: for a page that goes so that the one in
    /// `slot` can come, when all other slots are in use. It is *cached* there, and the caller's.
    ///
    /// # Errors
    /// All of those are in use, or can't be written to; or there are some, but no room for what is in this page: then another page
    /// may do, and there is no error to tell.
    pub fn swap_out_for(&self, slot: SlotId, page: &PageOut<'_>) -> Result<SlotId, Option<SwapOutError>> {
        let areas = self.here();
        let own = areas.get(slot.area()).into_iter();
        let all = own.chain(areas.all().filter(|area| area.number != slot.area()));
        let mut outcome = Err(Some(SwapOutError::Full));
        for area in all.filter(|area| areas.is_filled(area)) {
            let Some(reserved) = area.slots.allocate_reserved() else { continue };
            match area.write(&[reserved], &[*page], Need::Last) {
                Ok(()) => return Ok(reserved),
                Err(SwapOutError::Full) => outcome = Err(None),
                Err(error) => outcome = outcome.map_err(|others| others.and(Some(error))),
            }
            let _ = area.free(reserved); // It is ours.
        }
        outcome
    }

    /// Asks the CPU to fetch what is known of pages that are about to come or go.
    pub fn prefetch(&self, slots: impl IntoIterator<Item = SlotId>) {
        let areas = self.here();
        slots.into_iter().filter_map(|slot| Some((slot, areas.get(slot.area())?))).for_each(|(slot, area)| {
            area.slots.prefetch(slot);
        });
    }

    /// Reads a swapped page, and makes sure that it is what was written; `into` is unspecified otherwise. Says what was
    /// remembered of it. The slot is the caller's, before and after.
    ///
    /// # Errors
    /// The device's, or [`SwapCorrupt`](SwapInError::SwapCorrupt).
    pub fn swap_in(&self, slot: SlotId, page: Owner, into: SharedBytes<'_>) -> Result<Note, SwapInError> {
        let areas = self.here();
        areas.get(slot.area()).map_or(Err(SwapInError::SwapCorrupt { page }), |area| area.read(slot, page, into))
    }

    /// Reads swapped pages in slots that follow each other, in one request of the device's, and tells of each, by its place,
    /// whether it is what was written: what is read `into` for those that aren't is unspecified. The slots are the caller's, before
    /// and after, and all of one area.
    ///
    /// # Errors
    /// The device's; nobody is told of anything then.
    pub fn swap_in_run(
        &self,
        run: &[(SlotId, Owner)],
        into: &[SharedBytes<'_>],
        tell: impl FnMut(usize, bool),
    ) -> Result<(), IoError> {
        let areas = self.here();
        let area = run.first().and_then(|(slot, _)| areas.get(slot.area()));
        area.map_or(Ok(()), |area| area.read_run(run, into, tell))
    }

    /// Whether pages next to the one in a slot can be read along with it, and stay in their slots: not where reading is a copy, nor
    /// in an area that is being removed.
    #[must_use]
    pub fn may_read_along(&self, slot: SlotId) -> bool {
        if !self.has_device.load(Ordering::Relaxed) {
            return false;
        }
        let areas = self.here();
        areas.get(slot.area()).is_some_and(|area| area.has_device() && areas.is_filled(area))
    }

    /// What is in the slot that is so many further on in the same area, and which use of that slot it is.
    #[must_use]
    pub fn neighbour(&self, slot: SlotId, distance: i64) -> Option<(SlotState, SlotId)> {
        let number = u32::try_from(i64::from(slot.number()).checked_add(distance)?).ok()?;
        self.here().get(slot.area())?.slots.state(number)
    }

    /// What is in a slot. Takes no lock that others take.
    ///
    /// # Errors
    /// The number is stale.
    pub fn lookup(&self, slot: SlotId) -> Result<SlotState, StaleSlot> {
        self.with_slots(slot, |slots| slots.lookup(slot))
    }

    /// The page in `frame` has been evicted: it is in its slot alone. The slot is the caller's.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_swapped(&self, slot: SlotId, owner: Owner, note: Note) -> Result<(), StaleSlot> {
        self.with_slots(slot, |slots| slots.set_swapped(slot, owner, note))
    }

    /// The page is in `frame` again, and keeps its slot, for as long as it doesn't change. The slot is the caller's.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_cached(&self, slot: SlotId, frame: u32) -> Result<(), StaleSlot> {
        self.with_slots(slot, |slots| slots.set_cached(slot, frame))
    }

    /// What was remembered of a swapped page. The slot is the caller's.
    ///
    /// # Errors
    /// The number is stale.
    pub fn note(&self, slot: SlotId) -> Result<Note, StaleSlot> {
        self.with_slots(slot, |slots| slots.note(slot))
    }

    /// Gives a slot back, which was the caller's.
    ///
    /// # Errors
    /// The number is stale.
    pub fn free(&self, slot: SlotId) -> Result<(), StaleSlot> {
        let areas = self.here();
        areas.get(slot.area()).map_or(Err(StaleSlot(slot)), |area| area.free(slot))
    }

    /// Calls `visit` with each slot whose page was in memory as well when this came by, and that page's frame.
    pub fn each_cached(&self, mut visit: impl FnMut(SlotId, u32)) {
        let areas: Vec<_> = self.here().all().cloned().collect();
        for (slot, state) in areas.iter().flat_map(|area| area.slots.held()) {
            if let SlotState::Cached { frame } = state {
                visit(slot, frame);
            }
        }
    }

    /// Whether a page that came back may as well keep its slot: about half of the slots there are free, and it isn't memory
    /// that the page takes there.
    #[must_use]
    pub fn may_keep(&self, slot: SlotId) -> bool {
        let areas = self.here();
        areas.get(slot.area()).is_some_and(|area| areas.is_filled(area) && area.may_keep(slot))
    }

    /// The page is in `frame` again, and keeps its slot for as long as it doesn't change, if it [may](Self::may_keep). Says whether
    /// it does. The slot is the caller's.
    #[must_use]
    pub fn keep(&self, slot: SlotId, frame: u32) -> bool {
        let areas = self.here();
        let area = areas.get(slot.area()).filter(|area| areas.is_filled(area) && area.may_keep(slot));
        area.is_some_and(|area| area.slots.set_cached(slot, frame).is_ok())
    }

    /// Makes all slots free that were given back. [`areas`](Self::areas) is exact after that.
    pub fn drain(&self) {
        self.here().all().for_each(|area| area.drain());
    }

    /// Has areas of compressed pages take memory into stock that they have too little of, as long as there is room for it. Says
    /// whether they have enough.
    pub fn stock_up(&self) -> bool {
        let areas = self.here();
        // One that is being removed needs none.
        let filled = areas.all().filter(|area| areas.is_filled(area));
        let lacking = filled.filter_map(|area| area.compressed()).filter(|area| !area.stock_up());
        lacking.count() == 0
    }

    /// All areas, by their numbers.
    #[must_use]
    pub fn areas(&self) -> Vec<AreaInfo> {
        let areas = self.here();
        let info = |area: &Arc<Area>| AreaInfo {
            number: area.number,
            name: area.name.clone(),
            priority: area.priority,
            placement: area.placement,
            slots: area.slots.slots(),
            used: area.slots.used(),
            compressed: area.compressed().map(Compressed::info),
        };
        areas.all().map(info).collect()
    }

    /// Memory that the areas' tables take.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.here().all().map(|area| area.table_bytes()).sum()
    }

    /// This CPU's copy of the list of areas.
    pub(crate) fn here(&self) -> RwLockReadGuard<'_, AreaList> {
        self.copies.here().read()
    }

    #[cfg(all(test, not(pagefold_loom)))]
    pub(crate) fn with_area<R>(&self, slot: SlotId, look: impl FnOnce(&Area) -> R) -> R {
        look(self.here().get(slot.area()).expect("an area"))
    }

    fn with_slots<R>(&self, slot: SlotId, f: impl FnOnce(&Slots) -> Result<R, StaleSlot>) -> Result<R, StaleSlot> {
        let areas = self.here();
        areas.get(slot.area()).map_or(Err(StaleSlot(slot)), |area| f(&area.slots))
    }
}
