//! The work of swapping that needs more than one part of [`Manager`]. It adds and removes swap
//! areas, gets memory for compressed areas, swaps pages out, and brings pages back into memory.

use std::time::Duration;

use swap::{Need, NotBack, Owner, Owners, RemoveError, SlotId, Source};
use sync::time::Instant;

use crate::error::Error;
use crate::group::state::GroupState;
use crate::lru::batch::Batch;
use crate::lru::clock::Now;
use crate::manager::Manager;
use crate::manager::page_owners::SwapIn;
use crate::memory::charges::MetadataCharge;
use crate::memory::lowering::Cost;
use crate::swapping::area::SwapArea;
use crate::swapping::swap_out::SwappedOut;

/// The most extents that are drained in one attempt.
const DRAINS_MAX: u32 = 4;
/// After a thread has failed to get memory for a stock, no thread tries again for this long. The
/// reason: a drain that fails evicts many pages for nothing.
const PAUSE: Duration = Duration::from_millis(20);

impl Manager {
    pub(crate) fn add_swap(&self, area: SwapArea) -> Result<u32, Error> {
        self.add_swap_and_stock(area, || self.stock_new_area())
    }

    /// Does the work of [`add_swap`](Self::add_swap). `stock` fills the stock of a compressed area.
    fn add_swap_and_stock(&self, area: SwapArea, stock: impl FnOnce() -> Result<(), Error>) -> Result<u32, Error> {
        self.memory.refuse_child()?;
        let options = area.options;
        let source = area.source(&self.memory.frames)?;
        let is_compressed = matches!(source, Source::Compressed { .. });
        let mut charge = None;
        // If the charge is refused, the call fails with the area's error (`AddError::NoRoom`),
        // which contains the size of the tables.
        let mut admit = |bytes| {
            charge = self.hold_metadata(bytes).ok();
            charge.is_some()
        };
        let added = self.swapping.areas.add_admitted(&source, &*self.file_io.backend, options, &mut admit)?;
        charge.into_iter().for_each(MetadataCharge::hand_over); // `remove_area` uncharges it.
        self.swapping.note_areas(&self.memory);
        self.memory.list_anonymous();
        let stocked = if is_compressed { stock() } else { Ok(()) };
        let Err(error) = stocked else { return Ok(added.number()) };
        // Without a stock, the area is removed again, unless another thread has removed it. If it
        // can't be removed, it contains pages already. In that case the area stays, and its stock
        // is filled when there is room.
        match self.was_removed(self.swapping.areas.remove_added(&added, self)) {
            Ok(()) | Err(RemoveError::Unknown { .. }) => Err(error),
            Err(_) => Ok(added.number()),
        }
    }

    pub(crate) fn remove_swap(&self, number: u32) -> Result<(), Error> {
        self.memory.refuse_child()?;
        self.was_removed(self.swapping.areas.remove(number, self)).map_err(Error::from)
    }

    /// Completes the removal of an area, if it succeeded.
    fn was_removed(&self, removed: Result<u64, RemoveError>) -> Result<(), RemoveError> {
        self.swapping.note_areas(&self.memory);
        removed.map(|bytes| self.memory.frames.budget().uncharge(bytes))
    }

    /// Fills the stocks of compressed areas. The caller is about to reclaim, and must have no page
    /// isolated. Returns true if a stock isn't full, but this call didn't try to drain an extent
    /// for it. The cause is that another thread is filling a stock or making room, or that the
    /// pause after a failure isn't over.
    pub(crate) fn stock_up_swap(&self) -> bool {
        if !self.memory.swaps() || self.swapping.areas.stock_up() {
            return false;
        }
        // One thread at a time is enough, and it gives up if a thread is making room already.
        let Some(mut failed) = self.swapping.stocking_failed.try_lock() else { return true };
        if failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
            return true;
        }
        let Some(_turn) = self.memory.room_making.try_lock() else { return true };
        for _ in 0..DRAINS_MAX {
            if !self.drain_extent(Cost::Any) {
                break;
            }
            if self.swapping.areas.stock_up() {
                *failed = None;
                return false;
            }
        }
        *failed = Some(Instant::now());
        false
    }

    /// Fills the stock of a new area, and evicts as many pages as that takes.
    pub(crate) fn stock_new_area(&self) -> Result<(), Error> {
        self.make_room_until(&mut || self.swapping.areas.stock_up())
    }

    /// Swaps out isolated anonymous pages of a group ([`Swapping::swap_out`]). First makes room in
    /// compressed areas that are nearly full.
    pub(crate) fn swap_out<'a, const N: usize>(
        &'a self,
        group: &GroupState,
        pages: Batch<N>,
        need: Need,
        now: Now,
    ) -> SwappedOut<'a, N> {
        self.swapping.areas.spill(self);
        self.swapping.swap_out(&self.memory, group, pages, need, now)
    }
}

impl Owners for Manager {
    fn bring_back(&self, owner: Owner, _: SlotId) -> Result<(), NotBack> {
        match self.spaces.swap_in(owner.number()) {
            // A space that is being removed frees its slots itself.
            SwapIn::Back | SwapIn::Gone => Ok(()),
            SwapIn::Failed(Error::LimitReached { .. }) => Err(NotBack::NoMemory),
            SwapIn::Failed(Error::SwapReadFailed { error, .. }) => Err(NotBack::Failed(Some(error))),
            SwapIn::Failed(_) => Err(NotBack::Failed(None)),
        }
    }

    fn move_slot(&self, owner: Owner, slot: SlotId, moved: &mut dyn FnMut() -> Option<SlotId>) {
        self.spaces.move_slot(owner.number(), slot, moved);
    }

    fn give_up_slot(&self, frame: u32, slot: SlotId) {
        self.swapping.take_slot(&self.memory, slot, frame, false);
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::Pagefold;
    use crate::size::Size;
    use test_disks::SimulatedDisk;

    /// Regression: while the stock of a new compressed area was being filled, another thread
    /// removed the area. A third thread then added an area, which got the number of the removed
    /// area. When the stock couldn't be filled, the third thread's area was removed.
    #[test]
    fn an_area_that_cannot_be_stocked_is_removed_and_no_other_that_got_its_number() {
        let mm = Pagefold::builder().memory("8MiB").backend(SimulatedDisk::default()).build().unwrap();
        let group = mm.group("tenant").build().unwrap();
        let manager = group.manager();
        let refusal = || Err(Error::BudgetBusy { size: Size(0), used: Size(0) });
        let before = mm.stats().metadata_bytes;
        let removed = manager.add_swap_and_stock(SwapArea::compressed("1MiB"), refusal);
        assert!(matches!(removed, Err(Error::BudgetBusy { .. })), "{removed:?}");
        assert_eq!((mm.stats().metadata_bytes, mm.stats().swap.len()), (before, 0));

        let refused = manager.add_swap_and_stock(SwapArea::compressed("1MiB"), || {
            mm.remove_swap(0)?;
            assert_eq!(mm.add_swap(SwapArea::memory("1MiB"))?, 0);
            refusal()
        });
        assert!(matches!(refused, Err(Error::BudgetBusy { .. })), "{refused:?}");
        let names: Vec<_> = mm.stats().swap.into_iter().map(|area| area.name).collect();
        assert_eq!(names, ["memory"]);
        mm.remove_swap(0).unwrap();
        assert_eq!(mm.stats().metadata_bytes, before);
    }
}
