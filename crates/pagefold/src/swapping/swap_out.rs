//! Swapping out: how anonymous pages leave memory.
//!
//! Reclaim isolates pages, so that no other thread can evict them, and passes them to this module
//! in batches. Each page stays in its frame while its bytes are checked (`frames::swapping`). Then
//! the page either stays in memory, or leaves memory and gets a new *entry* in its page word, which
//! records where the page's bytes are:
//! ```text
//!   keeps a slot, and wasn't written to since ─────────────▶ its entry again: no I/O
//!   one word again and again ──────────────────────────────▶ that word as its entry: no slot, no I/O
//!   else: charged to the group's `swap_max`, one write for
//!   each run of slots ── written ── unchanged since? ── yes ▶ its slot as its entry
//!                          │            └─ no: the slot is freed, the page stays
//!                          └─ failed, or no slot: the page stays; reclaim treats it as dirty
//! ```
//! If a page stays in memory, reclaim puts the page back on its list, and looks at it again later.
//! In between, reclaim evicts other pages, for example pages of files, as long as there are any.
//!
//! Swapping out waits for the device. So the caller must hold no page word (exception: a thread
//! that moves pages), and no lock that comes below a page in the lock order (`ARCHITECTURE.md`). It
//! may hold locks under which memory is obtained or given back, such as `room_making`.

use std::ops::ControlFlow;

use arrayvec::ArrayVec;
use frames::{FrameId, IsolatedFrame, OwnedFrame, Refused, Unwritten};
use swap::{Fill, Need, Note, Owner, PageEntry, PageOut, SlotId, SwapOutError};

use crate::group::state::GroupState;
use crate::lru::batch::Batch;
use crate::lru::clock::Now;
use crate::lru::cost::Cost;
use crate::lru::rank::Rank;
use crate::memory::Memory;
use crate::swapping::Swapping;

/// The outcome of swapping out a number of pages.
#[derive(Default)]
pub(crate) struct SwappedOut<'a, const N: usize> {
    /// The frames of pages that left, unlinked. The caller must free and uncharge them.
    pub(crate) gone: ArrayVec<OwnedFrame<'a>, N>,
    pub(crate) stay: ArrayVec<Refused, N>,
}

impl<'a, const N: usize> SwappedOut<'a, N> {
    fn add(&mut self, result: Result<OwnedFrame<'a>, IsolatedFrame>) {
        match result {
            Ok(frame) => self.gone.push(frame),
            Err(frame) => self.stay.push(Refused { frame, unclean: false }),
        }
    }
}

/// Where the bytes of a page that leaves memory are stored.
#[derive(Clone, Copy, Debug)]
pub(super) enum Stored {
    /// In the slot that the page has kept since it was read back.
    Kept(SlotId),
    /// In a slot to which they were just written.
    Written(SlotId),
    /// In the page word itself: the page is one word again and again.
    SameFilled(Fill),
}

