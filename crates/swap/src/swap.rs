//! All swap areas: how an area is chosen for a page, and how areas are added and removed.
//!
//! Every CPU has its own copy of the list of areas, under its own reader/writer lock. A swapping
//! thread locks its CPU's copy as a reader, so it writes nothing that CPUs share. The thread holds
//! the lock while it finds the area and allocates slots, but never during device I/O. So a device
//! that doesn't answer doesn't prevent another area from being added, and the removal of an area
//! waits only for pages in that area.
//!
//! - A1. Each CPU's copy of the list has an *order*: the areas that get new pages. To allocate
//!   slots in an area, a thread must hold the lock of a copy that has the area in its order. So an
//!   area that is in no order gets no new pages. A page that is just being written to the area
//!   already has its slot, so removal waits for this page, too.
//! - A2. An area is in every copy's *table* before it is in any order, and stays in the tables
//!   until all its slots are free. So a thread that has the number of a slot finds the slot's area
//!   in its CPU's table.
//! - A3. A thread that takes an area out of the orders sets `leaving`. Only this thread puts the
//!   area back into the orders, or removes it from the tables.
//!
//! To remove an area, a thread first takes the area out of all orders. Then it asks the owner of
//! each page to bring the page back into memory ([`Owners`]). Finally it takes the area out of all
//! tables. If memory is short, a page can't be read, a page stays in use, or an owner panics, the
//! thread puts the area back into the orders instead.
//!
//! Lock order: `changing` → CPU's copy → the locks of [`Slots`](crate::Slots). Neither `changing`
//! nor a copy's lock is held during device I/O or calls of [`Owners`].

use std::ops::ControlFlow;

use io::{Backend, IoError};
use sync::atomic::{AtomicBool, AtomicU32, Ordering};
use sync::lock::{Mutex, RwLock, RwLockReadGuard};
use sync::wait::Backoff;
use sync::{Arc, PerCpu, SharedBytes, Weak};

use crate::StaleSlot;
use crate::allowance::Need;
use crate::area::{Area, AreaOptions, NotWritten, Source};
use crate::area_list::{AREAS_MAX, AreaList, Handle};
use crate::compressed::{Compressed, CompressedInfo};
use crate::error::{AddError, NotExchanged, RemoveError, SwapInError, SwapOutError};
use crate::page_out::PageOut;
use crate::placement::{Placement, PlacementReason};
use crate::slot_word::{Note, Owner, SlotBatch, SlotId, SlotState};
use crate::slots::Slots;
use crate::write_out::{Tried, write_out};

/// How often removal retries when none of the remaining pages can be read.
const READS_MAX: u32 = 8;

/// Functions of the pages' owner. [`Swap`] calls them to remove an area, and to recompress old
/// pages or move them to another area ([`spill`](Swap::spill)). During a call, [`Swap`] holds no
/// lock of the list of areas or of a cluster.
pub trait Owners {
    /// Brings a page back into memory from its slot, and frees the slot. Also returns `Ok` if
    /// another thread is already doing so.
    ///
    /// # Errors
    /// There is no memory for the page, or it can't be read.
    fn bring_back(&self, owner: Owner, slot: SlotId) -> Result<(), NotBack>;

    /// Calls `moved`. During this call, no other thread can read the page in `slot` or free the
    /// slot. If `moved` returns a new slot, the page is in the new slot from then on. If the page
    /// is no longer in `slot`, or another thread is working on the page, does nothing, and doesn't
    /// call `moved`.
    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>);

    /// Detaches the page in `frame` from `slot`, and frees the slot. Does nothing if the frame has
    /// another page now, or the page is being written to the slot.
    fn give_up_slot(&self, frame: u32, slot: SlotId);
}

/// Why a page wasn't brought back into memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotBack {
    /// There is no memory for the page.
    NoMemory,
    /// The device reports an error (`Some`), or the bytes that were read aren't those that were
    /// written.
    Failed(Option<IoError>),
}

/// Where the next call of [`look_for_cached`](Swap::look_for_cached) continues.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Position {
    area: u32,
    slot: u32,
}

