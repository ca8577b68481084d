//! The table of page owners: finds the region and the space of a page word in O(1).
//!
//! Three callers know a page only by the number of its page word: the removal of a swap area, the
//! writeback of pages from a compressed area to other areas, and an exchange. They *visit* the
//! page's region through this table.
//!
//! The number of a page word, shifted right by [`SEGMENT_SHIFT`], is the number of the word's
//! *segment*. Each region's record has exactly one segment. The table has one *place* for each
//! segment, and the place names the space and the record that own the segment.
//!
//! # Invariants
//! - O1. A region's place is filled when the region's record is made, and emptied by
//!   [`SpaceTable::forget`] before the record is freed. A place is a readers-writer lock: a visitor
//!   holds the lock in shared mode for the whole visit, and `forget` takes it in exclusive mode.
//! - O2. A visitor only tries to lock a place, and never waits for it. The reason is that one visit
//!   may lead to another in the same thread: a fault reclaims, and reclaim moves compressed pages
//!   to other swap areas. The second visit may be to the very place that the thread has locked
//!   already. Suppose that `forget` has begun to wait for that place in between. The lock grants no
//!   further share before `forget` has had the lock, and `forget` waits for the first visit to end.
//!   So if visitors waited, the two threads would deadlock:
//!   ```text
//!     visitor: shares place A                     last handle: forget(A) waits for the visitor
//!              the fault reclaims: visits A again       a visitor that waited for `forget` here would wait for ever
//!   ```
//!   If `forget` waits for the place, its region is being removed and the page with it, so the
//!   visitor may skip the page.
//! - O3. A visitor borrows the space from the place, and takes no reference to the space. So a
//!   visitor, which works for another tenant, never drops the last reference and never has to tear
//!   the space down. That is the work of the thread that drops the last handle or owned guard of
//!   the space, or of a worker in its place. This thread first empties all of the space's places,
//!   and only then drops the space.
//!
//! Lock order: a thread that locks a place may hold only the lock of a compressed area's clock and,
//! in a visit within a visit, other places (O2). A thread that holds a place may put a page word in
//! *loading*, and may take all locks that a fault takes.

use std::any::Any;

use frames::{PAGE_WORDS_SHIFT, PageMap, TABLE_SHIFT};
use swap::SlotId;
use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU32, Ordering, fence};
use sync::lock::{OnceBox, OnceCell, RwLock};

use crate::error::Error;
use crate::group::state::GroupState;
use crate::manager::numbers::Numbers;
use crate::manager::warm::WarmFrames;
use crate::swapping::exchange::Exchange;

/// Page words of a segment, as a power of two.
pub(crate) const SEGMENT_SHIFT: u32 = 2 * TABLE_SHIFT;
/// The highest number of segments.
const SEGMENTS: usize = 1 << (PAGE_WORDS_SHIFT - SEGMENT_SHIFT);
/// Places that are allocated at a time.
const PART_PLACES: usize = 128;

/// A space, as seen from a page word. In the calls below, `word` belongs to the region whose record
/// is in `slot`.
pub(crate) trait WordOwner: Send + Sync {
    /// Brings the page back into memory and detaches it from its swap slot.
    fn swap_in(&self, slot: u32, word: u64) -> SwapIn;

    /// Moves the page from the swap slot `from` to the slot that `moved` returns.
    fn move_slot(&self, slot: u32, word: u64, from: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>);
}

/// What is known about a segment.
struct Place {
    /// The space that owns the segment, and the slot of the region's record in that space. The
    /// record, with its segment, serves one region after another.
    owner: RwLock<Option<(Arc<dyn WordOwner>, u32)>>,
    /// The group of that space. Stays when the place is emptied, because parts of the segment may
    /// still have to be uncharged (`manager::parts`).
    group: AtomicU32,
    /// Whether parts of the segment may be idle. Set while the page map is in its group's list of
    /// maps that may have idle parts. While the group has the map, threads change this only under
    /// that list's lock (P3 of `manager::parts`).
    has_idle: AtomicBool,
}
type Part = [Place; PART_PLACES];

/// See the module's head.
pub(crate) struct SpaceTable {
    parts: Box<[OnceBox<Part>]>,
    /// The numbers for mappings of anonymous memory.
    pub(crate) numbers: Numbers,
    pub(crate) warm: WarmFrames,
    /// See [`shared`](Self::shared).
    shared: OnceCell<Arc<dyn Any + Send + Sync>>,
}

/// The result of bringing a page back.
pub(crate) enum SwapIn {
    Back,
    /// The page was unmapped, or its space is being torn down.
    Gone,
    Failed(Error),
}

impl Default for SpaceTable {
    fn default() -> Self {
        let parts = (0..SEGMENTS / PART_PLACES).map(|_| OnceBox::new()).collect();
        Self { parts, numbers: Numbers::default(), warm: WarmFrames::new(), shared: OnceCell::new() }
    }
}