impl Swapping {
    /// Swaps out isolated anonymous pages of a group. `now` is the group's time.
    pub(crate) fn swap_out<'a, const N: usize>(
        &self,
        memory: &'a Memory,
        group: &GroupState,
        pages: Batch<N>,
        need: Need,
        now: Now,
    ) -> SwappedOut<'a, N> {
        let mut result = SwappedOut::default();
        if !memory.swaps() {
            result.stay.extend(pages.into_iter().map(|frame| Refused { frame, unclean: true }));
            return result;
        }
        let kept = pages.iter().filter_map(|frame| SlotId::from_bits(memory.frames.kept_slot(frame.id())?));
        self.areas.prefetch(kept);
        let mut writes = ArrayVec::<(IsolatedFrame, Unwritten<'a>), N>::new();
        let (mut same_filled, mut kept) = (0, None);
        for frame in pages {
            let Some(page) = memory.frames.look_unwritten(&frame) else {
                result.stay.push(Refused { frame, unclean: false });
                continue;
            };
            if let Some(slot) = page.slot().and_then(SlotId::from_bits) {
                kept = Some(slot);
                result.add(self.leave(memory, group, frame, &page, Stored::Kept(slot), now));
            } else if let Some(fill) = Fill::of(page.bytes()) {
                same_filled += 1;
                result.add(self.leave(memory, group, frame, &page, Stored::SameFilled(fill), now));
            } else {
                writes.push((frame, page));
            }
        }
        let written =
            if writes.is_empty() { None } else { self.write_out(memory, group, writes, need, now, &mut result) };
        if let Some(slot) = written.or(kept) {
            let on_device = if written.is_some() { Cost::WRITTEN } else { Cost::READ };
            group.swapped.set_cost(if self.areas.is_on_device(slot) { on_device } else { Cost::COPIED });
        }
        group.swapped.outs.add(result.gone.len() as u64);
        if same_filled > 0 {
            group.swapped.same_filled.add(same_filled);
        }
        result
    }

    /// Writes pages to slots, and removes them from memory. Returns one of the slots.
    fn write_out<'a, const N: usize>(
        &self,
        memory: &'a Memory,
        group: &GroupState,
        mut writes: ArrayVec<(IsolatedFrame, Unwritten<'a>), N>,
        need: Need,
        now: Now,
        result: &mut SwappedOut<'a, N>,
    ) -> Option<SlotId> {
        let wanted = writes.len() as u64;
        let mut charged = self.charge(memory, group, wanted);
        if charged < wanted && self.take_slots_of(memory, &writes) {
            charged += self.charge(memory, group, wanted - charged);
        }
        let charged = charged as usize;
        result.stay.extend(writes.drain(charged..).map(|(frame, _)| Refused { frame, unclean: true }));
        let outs: ArrayVec<PageOut<'_>, N> = writes.iter().map(|(_, page)| Self::page_out(group, page)).collect();
        let mut slots: ArrayVec<Result<SlotId, SwapOutError>, N> =
            outs.iter().map(|_| Err(SwapOutError::Full)).collect();
        // The closure only stores the slot, because it runs under a lock.
        self.areas.swap_out(&outs, need, |at, slot| slots[at] = slot);
        group.swapped.written.add(slots.iter().filter(|slot| slot.is_ok()).count() as u64);
        let written = slots.iter().find_map(|slot| slot.ok());
        let (mut unused, mut full) = (0, false);
        for ((frame, page), slot) in writes.into_iter().zip(slots) {
            group.swapped.was_written(slot.map(|_| ()));
            match slot {
                Ok(slot) => {
                    let left = self.leave(memory, group, frame, &page, Stored::Written(slot), now);
                    if left.is_err() {
                        let _ = self.areas.free(slot); // We own the slot, so it isn't stale.
                        unused += 1;
                    }
                    result.add(left);
                }
                Err(error) => {
                    full |= error == SwapOutError::Full;
                    unused += 1;
                    result.stay.push(Refused { frame, unclean: true });
                }
            }
        }
        self.uncharge(memory, group, unused);
        if full {
            self.take_slots_in_vain(memory);
        }
        written
    }

    /// Returns the bytes of a page and its data for the slot.
    pub(crate) fn page_out<'a>(group: &GroupState, page: &Unwritten<'a>) -> PageOut<'a> {
        PageOut {
            bytes: page.bytes(),
            frame: page.frame().number(),
            owner: owner(page),
            group: Note::new(group.id, 0).group(),
        }
    }

    /// Removes a page from memory, if it hasn't changed since it was checked.
    pub(super) fn leave<'a>(
        &self,
        memory: &'a Memory,
        group: &GroupState,
        frame: IsolatedFrame,
        page: &Unwritten<'_>,
        stored: Stored,
        now: Now,
    ) -> Result<OwnedFrame<'a>, IsolatedFrame> {
        let rank = Rank::of(&memory.frames, frame.id());
        let note = group.note(rank, memory.frames.is_unused_ahead(frame.id()), now);
        let (entry, keeps) = match stored {
            Stored::Kept(slot) => (PageEntry::Slot(slot), true),
            Stored::Written(slot) => (PageEntry::Slot(slot), false),
            Stored::SameFilled(fill) => (PageEntry::SameFilled(fill), false),
        };
        let ready = || {
            if let PageEntry::Slot(slot) = entry {
                let _ = self.areas.set_swapped(slot, owner(page), note); // We own the slot.
            }
        };
        let (frame, in_vain) = memory.frames.swap_out(frame, page, entry.bits(), keeps, ready)?;
        self.free_slots(memory, group, SlotId::from_bits(in_vain).filter(|_| in_vain != 0));
        Ok(frame)
    }

    /// Frees slots of the group's pages, and uncharges them.
    pub(crate) fn free_slots(&self, memory: &Memory, group: &GroupState, slots: impl IntoIterator<Item = SlotId>) {
        let free = |slot: &SlotId| {
            let freed = self.areas.free(*slot);
            debug_assert!(freed.is_ok(), "{freed:?}");
            freed.is_ok()
        };
        let freed = slots.into_iter().filter(free).count();
        self.uncharge(memory, group, freed as u64);
    }

    /// Frees the outdated slots of the given pages. A page that is read back from swap keeps its
    /// slot, but once the page is written to, the bytes in the slot are outdated. To leave memory
    /// again, the page needs a new slot. Called if the group is so close to its limit that the page
    /// can't have the old slot and the new one at once. Returns whether any of the pages had a
    /// slot.
    fn take_slots_of(&self, memory: &Memory, pages: &[(IsolatedFrame, Unwritten<'_>)]) -> bool {
        let frames = pages.iter().map(|(frame, _)| frame.id());
        let kept = frames.filter_map(|frame| Some((SlotId::from_bits(memory.frames.kept_slot(frame)?)?, frame)));
        kept.inspect(|&(slot, frame)| self.take_slot(memory, slot, frame.number(), true)).count() > 0
    }

    /// Frees outdated slots, whose pages have been written to since they were read back. A fault
    /// waits for this call, so the call frees only a few slots.
    fn take_slots_in_vain(&self, memory: &Memory) {
        // One thread at a time is enough, and only now and then.
        let Some(mut search) = self.slot_search.try_lock() else { return };
        if search.last.is_some_and(|last| last.elapsed() < TAKING_INTERVAL) {
            return;
        }
        search.last = Some(sync::time::Instant::now());
        let mut tried = 0;
        self.areas.look_for_cached(&mut search.position, LOOKS_MAX, |slot, frame| {
            self.take_slot(memory, slot, frame, true);
            tried += 1;
            if tried < TAKEN_MAX { ControlFlow::Continue(()) } else { ControlFlow::Break(()) }
        });
    }

    pub(crate) fn take_slot(&self, memory: &Memory, slot: SlotId, frame: u32, only_in_vain: bool) {
        let Some(group) = memory.frames.take_slot(FrameId::new(frame), slot.bits(), only_in_vain) else { return };
        if let Some(group) = memory.groups.get(group) {
            self.free_slots(memory, &group, [slot]);
        }
    }
}

/// The limits of the search for outdated slots (`take_slots_in_vain`): the shortest time between
/// two searches, the most slots that a search looks at (which takes about 100 µs), and the most
/// slots that it frees.
const TAKING_INTERVAL: std::time::Duration = std::time::Duration::from_millis(5);
const LOOKS_MAX: u32 = 1 << 15;
const TAKEN_MAX: u32 = 1024;

const _: () = assert!(frames::PAGE_WORDS_SHIFT <= Owner::BITS, "each page word can be an owner");

/// Returns the page's number as slots record it: the number of its word.
fn owner(page: &Unwritten<'_>) -> Owner {
    Owner::new(page.word_number()).expect("there are no more page words than owners")
}
