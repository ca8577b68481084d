//! A page fault: how a page of own memory (the space's anonymous memory) comes into memory, either
//! new or back from swap. The steps, in this order:
//!
//! | | |
//! |---|---|
//! | memory | the frame is taken and charged to the space's group first: that may take reclaim (S2 of `space`) |
//! | the page's word | if a page is new, and its part of the page map isn't there, the part is charged to the group (`memory::part_charge`) |
//! | a new page | is filled before any thread has to wait for it |
//! | the word | *vacant* or *swapped* → *loading*: only this thread brings the page in; others wait for it, and get its error if it fails |
//! | the entry | is looked at again, now that no other thread can unmap the page (S1) |
//! | the bytes | are read from the slot, and their checksum is verified; a page that is overwritten as a whole isn't read |
//! | publication | *loading* → *resident* (`lru::admission`) |
//!
//! A page that is only read keeps its slot in swap, unless slots are scarce; then the fault frees
//! the slot. If a page kept its slot, and no thread has written to the page since, the page can be
//! evicted again without being written to swap.
//!
//! | the word was | the page's bytes | the word after a failure |
//! |---|---|---|
//! | *vacant* | zeros | |
//! | *swapped*, a slot | the bytes in the slot | *swapped* again: nothing is lost |
//! | *swapped*, a same-filled page | one word, repeated | |

use std::cell::Cell;

use frames::{Ahead, BeginLoad, LoadFailure, Loading, PageState, Unpaid};
use swap::{Owner, PageEntry, SwapInError};
use sync::atomic::fence_after_update;

use super::SpaceState;
use super::fault_types::{Fault, Memory, NoMemory, Past};
use super::read_along::Along;
use super::region::{REGION_PAGES, Region};
use crate::error::Error;
use crate::lru::admission::Arrival;
use crate::manager::Manager;
use crate::manager::reclaim::room::RoomsMade;
use crate::manager::take_frame::Otherwise;
use crate::memory::charges::ChargedFrame;
use crate::memory::part_charge::PartCharge;
use crate::read::load_error;

/// Tells waiting threads that the page came back with a wrong checksum.
const CORRUPT: LoadFailure = LoadFailure(i32::MIN + 1);

/// The most retries of one fault that gets no memory. The fault retries only if another thread
/// worked on the page meanwhile, but didn't bring it in.
const OUTRUN_MAX: u32 = 8;

impl SpaceState {
    /// Brings a page into memory, as [`fault`](Self::fault) does. If another thread is already
    /// loading the page, waits for that load, and neither charges the group nor takes a frame.
    pub(super) fn fault_or_wait(&self, region: &Region, page: u64, fault: Fault<'_>) -> Result<bool, Error> {
        match region.map.state(page % REGION_PAGES) {
            PageState::Loading => self.await_other(region, page, fault),
            _ => self.fault(region, page, fault),
        }
    }

    /// Waits for another thread's load, and returns its outcome. Exception: if that load fails, and
    /// `fault` overwrites the whole page, returns false, because `fault` doesn't need the bytes
    /// that couldn't be loaded. The caller then looks at the page again.
    fn await_other(&self, region: &Region, page: u64, fault: Fault<'_>) -> Result<bool, Error> {
        let outcome = self.outcome(page, region.map.wait(page % REGION_PAGES), || region.swapped_to(page));
        if fault.overwrites(1 << self.page_shift) { outcome.or(Ok(false)) } else { outcome }
    }