impl SpaceTable {
    /// Returns the state that all spaces of a Pagefold share, apart from this table. Its type, `T`,
    /// is defined by the spaces' code, and this module doesn't know it. The first space creates the
    /// state.
    ///
    /// # Panics
    /// If two callers ask for different types.
    pub(crate) fn shared<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let shared = Arc::clone(self.shared.get_or_init(|| Arc::<T>::default()));
        shared.downcast().expect("spaces share one type")
    }

    /// Allocates the place of a new region, given the region's first page word. The place is kept
    /// until the Pagefold is dropped.
    ///
    /// # Errors
    /// The errors of `charge`, which charges bytes to the budget.
    pub(crate) fn prepare(
        &self,
        first_word: u64,
        charge: impl FnOnce(u64) -> Result<(), Error>,
        uncharge: impl FnOnce(u64),
    ) -> Result<(), Error> {
        let segment = segment_of(first_word);
        let Some(part) = self.parts.get(segment / PART_PLACES).filter(|part| part.get().is_none()) else {
            return Ok(());
        };
        let bytes = size_of::<Part>() as u64;
        charge(bytes)?;
        let place = |_| Place { owner: RwLock::new(None), group: AtomicU32::new(0), has_idle: AtomicBool::new(false) };
        if part.set(Box::new(std::array::from_fn(place))).is_err() {
            uncharge(bytes); // Another thread won the race.
        }
        Ok(())
    }

    /// Records the space, its group, and the record's slot for a region. The caller must have
    /// [prepared](Self::prepare) the place.
    pub(crate) fn note(&self, first_word: u64, space: Arc<dyn WordOwner>, slot: u32, group: u32) {
        if let Some(place) = self.place(first_word) {
            // Relaxed: parts of the segment are made later, by threads that have found the record.
            // When a part is made, its state is stored with Release. The thread that gives the part
            // back reads the state with Acquire (`chunks` of `frames`).
            place.group.store(group, Ordering::Relaxed);
            place.has_idle.store(false, Ordering::Relaxed); // As above.
            *place.owner.write() = Some((space, slot));
        }
    }

    /// Returns the number of the group of the space that owns a word, or that owned it last.
    pub(crate) fn group_of(&self, word: u64) -> Option<u32> {
        Some(self.place(word)?.group.load(Ordering::Relaxed))
    }

    /// Returns whether the region of a word is marked as one that may have idle parts.
    pub(crate) fn has_idle(&self, word: u64) -> bool {
        // Relaxed, here and in `mark_idle`: the callers have fences.
        self.place(word).is_some_and(|place| place.has_idle.load(Ordering::Relaxed))
    }

    /// Sets or clears the mark that [`has_idle`](Self::has_idle) returns. The caller holds the lock
    /// of the map lists (`group::parts`) of the region's group.
    pub(crate) fn mark_idle(&self, word: u64, has_idle: bool) {
        if let Some(place) = self.place(word) {
            place.has_idle.store(has_idle, Ordering::Relaxed);
        }
    }

    /// Notes that parts of a space's page map have become idle.
    pub(crate) fn note_idle_parts(&self, group: &GroupState, map: &PageMap) {
        fence(Ordering::SeqCst); // P3
        self.add_due(group, map.first_word());
    }

    /// Lists a page map as one that may have idle parts (P3 of `manager::parts`), if the map
    /// belongs to `group`.
    pub(crate) fn add_due(&self, group: &GroupState, first_word: u64) {
        if !self.has_idle(first_word) {
            group.parts.add_due(first_word, || self.mark_idle(first_word, true));
        }
    }

    /// Waits until no thread visits the region, and prevents further visits (O1).
    pub(crate) fn forget(&self, first_word: u64) {
        let forgotten = self.place(first_word).map(|place| place.owner.write().take());
        drop(forgotten); // Without the lock. Not the last reference (O3).
    }

    /// Brings the page of `word` back into memory and detaches it from its swap slot.
    pub(crate) fn swap_in(&self, word: u64) -> SwapIn {
        self.visit(word, |space, slot| space.swap_in(slot, word)).unwrap_or(SwapIn::Gone)
    }

    /// Ends an exchange whose incoming page didn't come in. If there is memory, brings the outgoing
    /// page back.
    pub(crate) fn undo_exchange(&self, exchange: Exchange<'_>) {
        // The exchange ends first, so that no thread waits for the swap-in, too. If the swap-in
        // fails, the page stays in its slot, which does no harm.
        let gone = exchange.end();
        let _ = self.swap_in(gone.number());
    }

    /// Moves the page of `word` out of the swap slot `from`. Calls `moved`, which writes the page
    /// to another slot and returns that slot, and then stores the slot in the word. If `moved`
    /// returns `None`, the page stays in `from`. The word is in *loading* during all this. Does
    /// nothing if the page isn't in `from`, or if its word can't be put in *loading* at once.
    pub(crate) fn move_slot(&self, word: u64, from: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        self.visit(word, |space, slot| space.move_slot(slot, word, from, moved));
    }

    /// Calls `f` with the space that has the page word, and with the slot of the region's record.
    /// Returns `None` if no space has the word, or if the word's place is being emptied (O2).
    fn visit<R>(&self, word: u64, f: impl FnOnce(&dyn WordOwner, u32) -> R) -> Option<R> {
        let place = self.place(word)?.owner.try_read()?;
        let (space, slot) = place.as_ref()?;
        Some(f(&**space, *slot))
    }

    fn place(&self, word: u64) -> Option<&Place> {
        let segment = segment_of(word);
        self.parts.get(segment / PART_PLACES)?.get().map(|part| &part[segment % PART_PLACES])
    }
}

fn segment_of(word: u64) -> usize {
    (word >> SEGMENT_SHIFT) as usize
}
