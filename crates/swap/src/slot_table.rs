//! The state of every slot of an area: one flat array of words that is read without a lock.
//!
//! A slot that isn't free has one owner: first the thread that allocated it, then the holder of the
//! page in the slot. Only the owner changes the slot's word, and needs no lock for that; any thread
//! may read the word. A page that is swapped in may keep its slot until the page changes. While the
//! page is unchanged, it can be swapped out and in again without any of the area's locks:
//! ```text
//!            allocate         set_cached            set_swapped
//!    free ─────────────▶ taken ───────▶ cached ◀═══════════════▶ swapped
//!     ▲  cluster's lock    │               │      set_cached        │
//!     │                    └───────────────┼────────────────────────┘
//!     │  cluster's lock                    ▼ free
//!     └───────────────────────────────── freed: in a CPU's batch
//! ```
//! Linux changes swap tables only under the cluster's lock, because in Linux several processes may
//! share a slot. Here a slot belongs to one page word, and that word already decides which thread
//! reads the page back. So no lock is needed.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::prefetch::prefetch;
use sync::zeroed::zeroed;

use crate::slot_word::{NUMBER_BITS, Note, Owner, SlotId, SlotState, SlotWord};

/// Indexes into an entry.
const WORD: usize = 0;
const NOTE: usize = 1;

/// The number of a slot whose use has ended, or that was never allocated.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} isn't in use")]
pub struct StaleSlot(pub SlotId);

/// Words, notes and checksums of an area's slots. Slot 0, the header, has them too, and stays
/// *free*.
#[derive(Debug)]
pub(crate) struct SlotTable {
    area: u32,
    /// A slot's word and its note, on the same cache line.
    entries: Box<[[AtomicU64; 2]]>,
    seals: Box<[AtomicU32]>,
}

impl SlotTable {
    /// Bytes per slot.
    pub(crate) const SLOT_BYTES: u64 = 20;

    /// Creates a table of free slots; `None` if there is no memory for it, or there are more slots
    /// than slot numbers.
    pub(crate) fn new(area: u32, slots: u64) -> Option<Self> {
        let slots = usize::try_from(slots).ok().filter(|&slots| slots <= 1 << NUMBER_BITS)?;
        Some(Self { area, entries: zeroed(slots)?, seals: zeroed(slots)? })
    }

    pub(crate) fn len(&self) -> usize {
        self.entries.len()
    }

    /// Returns the state and the current [`SlotId`] of a slot. `None` for a number beyond the area.
    pub(crate) fn state(&self, number: u32) -> Option<(SlotState, SlotId)> {
        // Acquire pairs with the Release in `change`: a thread that sees a page swapped sees its
        // note and its checksum.
        let word = SlotWord::from_bits(self.entries.get(number as usize)?[WORD].load(Ordering::Acquire));
        Some((word.state(), SlotId::new(self.area, number, word.generation())))
    }

    pub(crate) fn lookup(&self, slot: SlotId) -> Result<SlotState, StaleSlot> {
        let found = self.state(slot.number()).filter(|(state, id)| *id == slot && is_held(*state));
        found.map(|(state, _)| state).ok_or(StaleSlot(slot))
    }

    /// Changes the state of a slot, which the caller must own.
    pub(crate) fn change(&self, slot: SlotId, to: SlotState) -> Result<(), StaleSlot> {
        let [word, _] = self.entries.get(slot.number() as usize).ok_or(StaleSlot(slot))?;
        // Relaxed: the caller owns the slot, so no other thread has changed it since.
        let old = SlotWord::from_bits(word.load(Ordering::Relaxed));
        if slot.area() != self.area || old.generation() != slot.generation() || !is_held(old.state()) {
            return Err(StaleSlot(slot));
        }
        let new = SlotWord::new(to, slot.generation());
        // Release pairs with the Acquire in `state`. The comparison only detects bugs.
        let changed = word.compare_exchange(old.bits(), new.bits(), Ordering::Release, Ordering::Relaxed);
        changed.map(|_| ()).map_err(|_| StaleSlot(slot))
    }

    pub(crate) fn set_swapped(&self, slot: SlotId, owner: Owner, note: Note) -> Result<(), StaleSlot> {
        self.lookup(slot)?;
        // Transition: slot, cached → swapped.
        // Relaxed: published by the word.
        self.entries[slot.number() as usize][NOTE].store(note.bits(), Ordering::Relaxed);
        self.change(slot, SlotState::Swapped { owner })
    }

    pub(crate) fn note(&self, slot: SlotId) -> Result<Note, StaleSlot> {
        self.lookup(slot)?;
        // Relaxed: written before the word that was just read.
        Ok(Note::from_bits(self.entries[slot.number() as usize][NOTE].load(Ordering::Relaxed)))
    }

    /// Prefetches the metadata of a slot.
    pub(crate) fn prefetch(&self, slot: SlotId) {
        let number = slot.number() as usize;
        self.entries.get(number).into_iter().for_each(prefetch);
        self.seals.get(number).into_iter().for_each(prefetch);
    }

    /// Returns the checksum of the page that was written to a slot in use.
    pub(crate) fn seal(&self, slot: SlotId) -> u32 {
        // Relaxed: only the owner stores it, and the slot's word publishes it afterwards.
        self.seals[slot.number() as usize].load(Ordering::Relaxed)
    }

    /// Stores the checksum for a slot, which the caller must own.
    pub(crate) fn set_seal(&self, slot: SlotId, seal: u32) {
        // Relaxed: see `seal`.
        self.seals[slot.number() as usize].store(seal, Ordering::Relaxed);
    }

    /// Changes a slot from free to taken. The caller holds the cluster's lock, or has taken the
    /// slot from the reserve.
    pub(crate) fn take(&self, number: usize) -> SlotId {
        let word = &self.entries[number][WORD];
        // Relaxed: the slot became free under the same lock, or in the same thread.
        let free = SlotWord::from_bits(word.load(Ordering::Relaxed));
        debug_assert_eq!(free.state(), SlotState::Free, "slot {number}");
        // Transition: slot, free → taken.
        word.store(SlotWord::new(SlotState::Taken, free.generation()).bits(), Ordering::Relaxed);
        SlotId::new(self.area, number as u32, free.generation())
    }

    /// Changes a slot from freed to free, for its next use. The caller holds the cluster's lock, or
    /// has taken the slot from the reserve.
    pub(crate) fn put(&self, number: usize) {
        let word = &self.entries[number][WORD];
        // Relaxed: the lock of the slot's batch, or of the reserve, ordered the earlier accesses.
        let freed = SlotWord::from_bits(word.load(Ordering::Relaxed));
        debug_assert_eq!(freed.state(), SlotState::Freed, "slot {number}");
        // Transition: slot, freed → free.
        word.store(freed.next_use().bits(), Ordering::Relaxed);
    }

    /// Iterates over the slots in use, each with its state when the iterator reaches it.
    pub(crate) fn held(&self) -> impl Iterator<Item = (SlotId, SlotState)> {
        let all = (0..self.entries.len() as u32).filter_map(|number| self.state(number));
        all.filter(|(state, _)| is_held(*state)).map(|(state, slot)| (slot, state))
    }
}

fn is_held(state: SlotState) -> bool {
    !matches!(state, SlotState::Free | SlotState::Freed)
}
