//! All swap areas: which one a page goes to, and coming and going of areas.
//!
//! Every CPU has a copy of the list of areas under a reader/writer lock of its own. A thread that
//! swaps takes its CPU's lock as a reader, and so writes nothing that CPUs share. It holds the lock
//! while it finds the area and allocates slots, and never while a device reads or writes: so an
//! area can be added beside one whose device doesn't answer, and one that leaves waits for its own
//! pages alone. It holds that
//!
//! - A1. An area that is in no copy's *order* any more gets no new pages: slots are allocated under
//!   the lock of the copy that has the area in its order. A page that is just being written has its
//!   slot, and is waited for as any page in the area.
//! - A2. An area is in every copy's *table* before it is in any order, and stays there until all
//!   its slots are free: so a thread that has the number of a slot finds the area.
//! - A3. An area that is out of the orders comes back into them, or leaves the tables, by the one
//!   thread that took it out of them (`leaving`).
//!
//! Removing an area is thus: out of all orders; each page in it back into memory, by its owner
//! ([`Owners`]); out of all tables. If memory is short, or a page stays in use, it goes back into
//! the orders.
//!
//! Lock order: `changing` → CPU's copy → what [`Slots`](crate::Slots) has. Neither is held while a
//! device works, or an owner.

use std::ops::ControlFlow;

use io::{Backend, IoError};
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::lock::{Mutex, RwLock, RwLockReadGuard};
use sync::wait::Backoff;
use sync::{Arc, PerCpu, SharedBytes};

use crate::StaleSlot;
use crate::allowance::Need;
use crate::area::{Area, AreaOptions, Source};
use crate::area_list::{AREAS_MAX, AreaList, Handle};
use crate::compressed::{Compressed, CompressedInfo};
use crate::error::{AddError, RemoveError, SwapInError, SwapOutError};
use crate::page_out::PageOut;
use crate::slot_word::{Note, Owner, SlotBatch, SlotId, SlotState};
use crate::slots::{Placement, Slots};
use crate::write_out::{Tried, write_out};

/// How often removal tries pages that can't be read, when there are no others.
const READS_MAX: u32 = 8;

/// What removal and spilling ask of the owner of the pages. Called without any lock of a copy or a
/// cluster.
pub trait Owners {
    /// Brings a page back into memory from its slot, and frees the slot; or finds that another
    /// thread is doing so.
    ///
    /// # Errors
    /// There is no memory for it, or it can't be read.
    fn bring_back(&self, owner: Owner, slot: SlotId) -> Result<(), NotBack>;

    /// Moves the page in `slot` to the slot that `moved` returns, if it returns one. No other
    /// thread reads the page or frees its slot meanwhile. Does nothing if the page isn't in `slot`
    /// any more, or another thread is working on it.
    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>);

    /// Detaches the page in `frame` from its swap slot and frees the slot. Does nothing if the
    /// frame has another page by now, or the page is being written to the slot.
    fn give_up_slot(&self, frame: u32, slot: SlotId);
}

/// Why a page didn't come back.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBack {
    /// There is no memory for it.
    NoMemory,
    /// It can't be read, as its device answers; or it isn't what was written.
    Failed(Option<IoError>),
}

/// Where a walk through the slots of all areas goes on.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    area: u32,
    slot: u32,
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
    /// How many of them are in use.
    pub used: u64,
    /// Its device has had something to write for a while, and hasn't answered: pages go to other
    /// areas, as long as one has room.
    pub is_stalled: bool,
    /// Pages are encrypted that go there.
    pub is_encrypted: bool,
    /// If it has pages compressed in memory: how much of that.
    pub compressed: Option<CompressedInfo>,
}

