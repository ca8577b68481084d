//! The owner of each page word: which region of which space has it, found in O(1).
//!
//! The number of a page word, shifted by [`REGION_SHIFT`], is the number of its segment, and a
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

use frames::{BeginLoad, Loading, PAGE_WORDS_SHIFT, PageState};
use swap::{PageEntry, SlotId};
use sync::Arc;
use sync::lock::{OnceBox, RwLock};
use sync::nearby::Nearby;

use super::SpaceState;
use super::fault::Fault;
use super::mapped::Mapping;
use super::numbers::Numbers;
use super::region::{REGION_PAGES, REGION_SHIFT, Region};
use super::warm::WarmFrames;
use crate::error::Error;
use crate::manager::Manager;

/// Segments that there can be.
const SEGMENTS: usize = 1 << (PAGE_WORDS_SHIFT - REGION_SHIFT);
/// Places that are made at a time.
const PART_PLACES: usize = 128;

/// The space that has a segment, and the slot of the record there that has it: of one region after
/// another.
type Place = RwLock<Option<(Arc<SpaceState>, u32)>>;
type Part = [Place; PART_PLACES];

/// See the module's head.
pub(crate) struct SpaceTable {
    parts: Box<[OnceBox<Part>]>,
    /// For mappings of memory that is no file's.
    pub(super) numbers: Numbers,
    pub(super) warm: WarmFrames,
    /// CPUs' handles of mapped files; made with the first one.
    pub(super) nearby: Nearby<Mapping>,
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
        Self { parts, numbers: Numbers::default(), warm: WarmFrames::new(), nearby: Nearby::default() }
    }
}

impl SpaceTable {
    /// Makes the place of a new region. It stays as long as the process has its Pagefold.
    ///
    /// # Errors
    /// There is no room in the budget for it.
    pub(super) fn prepare(&self, manager: &Manager, region: &Region) -> Result<(), Error> {
        let segment = segment_of(region.map.first_word());
        let Some(part) = self.parts.get(segment / PART_PLACES).filter(|part| part.get().is_none()) else {
            return Ok(());
        };
        let bytes = size_of::<Part>() as u64;
        manager.charge_metadata(bytes)?;
        if part.set(Box::new(std::array::from_fn(|_| RwLock::new(None)))).is_err() {
            manager.frames.budget().uncharge(bytes); // Another thread was faster.
        }
        Ok(())
    }

    /// Notes whose record this is, in which slot. Its place is [prepared](Self::prepare).
    pub(super) fn note(&self, region: &Region, space: Arc<SpaceState>, slot: u32) {
        if let Some(place) = self.place(region.map.first_word()) {
            *place.write() = Some((space, slot));
        }
    }

    /// Waits until no thread visits the region, and lets none visit it again (O1).
    pub(super) fn forget(&self, region: &Region) {
        let forgotten = self.place(region.map.first_word()).map(|place| place.write().take());
        drop(forgotten); // Without the lock; and never the last one, as the caller has the space (O3).
    }

    /// Brings the page back whose word has that number, to stay without a slot for now.
    pub(crate) fn swap_in(&self, word: u64) -> SwapIn {
        let swapped_in = self.visit(word, |space, region, page| match space.fault(region, page, Fault::BringBack) {
            Ok(_) => SwapIn::Back,
            Err(Error::NotMapped { .. }) => SwapIn::Gone,
            Err(error) => SwapIn::Failed(error),
        });
        swapped_in.unwrap_or(SwapIn::Gone)
    }

    /// Has the page whose word has that number, and that is in `slot`, be in the slot that `moved`
    /// says. Its word is in *loading* meanwhile; nothing happens if it isn't to be had at once.
    pub(crate) fn move_slot(&self, word: u64, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        let entry = PageEntry::Slot(slot).bits();
        self.visit(word, |_, region, page| {
            let page = page % REGION_PAGES;
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
        });
    }

    /// Calls `f` with the space and the region that have the page word, and the page's number in
    /// the space. `None` if there is none, or it is on its way out (O2).
    fn visit<R>(&self, word: u64, f: impl FnOnce(&SpaceState, &Region, u64) -> R) -> Option<R> {
        let place = self.place(word)?.try_read()?;
        let (space, slot) = place.as_ref()?;
        let (region, first) = space.index.region_of_slot(*slot)?;
        // It may become another region's at any time: what is done to the page looks at that again
        // (REGION-1).
        Some(f(space, region, first + word % REGION_PAGES))
    }

    fn place(&self, word: u64) -> Option<&Place> {
        let segment = segment_of(word);
        self.parts.get(segment / PART_PLACES)?.get().map(|part| &part[segment % PART_PLACES])
    }
}

fn segment_of(word: u64) -> usize {
    (word >> REGION_SHIFT) as usize
}