/// The current state of an area.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AreaInfo {
    /// The number that identifies the area, for [`remove`](Swap::remove).
    pub number: u32,
    /// The path, or the kind of memory.
    pub name: String,
    /// Its priority.
    pub priority: i32,
    /// How its slots are allocated.
    pub placement: Placement,
    /// Why they are allocated like that.
    pub placement_reason: PlacementReason,
    /// The number of pages that fit into it.
    pub slots: u64,
    /// The number of slots in use.
    pub used: u64,
    /// Whether the area's device has had writes pending for a while, and has completed none. Then
    /// new pages go to other areas if one of them has room.
    pub is_stalled: bool,
    /// Whether pages are encrypted when they are written there.
    pub is_encrypted: bool,
    /// For an area of compressed pages: the memory it uses, and the pages in it.
    pub compressed: Option<CompressedInfo>,
}

/// Identifies an area that was added. If the area is removed, and another area gets its number,
/// this value still identifies the removed area.
pub struct Added {
    number: u32,
    area: Weak<Area>,
}

impl Added {
    /// Returns the area's number.
    #[must_use]
    pub fn number(&self) -> u32 {
        self.number
    }

    fn is(&self, area: &Arc<Area>) -> bool {
        std::ptr::eq(self.area.as_ptr(), Arc::as_ptr(area))
    }
}

/// The swap areas of a Pagefold.
pub struct Swap {
    copies: PerCpu<RwLock<AreaList>>,
    /// Locked while the list of areas changes, which changes all copies.
    changing: Mutex<()>,
    /// One bit per area, including areas that are being added.
    numbers: AtomicU32,
    /// Whether any area is on a device. Only then is it worthwhile to read a page's neighbours
    /// along with the page. The flag is a hint: it saves reading threads a lock, and is updated
    /// whenever the list of areas changes.
    has_device: AtomicBool,
    page_size: usize,
}

/// The number of an area that isn't listed yet. If this is dropped, because the area can't be added
/// or its backend panics, the number is free again.
struct TakenNumber<'a> {
    swap: &'a Swap,
    number: u32,
}

impl TakenNumber<'_> {
    /// Returns the number, which is the listed area's from now on.
    fn keep(self) -> u32 {
        let number = self.number;
        std::mem::forget(self);
        number
    }
}

impl Drop for TakenNumber<'_> {
    fn drop(&mut self) {
        self.swap.give_number(self.number);
    }
}

/// An area that this thread has taken out of the orders (A3). Dropping this takes the area out of
/// the tables if it is empty; otherwise puts it back into the orders.
struct Leaving<'a> {
    swap: &'a Swap,
    area: Arc<Area>,
    is_empty: bool,
}

impl Drop for Leaving<'_> {
    fn drop(&mut self) {
        let Self { swap, ref area, is_empty } = *self;
        let _turn = swap.changing.lock();
        for copy in swap.copies.iter() {
            if is_empty { copy.write().remove(area) } else { copy.write().fill(area) }
        }
        area.leaving.store(false, Ordering::Relaxed); // Under the lock.
        swap.look_for_devices();
    }
}

impl Swap {
    /// Creates an empty list of areas, for pages of `page_size` bytes.
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

    /// Adds an area and returns its number.
    ///
    /// # Errors
    /// The file has other contents and may not be overwritten, is too small, or can't be opened or
    /// written.
    pub fn add(&self, source: &Source, backend: &dyn Backend, options: AreaOptions) -> Result<u32, AddError> {
        self.add_admitted(source, backend, options, &mut |_| true).map(|added| added.number)
    }

    /// Adds an area, if `admit` accepts the number of bytes that the area's tables take. `admit` is
    /// called before the tables are allocated. If the area can't be added after that, or the
    /// backend panics, the bytes that `admit` accepted aren't used, and the caller must undo what
    /// `admit` did. See also [`add`](Self::add).
    ///
    /// # Errors
    /// The errors of [`add`](Self::add), and [`AddError::NoRoom`] if `admit` returns false.
    pub fn add_admitted(
        &self,
        source: &Source,
        backend: &dyn Backend,
        options: AreaOptions,
        admit: &mut dyn FnMut(u64) -> bool,
    ) -> Result<Added, AddError> {
        let number = self.take_number()?;
        let area = Area::open(number.number, source, backend, options, self.page_size, admit)?;
        let area = self.list(area)?;
        Ok(Added { number: number.keep(), area })
    }