/// The swap areas of a Pagefold.
pub struct Swap {
    copies: PerCpu<RwLock<AreaList>>,
    /// Of all copies.
    changing: Mutex<()>,
    /// A bit for each area, also for one that is being made.
    numbers: AtomicU32,
    /// Some area has pages come along with others. A hint that spares its readers a lock, and
    /// changes with the list.
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
            numbers: AtomicU32::new(0),
            has_device: AtomicBool::new(false),
            page_size,
        }
    }

    /// Adds an area, and says its number.
    ///
    /// # Errors
    /// What is there isn't an area and isn't to be overwritten, or is too small, or can't be opened
    /// or written.
    pub fn add(&self, source: &Source, backend: &dyn Backend, options: AreaOptions) -> Result<u32, AddError> {
        self.add_admitted(source, backend, options, &mut |_| true)
    }

    /// As [`add`](Self::add), if `admit` says yes to the bytes that the area's tables will take, of
    /// which it is told before they take them. It may have said so, too, for an area that then
    /// couldn't be added.
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
        let number = self.take_number()?;
        let added =
            Area::open(number, source, backend, options, self.page_size, admit).and_then(|area| self.list(area));
        if added.is_err() {
            self.give_number(number);
        }
        added.map(|()| number)
    }

    /// Has a new area be one of all.
    fn list(&self, area: Area) -> Result<(), AddError> {
        let area = Arc::new(area);
        let _turn = self.changing.lock();
        if self.here().all().any(|other| other.is_where(&area)) {
            return Err(AddError::InUse { area: area.name.clone() });
        }
        tracing::info!(
            area = area.name, slots = area.slots.slots(), placement = ?area.slots.placement(),
            "swap area added"
        );
        for copy in self.copies.iter() {
            copy.write().add(&area);
        }
        for copy in self.copies.iter() {
            copy.write().fill(&area);
        }
        self.look_for_devices();
        Ok(())
    }

    /// A number that no area has. Relaxed, as in `give_number`: whatever is known by a number is
    /// published by the copies' locks.
    fn take_number(&self) -> Result<u32, AddError> {
        let taken = |bits: u32| (bits != u32::MAX).then(|| bits | (bits + 1));
        let before = self.numbers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        before.map(u32::trailing_ones).map_err(|_| AddError::TooMany { max: AREAS_MAX })
    }

    fn give_number(&self, number: u32) {
        self.numbers.fetch_and(!(1 << number), Ordering::Relaxed);
    }

    /// Removes an area when everything in it is back in memory. Returns the bytes that its tables
    /// took. Waits for pages in use, but not for ever; other areas come and go meanwhile.
    ///
    /// # Errors
    /// Memory is short, a page can't be read, or stays in use. The area is in use as before then,
    /// but for the pages that are back.
    pub fn remove(&self, number: u32, owners: &dyn Owners) -> Result<u64, RemoveError> {
        let area = {
            let _turn = self.changing.lock();
            let area =
                self.here().get(number).map(|area| (**area).clone()).ok_or(RemoveError::Unknown { area: number })?;
            // Relaxed: under the lock.
            if area.leaving.swap(true, Ordering::Relaxed) {
                return Err(RemoveError::InUse { area: number, pages: area.slots.used() });
            }
            self.copies.iter().for_each(|copy| copy.write().stop_filling(&area));
            area
        };
        let emptied = self.empty(&area, owners);
        let _turn = self.changing.lock();
        for copy in self.copies.iter() {
            match emptied {
                Ok(()) => copy.write().remove(&area),
                Err(_) => copy.write().fill(&area),
            }
        }
        area.leaving.store(false, Ordering::Relaxed);
        self.look_for_devices();
        emptied?;
        self.give_number(number);
        Ok(area.table_bytes())
    }

    fn look_for_devices(&self) {
        let has_device = self.here().all().any(|area| area.has_device());
        self.has_device.store(has_device, Ordering::Relaxed); // A hint.
    }

    /// Brings back all pages of an area that gets no new ones.
    fn empty(&self, area: &Area, owners: &dyn Owners) -> Result<(), RemoveError> {
        let (mut backoff, mut before) = (Backoff::new(), u64::MAX);
        loop {
            let (mut unreadable, mut why) = (0, None);
            for (slot, state) in area.slots.held() {
                let back = match state {
                    SlotState::Swapped { owner } => owners.bring_back(owner, slot),
                    SlotState::Cached { frame } => {
                        owners.give_up_slot(frame, slot);
                        Ok(())
                    }
                    SlotState::Taken | SlotState::Free | SlotState::Freed => Ok(()),
                };
                match back {
                    Ok(()) => {}
                    Err(NotBack::Failed(error)) => (unreadable, why) = (unreadable + 1, error.or(why)),
                    Err(NotBack::NoMemory) => {
                        let missing_bytes = area.slots.held().count() as u64 * self.page_size as u64;
                        return Err(RemoveError::NoMemory { area: area.number, missing_bytes });
                    }
                }
            }
            area.drain();
            let left = area.slots.used();
            if left == 0 {
                return Ok(());
            }
            if left < before {
                (backoff, before) = (Backoff::new(), left); // Others let go.
            }
            if left == unreadable && backoff.turns() >= READS_MAX {
                // Sometimes: an area cannot be removed as its pages cannot be read.
                return Err(RemoveError::Stuck { area: area.number, pages: left, error: why });
            }
            // Pages on their way into slots or out of them, and those that a user has a guard of.
            backoff.wait_or(|| RemoveError::InUse { area: area.number, pages: left })?;
        }
    }

    /// Writes pages to slots, those that follow each other in one request, and calls `done` for
    /// each page, by its place in `pages`: with its slot, in which it is *cached* and which is the
    /// caller's, or with why it has none. A page that couldn't be written in one place was tried in
    /// others.
    pub fn swap_out(&self, pages: &[PageOut<'_>], mut done: impl FnMut(usize, Result<SlotId, SwapOutError>)) {
        self.write_out(pages, Tried::default(), &mut |at, result| done(at, result));
    }

    /// [`write_out()`], to areas of this CPU's copy.
    pub(crate) fn write_out(
        &self,
        pages: &[PageOut<'_>],
        tried: Tried,
        done: &mut dyn FnMut(usize, Result<SlotId, SwapOutError>),
    ) {
        let allocate =
            |want, avoid, never, into: &mut SlotBatch| self.here().allocate(want, avoid, never, into).cloned();
        write_out(&allocate, pages, tried, done);
    }

    /// The area of a slot, for longer than its copy's lock is held.
    fn area_of(&self, slot: SlotId) -> Option<Arc<Handle>> {
        self.here().get(slot.area()).cloned()
    }

    /// The name of the area that a slot is in, if there is one.
    #[must_use]
    pub fn area_name(&self, slot: SlotId) -> Option<String> {
        Some(self.area_of(slot)?.name.clone())
    }

    /// Writes a page to a slot that is kept for this, in the area of `slot` or another one: for a
    /// page that goes so that the one in `slot` can come, when all other slots are in use. It is
    /// *cached* there, and the caller's.
    ///
    /// # Errors
    /// All of those are in use, or can't be written to; or there are some, but no room for what is
    /// in this page: then another page may do, and there is no error to tell.
    pub fn swap_out_for(&self, slot: SlotId, page: &PageOut<'_>) -> Result<SlotId, Option<SwapOutError>> {
        let (mut outcome, mut tried) = (Err(Some(SwapOutError::Full)), 0);
        while let Some((area, reserved)) = self.allocate_reserved(slot, tried) {
            tried |= 1 << area.number;
            match area.write(&[reserved], &[*page], Need::Last) {
                Ok(()) => return Ok(reserved),
                Err(SwapOutError::Full) => outcome = Err(None),
                Err(error) => outcome = outcome.map_err(|others| others.and(Some(error))),
            }
            let _ = area.free(reserved); // It is ours.
        }
        outcome
    }

    /// A slot that is kept, in the area of `slot`, whose device the caller has to wait for anyway,
    /// or else in another one: not in those whose bits are in `tried`.
    fn allocate_reserved(&self, slot: SlotId, tried: u32) -> Option<(Arc<Handle>, SlotId)> {
        let areas = self.here();
        let own = areas.get(slot.area()).into_iter();
        let others = |stalled| {
            let is_one = move |area: &&Arc<Handle>| area.number != slot.area() && area.is_stalled() == stalled;
            areas.all().filter(is_one)
        };
        let all = own.chain(others(false)).chain(others(true));
        let mut untried = all.filter(|area| tried >> area.number & 1 == 0 && areas.is_filled(area));
        untried.find_map(|area| Some((Arc::clone(area), area.slots.allocate_reserved()?)))
    }

    /// Asks the CPU to fetch what is known of pages that are about to come or go.
    pub fn prefetch(&self, slots: impl IntoIterator<Item = SlotId>) {
        let areas = self.here();
        slots.into_iter().filter_map(|slot| Some((slot, areas.get(slot.area())?))).for_each(|(slot, area)| {
            area.prefetch(slot);
        });
    }

    /// Reads a swapped page, and makes sure that it is what was written; `into` is unspecified
    /// otherwise. Says what was remembered of it. The slot is the caller's, before and after.
    ///
    /// # Errors
    /// The device's, or [`SwapCorrupt`](SwapInError::SwapCorrupt).
    pub fn swap_in(&self, slot: SlotId, page: Owner, into: SharedBytes<'_>) -> Result<Note, SwapInError> {
        self.area_of(slot).map_or(Err(SwapInError::SwapCorrupt { page }), |area| area.read(slot, page, into))
    }

    /// Reads swapped pages in slots that follow each other, in one request of the device's, and
    /// tells of each, by its place, whether it is what was written: what is read `into` for those
    /// that aren't is unspecified. The slots are the caller's, before and after, and all of one
    /// area.
    ///
    /// # Errors
    /// The device's; `tell` isn't called then.
    pub fn swap_in_run(
        &self,
        run: &[(SlotId, Owner)],
        into: &[SharedBytes<'_>],
        tell: impl FnMut(usize, bool),
    ) -> Result<(), IoError> {
        let area = run.first().and_then(|(slot, _)| self.area_of(*slot));
        area.map_or(Ok(()), |area| area.read_run(run, into, tell))
    }

    /// Whether pages next to the one in a slot can be read along with it, and stay in their slots:
    /// not where reading is a copy, nor in an area that is being removed.
    #[must_use]
    pub fn may_read_along(&self, slot: SlotId) -> bool {
        if !self.has_device.load(Ordering::Relaxed) {
            return false;
        }
        let areas = self.here();
        areas.get(slot.area()).is_some_and(|area| area.has_device() && areas.is_filled(area))
    }

    /// What is in the slot that is so many further on in the same area, and which use of that slot
    /// it is.
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

    /// The page is in `frame` again, and keeps its slot, for as long as it doesn't change. The slot
    /// is the caller's.
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

    /// Goes on `from` where the last call ended, round and round through all areas, by `looks`
    /// slots at most. Calls `visit` with each slot whose page was in memory as well when this came
    /// by, and with that page's frame, until `visit` breaks.
    pub fn look_for_cached(
        &self,
        from: &mut Position,
        looks: u32,
        mut visit: impl FnMut(SlotId, u32) -> ControlFlow<()>,
    ) {
        let (mut left, mut areas_left) = (looks, AREAS_MAX);
        while left > 0 && areas_left > 0 {
            // One at a time, and no lock while the owner of a page is asked.
            let Some(area) = self.here().get(from.area).cloned() else {
                *from = Position { area: (from.area + 1) % AREAS_MAX as u32, slot: 0 };
                areas_left -= 1;
                continue;
            };
            while left > 0 {
                let Some((state, slot)) = area.slots.state(from.slot) else {
                    *from = Position { area: (from.area + 1) % AREAS_MAX as u32, slot: 0 };
                    areas_left -= 1;
                    break;
                };
                from.slot += 1;
                left -= 1;
                if let SlotState::Cached { frame } = state
                    && visit(slot, frame).is_break()
                {
                    return;
                }
            }
        }
    }

    /// Whether a page that came back may as well keep its slot: about half of the slots there are
    /// free, and it isn't memory that the page takes there.
    #[must_use]
    pub fn may_keep(&self, slot: SlotId) -> bool {
        let areas = self.here();
        areas.that_may_keep(slot).is_some()
    }

    /// The page is in `frame` again, and keeps its slot for as long as it doesn't change, if it
    /// [may](Self::may_keep). Says whether it does. The slot is the caller's.
    #[must_use]
    pub fn keep(&self, slot: SlotId, frame: u32) -> bool {
        let areas = self.here();
        areas.that_may_keep(slot).is_some_and(|area| area.slots.set_cached(slot, frame).is_ok())
    }

    /// Makes all slots free that were given back, and gives back memory that compressed pages don't
    /// need.
    pub fn drain(&self) {
        self.here().all().for_each(|area| area.drain());
    }

    /// Gives back memory of compressed areas that no page needs.
    pub fn release_idle(&self) {
        self.here().all().filter_map(|area| area.compressed()).for_each(Compressed::release_idle);
    }

    /// Has areas of compressed pages take memory into stock that they have too little of, as long
    /// as there is room for it. Says whether they have enough.
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
        let info = |area: &Arc<Handle>| AreaInfo {
            number: area.number,
            name: area.name.clone(),
            priority: area.priority,
            placement: area.slots.placement(),
            slots: area.slots.slots(),
            used: area.slots.in_use(),
            is_stalled: area.is_stalled(),
            is_encrypted: area.is_encrypted(),
            compressed: area.compressed().map(Compressed::info),
        };
        areas.all().map(info).collect()
    }

    /// Whether some area may have free slots: false if all were searched in vain, and none of their
    /// slots became free since.
    pub fn may_have_free_slots(&self) -> bool {
        self.here().all().any(|area| !area.slots.is_full())
    }

    /// Whether there is no area.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.here().all().next().is_none()
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