    /// Brings a page into memory, and applies `fault` to it. The page comes back from swap, or is
    /// zeros if it was never written. Returns false, with nothing done, if the page is in memory
    /// already, if another thread was loading the page, or if the page isn't own memory any more.
    ///
    /// # Errors
    /// [`Error::LimitReached`]; those of [`refuse`](Self::refuse); those of swap.
    #[cold]
    pub(super) fn fault(&self, region: &Region, page: u64, fault: Fault<'_>) -> Result<bool, Error> {
        let manager = &**self.manager();
        let local = page % REGION_PAGES;
        let (mut rooms_made, mut outrun) = (RoomsMade::default(), 0);
        let group = self.group.state();
        // The charge for the part of the page map, if this thread has made one. The thread keeps
        // the charge while it waits for memory, but not while it reads from swap, or waits for
        // another thread's load.
        let mut part = None;
        if let Some(PageEntry::Slot(slot)) = region.swapped_to(page) {
            manager.swapping.areas.prefetch([slot]);
        }
        loop {
            let memory = match self.take_memory(manager, region, local, fault) {
                Ok(memory) => memory,
                // Another thread has made the part that this thread has paid for. The payment,
                // which isn't needed any more, may be the memory that is missing.
                Err(_) if part.is_some() && region.map.uses_part(local) && outrun < OUTRUN_MAX => {
                    outrun += 1;
                    part = None;
                    continue;
                }
                Err(NoMemory { error, is_outrun }) => match region.map.state(local) {
                    // Another thread took the last frame for this very page.
                    PageState::Resident { .. } => return Ok(false),
                    // If that thread's load fails, the frame is free again. The caller looks again.
                    PageState::Loading => {
                        drop(part);
                        return self.await_other(region, page, fault);
                    }
                    PageState::Vacant { .. } if !fault.writes() => return Ok(false), // Discarded in between.
                    // Another thread was working on the page, but left it as it was.
                    PageState::Swapped { .. } | PageState::Vacant { .. } if is_outrun && outrun < OUTRUN_MAX => {
                        outrun += 1;
                        continue;
                    }
                    PageState::Swapped { .. } | PageState::Vacant { .. } => return Err(error),
                },
            };
            // Most pages are new. They are filled before any thread has to wait for them.
            let is_new = fault.writes() && matches!(region.map.state(local), PageState::Vacant { .. });
            if is_new {
                memory.frame.fill(|bytes| fault.begin(bytes, memory.is_warm));
            }
            let along = self.look_along(region, local, fault, &memory);
            let mut begun = region.map.begin_load_in_part(local);
            if matches!(begun, Err(Unpaid)) && fault.writes() {
                begun = manager.memory.begin_load_and_pay(group, &region.map, local, &mut part);
            }
            match begun {
                Ok(BeginLoad::Begun(loading)) => {
                    fence_after_update(); // S1
                    let entry = region.entry(page);
                    if !fault.is_permitted(entry) {
                        drop(loading);
                        self.note_if_idle(region, local);
                        self.give_up(memory, along);
                        return if fault.may_go_on(entry) { Ok(false) } else { Err(self.refuse(page, entry)) };
                    }
                    drop(part);
                    return self.bring_in((region, page), loading, memory, along, fault, is_new);
                }
                Ok(BeginLoad::Resident) => {
                    self.give_up(memory, along);
                    return Ok(false);
                }
                Ok(BeginLoad::Busy) => {
                    drop(part);
                    self.give_up(memory, along);
                    return self.await_other(region, page, fault);
                }
                // A region has a place for each of its pages.
                Ok(BeginLoad::NoRoom | BeginLoad::NoPlace) => {
                    self.give_up(memory, along);
                    manager.make_room_for_word(group, &mut rooms_made)?;
                }
                // The page was discarded in between, and so were all others of its part.
                Err(Unpaid) if !fault.writes() => {
                    self.give_up(memory, along);
                    return Ok(false);
                }
                // The memory is given back first: it may be the last that the group can get.
                Err(Unpaid) => {
                    self.give_up(memory, along);
                    part = self.charge_part(region, local, fault.isolated(), &mut outrun)?;
                }
            }
        }
    }

