//! Swapping in: what a fault does with a page whose word says that it is elsewhere.
//!
//! Changing the word to *loading* makes this thread the only one that reads the page. Other threads
//! wait for the word, and get this thread's error if there is one. The frame, charged to the
//! space's group, was taken before (S2 of `space`). Then the page is read, and its seal (checksum)
//! verified (`swap`); a page that is overwritten as a whole isn't read.
//!
//! A page that is only read keeps its slot, as long as slots aren't scarce: if no thread writes to
//! the page, it leaves memory again without a write. Otherwise its slot is freed.
//!
//! | the word was | page | if that fails |
//! |---|---|---|
//! | *vacant* | zeros | |
//! | *swapped*, a slot | as it was written there | *swapped* again: nothing is lost |
//! | *swapped*, a word | that word, again and again | |

use std::cell::Cell;

use frames::{Ahead, BeginLoad, LoadFailure, Loading, PageState};
use swap::{Owner, PageEntry, SlotId, SwapInError};

use super::SpaceState;
use super::fault::{Fault, Memory, NoMemory, Past};
use super::read_along::Along;
use super::region::{REGION_PAGES, Region};
use crate::error::Error;
use crate::lru::admission::Arrival;
use crate::manager::Manager;
use crate::manager::page_owners::{SwapIn, WordOwner};
use crate::manager::take_frame::{ChargedFrame, Otherwise};
use crate::read::load_error;

/// What waiters are told of a page that came back as something else.
const CORRUPT: LoadFailure = LoadFailure(i32::MIN + 1);

impl WordOwner for SpaceState {
    fn swap_in(&self, slot: u32, word: u64) -> SwapIn {
        let Some((region, page)) = self.page_of_word(slot, word) else { return SwapIn::Gone };
        match self.fault(region, page, Fault::BringBack) {
            Ok(_) => SwapIn::Back,
            Err(Error::NotMapped { .. }) => SwapIn::Gone,
            Err(error) => SwapIn::Failed(error),
        }
    }

    fn move_slot(&self, slot: u32, word: u64, from: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        let Some((region, page)) = self.page_of_word(slot, word) else { return };
        let (page, entry) = (page % REGION_PAGES, PageEntry::Slot(from).bits());
        if region.map.state(page) != (PageState::Swapped { entry }) {
            return;
        }
        let BeginLoad::Begun(loading) = region.map.begin_load(page) else { return };
        // Looked at again: only now it can't go any more.
        let is_there = loading.swapped() == Some(entry);
        match if is_there { moved() } else { None } {
            Some(slot) => loading.end_swapped(PageEntry::Slot(slot).bits()),
            None => loading.fail(Loading::ABANDONED),
        }
    }
}

impl SpaceState {
    /// The region whose record is in that slot, and the page of it that has a word, which may
    /// become another region's at any time: what is done to the page looks at that again
    /// (REGION-1).
    fn page_of_word(&self, slot: u32, word: u64) -> Option<(&Region, u64)> {
        let (region, first) = self.index.region_of_slot(slot)?;
        Some((region, first + word % REGION_PAGES))
    }

    /// Memory for a page. If there is none, one that is in a slot may change places with another
    /// page.
    pub(super) fn take_memory<'a>(
        &'a self,
        manager: &'a Manager,
        region: &Region,
        local: u64,
        fault: Fault<'_>,
    ) -> Result<Memory<'a>, NoMemory> {
        let group = self.group.state();
        let (exchange, is_outrun) = (Cell::new(None), Cell::new(false));
        let frame = manager.take_frame_or(group, || match region.map.state(local) {
            state @ PageState::Swapped { entry } if fault.frees_slot() => match PageEntry::from_bits(entry) {
                Some(PageEntry::Slot(slot)) => {
                    match manager.exchange(group, slot, &|| region.map.state(local) == state) {
                        Some((frame, begun)) => {
                            exchange.set(Some(begun));
                            Otherwise::Frame(frame)
                        }
                        None if manager.exchanges.is_any() => Otherwise::Soon,
                        None => Otherwise::Nothing,
                    }
                }
                Some(PageEntry::SameFilled(_)) | None => Otherwise::Nothing,
            },
            PageState::Swapped { .. } | PageState::Vacant { .. } => Otherwise::Nothing,
            PageState::Loading | PageState::Resident { .. } => {
                is_outrun.set(true);
                Otherwise::Over
            }
        });
        let frame = frame.map_err(|error| NoMemory { error, is_outrun: is_outrun.get() })?;
        Ok(Memory { frame, is_listed: manager.swaps(), is_warm: manager.spaces.warm.take(), exchange: exchange.take() })
    }

    /// Gives memory back that turned out not to be needed. A page that was evicted for it is
    /// brought back, if no other thread was faster.
    pub(super) fn give_up(&self, mut memory: Memory<'_>, along: Option<Along<'_>>) {
        let exchange = memory.exchange.take();
        drop((memory, along));
        exchange.into_iter().for_each(|exchange| self.manager().undo_exchange(exchange));
    }

    /// Does what [`fault`](Self::fault) does, but if another thread is loading the page, waits for
    /// that instead of taking memory.
    pub(super) fn fault_or_wait(&self, region: &Region, page: u64, fault: Fault<'_>) -> Result<bool, Error> {
        match region.map.state(page % REGION_PAGES) {
            PageState::Loading => self.outcome(page, region.map.wait(page % REGION_PAGES), || region.swapped_to(page)),
            _ => self.fault(region, page, fault),
        }
    }

    /// What another thread's load says to one that waited for it: that it is over, or why it
    /// failed. `entry` says where the page is, for the error.
    pub(super) fn outcome(
        &self,
        page: u64,
        outcome: Result<(), LoadFailure>,
        entry: impl FnOnce() -> Option<PageEntry>,
    ) -> Result<bool, Error> {
        let address = page << self.page_shift;
        let area = || match entry()? {
            PageEntry::Slot(slot) => self.manager().swap.area_name(slot),
            PageEntry::SameFilled(_) => None,
        };
        match outcome {
            // What wasn't permitted to that one, or was in vain, isn't our failure.
            Ok(()) | Err(Loading::ABANDONED) => Ok(false),
            Err(CORRUPT) => Err(Error::SwapCorrupt { address, area: area() }),
            Err(failure) => Err(Error::SwapReadFailed { address, area: area(), error: load_error::decode(failure) }),
        }
    }

    /// Ends a load that this thread has begun. The frame `is_new` if it holds the page already.
    pub(super) fn bring_in(
        &self,
        page: u64,
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
        self.manager().free_slots(self.group.state(), past.unused);
        drop(exchange);
        Ok(true)
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
        if is_listed {
            manager.admit(group, loading, frame.into_frame(), arrival, false);
        } else {
            arrival.publish_unlisted(loading, frame.into_anonymous());
        }
        if past.history.is_refault {
            group.counters.refaults.add(1);
        }
    }

    /// Fills a frame with a page that was swapped out, and does the fault to it.
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
                    manager.swap.note(slot).ok()
                } else {
                    let note = frame.fill(|bytes| manager.swap.swap_in(slot, owner, bytes))?;
                    group.swapped.read.add(1);
                    Some(note)
                };
                if let Some(note) = note {
                    past.history = group.welcome_back(note);
                }
                let keeps = fault.leaves_unchanged()
                    && memory.exchange.is_none()
                    && manager.swap.keep(slot, frame.id().number());
                *(if keeps { &mut past.kept } else { &mut past.unused }) = Some(slot);
            }
        }
        frame.fill(|bytes| fault.write_to(bytes));
        group.swapped.ins.add(1);
        Ok(past)
    }
}
