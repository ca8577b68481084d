//! The owner of each page word: which region of which space has it, found in O(1).
//!
//! The number of a page word, shifted by [`SEGMENT_SHIFT`], is the number of its segment, and a
//! region's record has exactly one segment. So the table has a place for each segment. Removal of a
//! swap area, the compressed tier and an exchange know a page by its word's number alone, and
//! *visit* its region here.
//!
//! # Invariants
//! - O1. A place is filled when its region's record is made, and emptied by [`SpaceTable::forget`]
//!   before the record goes. A place is a lock: a visitor has it shared for as long as the visit
//!   takes, and `forget` has it alone.
//! - O2. A visitor never waits for a place: it only tries. A visit may lead to another visit in the
//!   same thread (a fault reclaims, and reclaim moves compressed pages on), perhaps to the same
//!   place, for which `forget` waits already:
//!   ```text
//!     visitor: shares place A                     last handle: forget(A) waits for the visitor
//!              the fault reclaims: visits A again       a visitor that waited for `forget` here would wait for ever
//!   ```
//!   A place that `forget` wants is that of a region on its way out, so the page goes anyway.
//! - O3. A visitor borrows the space from the place, and counts no reference. The last handle of a
//!   space empties all places before it drops the space. So the thread that drops the last handle
//!   tears the space down, and never a visitor, which works for another tenant.
//!
//! Lock order: a place is taken with nothing held but a compressed area's clock; under it come a
//! page word in *loading* and all that a fault takes.

use std::any::Any;

use frames::{PAGE_WORDS_SHIFT, TABLE_SHIFT};
use swap::SlotId;
use sync::Arc;
use sync::lock::{OnceBox, OnceCell, RwLock};

use crate::error::Error;
use crate::manager::numbers::Numbers;
use crate::manager::warm::WarmFrames;

/// Page words of a segment, as a power of two.
pub(crate) const SEGMENT_SHIFT: u32 = 2 * TABLE_SHIFT;
/// Segments that there can be.
const SEGMENTS: usize = 1 << (PAGE_WORDS_SHIFT - SEGMENT_SHIFT);
/// Places that are made at a time.
const PART_PLACES: usize = 128;

/// A space, as it is known by its page words: `word` is one of the region whose record is in
/// `slot`.
pub(crate) trait WordOwner: Send + Sync {
    /// Brings the page back, to stay without a swap slot for now.
    fn swap_in(&self, slot: u32, word: u64) -> SwapIn;

    /// Has the page, which is in the swap slot `from`, be in the one that `moved` says.
    fn move_slot(&self, slot: u32, word: u64, from: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>);
}

/// The space that has a segment, and the slot of the record there that has it: of one region after
/// another.
type Place = RwLock<Option<(Arc<dyn WordOwner>, u32)>>;
type Part = [Place; PART_PLACES];

/// See the module's head.
pub(crate) struct SpaceTable {
    parts: Box<[OnceBox<Part>]>,
    /// For mappings of memory that is no file's.
    pub(crate) numbers: Numbers,
    pub(crate) warm: WarmFrames,
    /// See [`shared`](Self::shared).
    shared: OnceCell<Arc<dyn Any + Send + Sync>>,
}

/// What became of a page that was to come back.
pub(crate) enum SwapIn {
    Back,
    /// It was unmapped, or its space is on its way out.
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
    /// What all spaces share besides, of a type that isn't known here: made for the first of them.
    ///
    /// # Panics
    /// If it is asked for as two types.
    pub(crate) fn shared<T: Any + Send + Sync + Default>(&self) -> Arc<T> {
        let shared = Arc::clone(self.shared.get_or_init(|| Arc::<T>::default()));
        shared.downcast().expect("spaces share one type")
    }

    /// Makes the place of a new region, whose first page word is given. It stays as long as the
    /// process has its Pagefold.
    ///
    /// # Errors
    /// Those of `charge`, which charges bytes.
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
        if part.set(Box::new(std::array::from_fn(|_| RwLock::new(None)))).is_err() {
            uncharge(bytes); // Another thread was faster.
        }
        Ok(())
    }

    /// Notes whose record this is, in which slot. Its place is [prepared](Self::prepare).
    pub(crate) fn note(&self, first_word: u64, space: Arc<dyn WordOwner>, slot: u32) {
        if let Some(place) = self.place(first_word) {
            *place.write() = Some((space, slot));
        }
    }

    /// Waits until no thread visits the region, and lets none visit it again (O1).
    pub(crate) fn forget(&self, first_word: u64) {
        let forgotten = self.place(first_word).map(|place| place.write().take());
        drop(forgotten); // Without the lock; and never the last one, as the caller has the space (O3).
    }

    /// Brings the page back whose word has that number, to stay without a slot for now.
    pub(crate) fn swap_in(&self, word: u64) -> SwapIn {
        self.visit(word, |space, slot| space.swap_in(slot, word)).unwrap_or(SwapIn::Gone)
    }

    /// Has the page whose word has that number, and that is in the swap slot `from`, be in the one
    /// that `moved` says. Its word is in *loading* meanwhile; nothing happens if it isn't to be had
    /// at once.
    pub(crate) fn move_slot(&self, word: u64, from: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        self.visit(word, |space, slot| space.move_slot(slot, word, from, moved));
    }

    /// Calls `f` with the space that has the page word, and the slot of the region's record.
    /// `None` if there is none, or it is on its way out (O2).
    fn visit<R>(&self, word: u64, f: impl FnOnce(&dyn WordOwner, u32) -> R) -> Option<R> {
        let place = self.place(word)?.try_read()?;
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