    /// Enters a new area into all copies.
    fn list(&self, area: Area) -> Result<Weak<Area>, AddError> {
        let area = Arc::new(area);
        let _turn = self.changing.lock();
        if self.here().all().any(|other| other.is_where(&area)) {
            return Err(AddError::InUse { area: area.name.clone() });
        }
        tracing::info!(
            area = area.name, slots = area.slots.slots(), placement = %area.slots.placement(),
            reason = %area.placement_reason,
            "swap area added"
        );
        for copy in self.copies.iter() {
            copy.write().add(&area);
        }
        for copy in self.copies.iter() {
            copy.write().fill(&area);
        }
        self.look_for_devices();
        Ok(Arc::downgrade(&area))
    }

    /// Allocates a number that no area has. Relaxed, like the update in `give_number`: the locks of
    /// the copies publish the area that has the number.
    fn take_number(&self) -> Result<TakenNumber<'_>, AddError> {
        let taken = |bits: u32| (bits != u32::MAX).then(|| bits | (bits + 1));
        let before = self.numbers.fetch_update(Ordering::Relaxed, Ordering::Relaxed, taken);
        let before = before.map_err(|_| AddError::TooMany { max: AREAS_MAX })?;
        Ok(TakenNumber { swap: self, number: before.trailing_ones() })
    }

    fn give_number(&self, number: u32) {
        self.numbers.fetch_and(!(1 << number), Ordering::Relaxed);
    }

    /// Brings all pages of an area back into memory, and then removes the area. Returns the bytes
    /// that its tables took. Waits for pages that are in use, for a limited time. Other areas can
    /// be added and removed meanwhile.
    ///
    /// # Errors
    /// Memory is short, a page can't be read, or a page stays in use. Then the area stays in use,
    /// but the pages that were already brought back stay in memory.
    pub fn remove(&self, number: u32, owners: &dyn Owners) -> Result<u64, RemoveError> {
        self.remove_if(number, |_| true, owners)
    }

    /// Removes an area that the caller added, as [`remove`](Self::remove) does.
    ///
    /// # Errors
    /// The errors of [`remove`](Self::remove). [`RemoveError::Unknown`] if the area was removed
    /// before, even if another area has its number now.
    pub fn remove_added(&self, added: &Added, owners: &dyn Owners) -> Result<u64, RemoveError> {
        self.remove_if(added.number, |area| added.is(area), owners)
    }

    /// Removes the area with this number, if `is_it` returns true for it.
    fn remove_if(
        &self,
        number: u32,
        is_it: impl FnOnce(&Arc<Area>) -> bool,
        owners: &dyn Owners,
    ) -> Result<u64, RemoveError> {
        let mut leaving = self.begin_leaving(number, is_it)?;
        self.empty(&leaving.area, owners)?; // May also panic: a backend may be a user's code.
        leaving.is_empty = true;
        let bytes = leaving.area.table_bytes();
        drop(leaving);
        self.give_number(number);
        Ok(bytes)
    }

    /// Takes an area out of all orders.
    fn begin_leaving(&self, number: u32, is_it: impl FnOnce(&Arc<Area>) -> bool) -> Result<Leaving<'_>, RemoveError> {
        let _turn = self.changing.lock();
        let area = self.here().get(number).map(|area| (**area).clone()).filter(is_it);
        let area = area.ok_or(RemoveError::Unknown { area: number })?;
        // Relaxed: under the lock.
        if area.leaving.swap(true, Ordering::Relaxed) {
            return Err(RemoveError::InUse { area: number, pages: area.slots.used() });
        }
        self.copies.iter().for_each(|copy| copy.write().stop_filling(&area));
        Ok(Leaving { swap: self, area, is_empty: false })
    }

    fn look_for_devices(&self) {
        let has_device = self.here().all().any(|area| area.has_device());
        self.has_device.store(has_device, Ordering::Relaxed); // A hint.
    }

    /// Brings back all pages of an area that gets no new pages.
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
                (backoff, before) = (Backoff::new(), left); // Progress: start the wait anew.
            }
            if left == unreadable && backoff.turns() >= READS_MAX {
                // Sometimes: an area cannot be removed as its pages cannot be read.
                return Err(RemoveError::Stuck { area: area.number, pages: left, error: why });
            }
            // The rest are pages that are being written to their slots or read from them, and pages
            // that a user's guards pin.
            backoff.wait_or(|| RemoveError::InUse { area: area.number, pages: left })?;
        }
    }

    /// Writes pages to slots; pages in consecutive slots are written in one request. Calls `done`
    /// for each page, with the page's index in `pages`. On success `done` also gets the page's
    /// slot, in state *cached*, which the caller then owns; otherwise it gets the error. A page
    /// whose write fails is retried in other areas before a failure is reported. Waits at most once
    /// for each area that has no free buffer.
    pub fn swap_out(
        &self,
        pages: &[PageOut<'_>],
        need: Need,
        mut done: impl FnMut(usize, Result<SlotId, SwapOutError>),
    ) {
        self.write_out(pages, need, Tried::default(), &mut 0, &mut |at, result| done(at, result));
    }

    /// Calls [`write_out()`] with the areas in this CPU's copy.
    pub(crate) fn write_out(
        &self,
        pages: &[PageOut<'_>],
        need: Need,
        tried: Tried,
        without_buffer: &mut u32,
        done: &mut dyn FnMut(usize, Result<SlotId, SwapOutError>),
    ) {
        let allocate =
            |want, avoid, never, into: &mut SlotBatch| self.here().allocate(want, avoid, never, into).cloned();
        write_out(&allocate, pages, need, tried, without_buffer, done);
    }

    /// Returns the area of a slot, as a reference that outlives the lock of the copy.
    fn area_of(&self, slot: SlotId) -> Option<Arc<Handle>> {
        self.here().get(slot.area()).cloned()
    }

    /// Returns the name of the area with this number, if it exists. Unlike [`areas`](Self::areas),
    /// takes no lock but that of the CPU's copy of the list of areas.
    #[must_use]
    pub fn area_name(&self, number: u32) -> Option<String> {
        Some(self.here().get(number)?.name.clone())
    }

    /// Writes `page` to a reserved slot, in the area of `slot` if possible, otherwise in another
    /// area. An exchange needs this when all other slots are in use: `page` leaves memory so that
    /// the page in `slot` can come in. Returns the reserved slot, in state *cached*, which the
    /// caller then owns. `in_vain` has a bit for each area. The call doesn't try areas whose bits
    /// are set. It sets the bit of an area if no buffer of the area became free in time, or the
    /// device reported an error.
    ///
    /// # Errors
    /// The page wasn't written to any area.
    pub fn swap_out_for(&self, slot: SlotId, page: &PageOut<'_>, in_vain: &mut u32) -> Result<SlotId, NotExchanged> {
        let (mut error, mut another_may_fit, mut tried) = (SwapOutError::Full, false, *in_vain);
        while let Some((area, reserved)) = self.allocate_reserved(slot, tried) {
            tried |= 1 << area.number;
            match area.write(&[reserved], &[*page], Need::Last) {
                Ok(()) => return Ok(reserved),
                Err(NotWritten::NoRoom) => another_may_fit = true,
                Err(NotWritten::NoBuffer) => *in_vain |= 1 << area.number,
                Err(NotWritten::Failed(why)) => {
                    *in_vain |= 1 << area.number;
                    error = SwapOutError::WriteFailed { area: area.number, error: why };
                }
            }
            let _ = area.free(reserved); // It was allocated just now.
        }
        Err(NotExchanged { error, another_may_fit })
    }

    /// Allocates a reserved slot, but in no area whose bit is set in `tried`. Tries the area of
    /// `slot` first, because the caller must wait for that area's device anyway; then areas whose
    /// devices answer; and finally the others.
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

    /// Prefetches the metadata of slots whose pages are about to be swapped in or out.
    pub fn prefetch(&self, slots: impl IntoIterator<Item = SlotId>) {
        let areas = self.here();
        slots.into_iter().filter_map(|slot| Some((slot, areas.get(slot.area())?))).for_each(|(slot, area)| {
            area.prefetch(slot);
        });
    }

    /// Reads a swapped page, verifies it, and returns its note. If this fails, the contents of
    /// `into` are unspecified. The caller must own the slot, and still owns it afterwards.
    ///
    /// # Errors
    /// The device's error, or [`SwapCorrupt`](SwapInError::SwapCorrupt).
    pub fn swap_in(&self, slot: SlotId, page: Owner, into: SharedBytes<'_>) -> Result<Note, SwapInError> {
        self.area_of(slot).map_or(Err(SwapInError::SwapCorrupt { page }), |area| area.read(slot, page, into))
    }

    /// Reads swapped pages in consecutive slots of one area, in one request to the device. Then
    /// calls `tell` for each page, with the page's index in `run` and a flag. The flag is true if
    /// the bytes are those that were written; if it is false, the page's part of `into` is
    /// unspecified. The caller must own the slots, and still owns them afterwards.
    ///
    /// # Errors
    /// The device's error; then `tell` isn't called.
    pub fn swap_in_run(
        &self,
        run: &[(SlotId, Owner)],
        into: &[SharedBytes<'_>],
        tell: impl FnMut(usize, bool),
    ) -> Result<(), IoError> {
        let area = run.first().and_then(|(slot, _)| self.area_of(*slot));
        area.map_or(Ok(()), |area| area.read_run(run, into, tell))
    }

    /// Returns whether a slot is on a device, rather than in compressed or other memory.
    #[must_use]
    pub fn is_on_device(&self, slot: SlotId) -> bool {
        self.has_device.load(Ordering::Relaxed) && self.here().get(slot.area()).is_some_and(|area| area.has_device())
    }

    /// Returns whether a read of the page in `slot` may also read the pages in neighbouring slots,
    /// which then keep their slots (swap readahead). Returns false for an area without a device,
    /// where reading several pages at once saves nothing, and for an area that is being removed.
    #[must_use]
    pub fn may_read_along(&self, slot: SlotId) -> bool {
        if !self.has_device.load(Ordering::Relaxed) {
            return false;
        }
        let areas = self.here();
        areas.get(slot.area()).is_some_and(|area| area.has_device() && areas.is_filled(area))
    }

    /// Returns the state of the slot `distance` slots after `slot` in the same area, and its
    /// [`SlotId`], which identifies the slot's current use.
    #[must_use]
    pub fn neighbour(&self, slot: SlotId, distance: i64) -> Option<(SlotState, SlotId)> {
        let number = u32::try_from(i64::from(slot.number()).checked_add(distance)?).ok()?;
        self.here().get(slot.area())?.slots.state(number)
    }

    /// Returns the state of a slot. Takes only this CPU's lock, as a reader.
    ///
    /// # Errors
    /// The number is stale.
    pub fn lookup(&self, slot: SlotId) -> Result<SlotState, StaleSlot> {
        self.with_slots(slot, |slots| slots.lookup(slot))
    }

    /// Records that the page has been evicted, and is in its slot only. The caller must own the
    /// slot.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_swapped(&self, slot: SlotId, owner: Owner, note: Note) -> Result<(), StaleSlot> {
        self.with_slots(slot, |slots| slots.set_swapped(slot, owner, note))
    }

    /// Records that the page is in `frame` again. The page keeps its slot until the page changes.
    /// The caller must own the slot.
    ///
    /// # Errors
    /// The number is stale.
    pub fn set_cached(&self, slot: SlotId, frame: u32) -> Result<(), StaleSlot> {
        self.with_slots(slot, |slots| slots.set_cached(slot, frame))
    }

    /// Returns the note of a swapped page. The caller must own the slot.
    ///
    /// # Errors
    /// The number is stale.
    pub fn note(&self, slot: SlotId) -> Result<Note, StaleSlot> {
        self.with_slots(slot, |slots| slots.note(slot))
    }

    /// Frees a slot, which the caller must own.
    ///
    /// # Errors
    /// The number is stale.
    pub fn free(&self, slot: SlotId) -> Result<(), StaleSlot> {
        let areas = self.here();
        areas.get(slot.area()).map_or(Err(StaleSlot(slot)), |area| area.free(slot))
    }

    /// Searches for pages that are in a slot and in memory as well. Calls `visit` for each slot
    /// whose page is in memory at that moment, with the slot and the page's frame. Looks at up to
    /// `looks` slots, starting at `from` and going round all areas. Advances `from`, so that the
    /// next call continues there. Ends early if `visit` breaks.
    pub fn look_for_cached(
        &self,
        from: &mut Position,
        looks: u32,
        mut visit: impl FnMut(SlotId, u32) -> ControlFlow<()>,
    ) {
        let (mut left, mut areas_left) = (looks, AREAS_MAX);
        while left > 0 && areas_left > 0 {
            // One area at a time, because no lock may be held while `visit` calls the owner of a
            // page.
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

    /// Returns whether a page that is read back may keep its slot. Three conditions must hold: the
    /// area isn't being removed, it isn't compressed memory, and at least about half of its slots
    /// are free.
    #[must_use]
    pub fn may_keep(&self, slot: SlotId) -> bool {
        let areas = self.here();
        areas.that_may_keep(slot).is_some()
    }

    /// If the page in `slot` [may keep](Self::may_keep) its slot, records that the page is back in
    /// memory, in `frame`, and returns true. The page then keeps the slot until its contents
    /// change. Otherwise changes nothing, and returns false. The caller must own the slot.
    #[must_use]
    pub fn keep(&self, slot: SlotId, frame: u32) -> bool {
        let areas = self.here();
        areas.that_may_keep(slot).is_some_and(|area| area.slots.set_cached(slot, frame).is_ok())
    }

    /// Makes all freed slots available, and releases memory that compressed pages don't need.
    pub fn drain(&self) {
        self.here().all().for_each(|area| area.drain());
    }

    /// Releases memory of compressed areas that no page needs.
    pub fn release_idle(&self) {
        self.here().all().filter_map(|area| area.compressed()).for_each(Compressed::release_idle);
    }

    /// Charges memory for the stocks of compressed areas until the stocks are full, or the budget
    /// has no more room. Returns whether each stock is full, or its area has reached its limit.
    pub fn stock_up(&self) -> bool {
        let areas = self.here();
        // An area that is being removed needs no stock.
        let filled = areas.all().filter(|area| areas.is_filled(area));
        let lacking = filled.filter_map(|area| area.compressed()).filter(|area| !area.stock_up());
        lacking.count() == 0
    }

    /// Returns the state of all areas, by number.
    #[must_use]
    pub fn areas(&self) -> Vec<AreaInfo> {
        let areas = self.here();
        let info = |area: &Arc<Handle>| AreaInfo {
            number: area.number,
            name: area.name.clone(),
            priority: area.priority,
            placement: area.slots.placement(),
            placement_reason: area.placement_reason.clone(),
            slots: area.slots.slots(),
            used: area.slots.in_use(),
            is_stalled: area.is_stalled(),
            is_encrypted: area.is_encrypted(),
            compressed: area.compressed().map(Compressed::info),
        };
        areas.all().map(info).collect()
    }

    /// Returns whether some area may have free slots. Returns false if a search of every area found
    /// no slot, and no slot has become free since then.
    pub fn may_have_free_slots(&self) -> bool {
        self.here().all().any(|area| !area.slots.is_full())
    }

    /// Returns whether there is no area.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.here().all().next().is_none()
    }

    /// Locks this CPU's copy of the list of areas as a reader.
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