    /// Charges the part of the page map that a new page needs. Waits for memory only as long as the
    /// part is missing. Returns `None` if another thread has made the part, perhaps for this very
    /// page. `isolated` is the number of the group's pages that the caller has taken off their
    /// lists.
    pub(super) fn charge_part(
        &self,
        region: &Region,
        local: u64,
        isolated: u64,
        outrun: &mut u32,
    ) -> Result<Option<PartCharge<'_>>, Error> {
        let is_made = Cell::new(false);
        let is_needed = || {
            is_made.set(region.map.uses_part(local));
            !is_made.get()
        };
        // The wait may end early only if a retry is left. Without a retry, an early end would make
        // the call fail.
        let may_be_outrun = *outrun < OUTRUN_MAX;
        match self.manager().charge_part(self.group.state(), isolated, &|| is_needed() || !may_be_outrun) {
            Ok(part) => Ok(Some(part).filter(|_| is_needed())),
            // The part may have gone again by now.
            Err(_) if may_be_outrun && (is_made.get() || !is_needed()) => {
                *outrun += 1;
                Ok(None)
            }
            Err(error) => Err(error),
        }
    }

    /// Notes that a part of a page map may have become idle, because a load of `local` ended
    /// without a page (P3 of `manager::parts`).
    pub(super) fn note_if_idle(&self, region: &Region, local: u64) {
        if region.map.has_idle_part(local..local + 1) {
            self.manager().spaces.note_idle_parts(self.group.state(), &region.map);
        }
    }

    /// Takes memory for a page. If there is none, and the page is in a slot, another page may be
    /// swapped out in exchange.
    pub(super) fn take_memory<'a>(
        &'a self,
        manager: &'a Manager,
        region: &Region,
        local: u64,
        fault: Fault<'_>,
    ) -> Result<Memory<'a>, NoMemory> {
        let group = self.group.state();
        let (exchange, is_outrun) = (Cell::new(None), Cell::new(false));
        let nothing = || Otherwise::Nothing { isolated: fault.isolated() };
        let frame = manager.take_frame_or(group, || match region.map.state(local) {
            state @ PageState::Swapped { entry } if fault.frees_slot() => match PageEntry::from_bits(entry) {
                Some(PageEntry::Slot(slot)) => {
                    match manager.swapping.exchange(&manager.memory, group, slot, &|| region.map.state(local) == state)
                    {
                        Some((frame, begun)) => {
                            exchange.set(Some(begun));
                            Otherwise::Frame(frame)
                        }
                        None if manager.swapping.exchanges.is_any() => Otherwise::Soon,
                        None => nothing(),
                    }
                }
                Some(PageEntry::SameFilled(_)) | None => nothing(),
            },
            PageState::Swapped { .. } => nothing(),
            PageState::Vacant { .. } if fault.writes() => nothing(),
            // A page that was discarded is zeros, and takes no memory until it is written.
            PageState::Vacant { .. } | PageState::Loading | PageState::Resident { .. } => {
                is_outrun.set(true);
                Otherwise::Over
            }
        });
        let frame = frame.map_err(|error| NoMemory { error, is_outrun: is_outrun.get() })?;
        Ok(Memory {
            frame,
            is_listed: manager.memory.swaps(),
            is_warm: manager.spaces.warm.take(),
            exchange: exchange.take(),
        })
    }

    /// Completes a load that this thread has begun. `is_new`: the frame holds the new page already.
    pub(super) fn bring_in(
        &self,
        (region, page): (&Region, u64),
        loading: Loading<'_>,
        mut memory: Memory<'_>,
        along: Option<Along<'_>>,
        fault: Fault<'_>,
        is_new: bool,
    ) -> Result<bool, Error> {
        let past = match loading.swapped().and_then(PageEntry::from_bits) {
            Some(entry) => match self.fetch(entry, &loading, &memory, along, fault) {
                Ok(past) => past,
                Err(error) => {
                    let failure = match error {
                        SwapInError::ReadFailed { error, .. } => load_error::encode(error),
                        SwapInError::SwapCorrupt { .. } => CORRUPT,
                    };
                    loading.fail(failure);
                    self.give_up(memory, None);
                    return self.outcome(page, Err(failure), || Some(entry));
                }
            },
            None if !fault.writes() => {
                drop(loading);
                self.note_if_idle(region, page % REGION_PAGES);
                self.give_up(memory, along);
                return Ok(false); // Discarded in between.
            }
            None => {
                if !is_new {
                    memory.frame.fill(|bytes| fault.begin(bytes, memory.is_warm));
                }
                Past::default()
            }
        };
        let exchange = memory.exchange.take();
        self.publish(loading, memory.frame, memory.is_listed, &past, Ahead::No);
        self.manager().swapping.free_slots(&self.manager().memory, self.group.state(), past.unused);
        drop(exchange);
        Ok(true)
    }

    /// Fills a frame with a page that was swapped out, and applies the fault to it.
    fn fetch(
        &self,
        entry: PageEntry,
        loading: &Loading<'_>,
        memory: &Memory<'_>,
        along: Option<Along<'_>>,
        fault: Fault<'_>,
    ) -> Result<Past, SwapInError> {
        let (manager, group, frame) = (&**self.manager(), self.group.state(), &memory.frame);
        let mut past = Past::default();
        match entry {
            PageEntry::SameFilled(fill) => frame.fill(|bytes| fill.fill(bytes)),
            PageEntry::Slot(slot) => {
                let owner = Owner::new(loading.word_number()).expect("there are no more page words than owners");
                let came = along.is_some_and(|along| self.read_along(along, (slot, owner), frame));
                let note = if came || fault.overwrites(1 << self.page_shift) {
                    manager.swapping.areas.note(slot).ok()
                } else {
                    let note = frame.fill(|bytes| manager.swapping.areas.swap_in(slot, owner, bytes))?;
                    group.swapped.read.add(1);
                    Some(note)
                };
                if let Some(note) = note {
                    past.history = group.history_of_note(note);
                }
                let keeps = fault.leaves_unchanged()
                    && memory.exchange.is_none()
                    && manager.swapping.areas.keep(slot, frame.id().number());
                *(if keeps { &mut past.kept } else { &mut past.unused }) = Some(slot);
            }
        }
        frame.fill(|bytes| fault.write_to(bytes));
        group.swapped.ins.add(1);
        Ok(past)
    }

    pub(super) fn publish<'a>(
        &'a self,
        loading: Loading<'a>,
        frame: ChargedFrame<'a>,
        is_listed: bool,
        past: &Past,
        ahead: Ahead,
    ) {
        let (manager, group) = (&**self.manager(), self.group.state());
        let arrival = Arrival { ahead, slot: past.kept, ..Arrival::of_space(group.id, past.history) };
        let frame = if is_listed { frame.into_frame() } else { frame.into_anonymous() };
        manager.memory.admit_anonymous(group, loading, frame, arrival, is_listed);
        if past.history.is_refault {
            group.counters.refaults.add(1);
        }
    }

    /// Gives back memory that turned out not to be needed. If another page was swapped out in
    /// exchange for it, tries to bring that page back; if that fails, the page stays in its slot.
    pub(super) fn give_up(&self, mut memory: Memory<'_>, along: Option<Along<'_>>) {
        let exchange = memory.exchange.take();
        drop((memory, along));
        exchange.into_iter().for_each(|exchange| self.manager().spaces.undo_exchange(exchange));
    }

    /// Turns the outcome of a load into the result of a fault. The load was made by another thread,
    /// and this thread waited for it; or this thread made the load, and it failed.
    ///
    /// Returns false if the load succeeded or was abandoned; the caller then looks at the page
    /// again. Returns an error if the load failed. Never returns true. `entry` is called only for
    /// the error, and returns where in swap the page is.
    pub(super) fn outcome(
        &self,
        page: u64,
        outcome: Result<(), LoadFailure>,
        entry: impl FnOnce() -> Option<PageEntry>,
    ) -> Result<bool, Error> {
        let address = page << self.page_shift;
        let area = || match entry()? {
            PageEntry::Slot(slot) => self.manager().swapping.areas.area_name(slot.area()),
            PageEntry::SameFilled(_) => None,
        };
        match outcome {
            // If the load was abandoned (not permitted, or not needed), this thread hasn't failed:
            // it looks again.
            Ok(()) | Err(Loading::ABANDONED) => Ok(false),
            Err(CORRUPT) => Err(Error::SwapCorrupt { address, area: area() }),
            Err(failure) => Err(Error::SwapReadFailed { address, area: area(), error: load_error::decode(failure) }),
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::super::for_tests::{PAGE, Tenant};
    use super::*;
    use crate::manager::page_owners::SwapIn;
    use crate::{Pagefold, SwapArea};
    use io::IoError;
    use sync::asleep::Sleeper;
    use test_disks::{Call, Fault as DiskFault, FaultyBackend, Schedule, SimulatedDisk};

    /// The pages whose words are in one part of a page map.
    const PART: u64 = 512;

    /// Returns a tenant whose pages are in swap, except for a few in memory.
    fn swapping() -> Tenant {
        let mm = Pagefold::builder().backend(SimulatedDisk::default()).swap_area(SwapArea::memory(801 * PAGE));
        let it = Tenant::new(mm, 64, 300);
        (0..300).for_each(|page| it.write(page).unwrap());
        it
    }

    /// Regression: a thread that read a page waited for memory for the page. Meanwhile another
    /// thread discarded the page. The page was zeros from then on, and needed no memory, but the
    /// read failed with `LimitReached`. The removal of a swap area failed in the same way.
    #[test]
    fn a_fault_that_waits_for_memory_succeeds_if_its_page_is_discarded_meanwhile() {
        let it = swapping();
        let _taken = it.take_all();
        let mut page = 0;
        // Each attempt is repeated if this thread got no CPU for seconds. `fault` returns whether
        // the page is all zeros.
        let mut discarded_while = |fault: &(dyn Fn(u64) -> Result<bool, Error> + Sync)| {
            loop {
                page = it.swapped(page + 1);
                let discard = || it.space.discard(Tenant::at(page)..Tenant::at(page + 1)).unwrap();
                if let (result, true) = it.while_it_waits(|| fault(page), discard) {
                    assert!(result.unwrap());
                    break;
                }
            }
        };
        discarded_while(&|page| {
            let mut bytes = vec![1; PAGE as usize];
            it.space.read_at(&mut bytes, Tenant::at(page))?;
            Ok(bytes.iter().all(|&byte| byte == 0))
        });
        discarded_while(&|page| Ok(it.space.page_at(Tenant::at(page))?.iter().all(|&byte| byte == 0)));
        discarded_while(&|page| {
            let word = it.region().map.first_word() + (Tenant::at(page) / PAGE) % REGION_PAGES;
            match it.manager().spaces.swap_in(word) {
                SwapIn::Back | SwapIn::Gone => Ok(true),
                SwapIn::Failed(error) => Err(error),
            }
        });
    }

    /// Regression: a thread that wrote a whole page waited for memory. Meanwhile another thread
    /// read the page into the group's last frame. The read failed, so the frame became free again.
    /// Even so, the write failed with `LimitReached`.
    #[test]
    fn a_write_of_a_whole_page_that_waits_for_memory_goes_on_although_anothers_read_fails() {
        let it = swapping();
        let mut taken = it.take_all();
        let page = it.swapped(0);
        let bytes = Tenant::contents(7);
        let in_space = Tenant::at(page) / PAGE;
        let fault = Fault::Write { offset: 0, bytes: &bytes };
        // The reader, as far as it matters: it has got its frame.
        let BeginLoad::Begun(loading) = it.region().map.begin_load(in_space % REGION_PAGES) else { panic!() };
        let writer = Sleeper::default();
        let written = it.while_it_waits(
            || writer.run(|| it.state().fault(it.region(), in_space, fault)),
            || {
                writer.await_sleep(); // It has found the read, and waits for its end.
                loading.fail(LoadFailure(5));
                taken.pop();
            },
        );
        assert!(matches!(written, (_, false) | (Ok(_), _)), "{written:?}");
        it.space.write_at(&bytes, Tenant::at(page)).unwrap();
        let mut found = vec![0; PAGE as usize];
        it.space.read_at(&mut found, Tenant::at(page)).unwrap();
        assert!(found == bytes);
    }

    /// Regression: a compressed area had no room for a page, and the disk of another area reported
    /// an error. An exchange then tried one page of the group after the other, and wrote each of
    /// them to the failing disk. The disk's error wasn't recorded, either, so the error that the
    /// call returned didn't name the disk.
    #[test]
    fn an_exchange_writes_to_a_failing_area_once() {
        let disk = SimulatedDisk::default();
        disk.add_bytes("/swap", vec![0; 801 * PAGE as usize]);
        let backend = FaultyBackend::new(disk, Schedule::default());
        let area = SwapArea::path("/swap").overwrite(true);
        let mm = Pagefold::builder().backend(backend.clone()).swap_area(area).compressed_swap("1MiB");
        let it = Tenant::new(mm, 64, 300);
        it.manager().memory.doorbell.stop(); // No background thread writes pages.
        (0..300).for_each(|page| it.write(page).unwrap()); // The compressed area has no room for any.
        it.manager().memory.drain_entries();
        assert!(it.group_state().lists.len() > 8, "an exchange can try several pages");
        let swapped = Tenant::at(it.swapped(0)) / PAGE;
        let Some(PageEntry::Slot(slot)) = it.region().swapped_to(swapped) else { panic!() };
        backend.set_schedule(Schedule::From(1, DiskFault::Errno(IoError::IO.errno().unwrap())));
        let before = backend.calls_of(Call::Write);
        assert!(it.manager().swapping.exchange(&it.manager().memory, it.group_state(), slot, &|| true).is_none());
        assert_eq!(backend.calls_of(Call::Write) - before, 1);
        assert_eq!(it.group_state().swapped.failure(), Some((0, IoError::IO)));
        // Later, when the disk is well again, the exchange succeeds.
        backend.set_schedule(Schedule::Never);
        assert!(it.manager().swapping.exchange(&it.manager().memory, it.group_state(), slot, &|| true).is_some());
        assert_eq!(it.group_state().swapped.failure(), None);
    }

    /// Regression: a page was discarded while a thread was about to read it, and its part of the
    /// page map was given back. The thread charged and made the part again, only to find that there
    /// is no page.
    #[test]
    fn a_fault_that_only_reads_makes_no_part_of_a_page_map() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 2 * PART);
        it.write(0).unwrap();
        let charged = || (it.group_state().parts.charged(), it.group.charged());
        let before = charged();
        for fault in [Fault::Read, Fault::BringBack, Fault::Move { isolated: 0 }] {
            assert!(!it.state().fault(it.region(), Tenant::at(PART) / PAGE, fault).unwrap());
            assert_eq!(charged(), before);
        }
    }

    /// Regression: two threads paid for one part of a page map, and only one payment was used up.
    /// The other thread then waited for memory for its page, and failed, although its own payment
    /// held that memory.
    #[test]
    fn a_payment_for_a_part_that_another_thread_has_made_is_memory_for_the_page() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 2 * PART);
        it.write(0).unwrap();
        let mut taken = it.take_all();
        taken.pop(); // There is room for the part or for the page.
        let (bytes, page) = (Tenant::contents(PART), Tenant::at(PART) / PAGE);
        let mut other = None;
        let written = it.while_it_waits(
            || it.state().fault(it.region(), page, Fault::Write { offset: 0, bytes: &bytes }),
            // Another thread makes the part, and uses it. (It pays nothing: there is no more room.)
            || other = Some(it.region().map.begin_load(page % REGION_PAGES + 1)),
        );
        assert!(matches!(other, Some(BeginLoad::Begun(_))));
        assert!(matches!(written, (_, false) | (Ok(true), _)), "{written:?}");
    }

    /// Regression: a thread waited for memory for a part that another thread had made meanwhile. It
    /// evicted further pages, or waited for seconds, for a charge that it then dropped.
    #[test]
    fn a_thread_waits_for_memory_for_a_part_only_as_long_as_the_part_is_missing() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 2 * PART);
        it.write(0).unwrap();
        let _taken = it.take_all();
        let local = Tenant::at(PART) / PAGE % REGION_PAGES;
        // Another thread makes the part. (It pays nothing: there is no more room.)
        let BeginLoad::Begun(_other) = it.region().map.begin_load(local + 1) else { panic!() };
        let (before, mut outrun) = (it.direct_reclaims(), 0);
        let part = it.state().charge_part(it.region(), local, 0, &mut outrun);
        assert!(part.unwrap().is_none());
        assert_eq!((it.direct_reclaims() - before, outrun), (1, 1));
    }

    /// Regression: after a thread had looked at all maps for idle parts, another part became idle,
    /// and no thread noted that. The first thread's call failed, although this part could have been
    /// given back to make room.
    #[test]
    fn all_maps_are_looked_at_again_before_a_call_fails() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 2 * PART);
        it.manager().memory.doorbell.stop();
        it.write(0).unwrap();
        let (manager, group, map) = (it.manager(), it.group_state(), &it.region().map);
        let part = Cell::new(Some(manager.charge_part(group, 0, &|| true).unwrap()));
        let taken = it.take_all();
        let attempts = Cell::new(0);
        let frame = manager.take_frame_or(group, || {
            attempts.set(attempts.get() + 1);
            if attempts.get() == 2 {
                let begun = manager.memory.begin_load_and_pay(
                    group,
                    map,
                    Tenant::at(PART) / PAGE % REGION_PAGES,
                    &mut part.take(),
                );
                assert!(matches!(begun, Ok(BeginLoad::Begun(_))));
            }
            Otherwise::Nothing { isolated: taken.len() as u64 }
        });
        assert!(frame.is_ok() && attempts.get() > 2, "{:?} after {} attempts", frame.err(), attempts.get());
    }

    /// Regression: a load that ended without a page left an idle part, which no thread noted. So
    /// pages were evicted before that part was given back.
    #[test]
    fn a_part_that_is_idle_because_there_is_no_page_after_all_is_noted() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 2 * PART);
        [0, PART].into_iter().for_each(|page| it.write(page).unwrap());
        let (manager, group) = (it.manager(), it.group_state());
        // The page was unmapped in between.
        let write = Fault::Write { offset: 0, bytes: &[] };
        it.state().fault(it.region(), Tenant::at(2 * PART) / PAGE, write).unwrap_err();
        assert_eq!((group.parts.charged(), manager.reclaim_idle_parts(group, 9)), (3, 1));
        // The page was discarded in between, by a thread that saw the load.
        it.space.discard(Tenant::at(PART)..Tenant::at(2 * PART)).unwrap();
        group.parts.take_due(|word| manager.spaces.mark_idle(word, false)).unwrap();
        assert!(!it.state().fault(it.region(), Tenant::at(PART) / PAGE, Fault::Read).unwrap());
        assert_eq!((group.parts.charged(), manager.reclaim_idle_parts(group, 9)), (2, 1));
    }

    /// Regression: a page that was touched while the first swap area was added stayed off the
    /// lists, so it could never be swapped out.
    #[test]
    fn a_page_that_is_touched_while_the_first_swap_area_is_added_is_listed() {
        let it = Tenant::new(Pagefold::builder().backend(SimulatedDisk::default()), 64, 10);
        it.write(0).unwrap();
        let (bytes, page) = (Tenant::contents(1), Tenant::at(1) / PAGE);
        let fault = Fault::Write { offset: 0, bytes: &bytes };
        let memory = it.state().take_memory(it.manager(), it.region(), page % REGION_PAGES, fault).ok().unwrap();
        it.mm.add_swap(SwapArea::memory(801 * PAGE)).unwrap();
        let BeginLoad::Begun(loading) = it.region().map.begin_load(page % REGION_PAGES) else { panic!() };
        assert!(it.state().bring_in((it.region(), page), loading, memory, None, fault, false).unwrap());
        it.check_listed(0..2);
    }
}
