//! Memory for swap areas of compressed pages: where it is charged, and how it is found.
//!
//! Such an area takes memory from the budget as it fills, a chunk at a time. It fills when memory
//! is short. Frames have all of the budget then, and an extent of frames has to be drained for it;
//! the extent's pages go to swap in their turn, and may have to be compressed as well. So the area
//! has a *stock*, charged in advance, of as much memory as an extent has. The stock is used when no
//! other memory is to be had. A thread that is about to reclaim fills the stock up again first: it
//! has no page isolated yet, which would stand in the way of a drain. A page that finds no memory
//! in spite of that goes to the next area, or stays.

use std::time::Duration;

use frames::Frames;
use swap::Memory;
use sync::Arc;
use sync::time::Instant;

use crate::error::Error;
use crate::manager::Manager;
use crate::manager::lowering::Cost;

/// The budget, as areas see it.
#[derive(Debug)]
pub(crate) struct BudgetMemory(pub(crate) Arc<Frames>);

impl Memory for BudgetMemory {
    fn try_charge(&self, bytes: u64) -> bool {
        self.0.try_charge_beside_maps(bytes)
    }

    fn uncharge(&self, bytes: u64) {
        self.0.budget().uncharge(bytes);
    }

    fn max(&self) -> u64 {
        self.0.budget().goal()
    }
}

/// Extents that are drained at a time.
const DRAINS_MAX: u32 = 4;
/// How long no thread tries again after memory couldn't be had: a drain in vain evicts many pages.
const PAUSE: Duration = Duration::from_millis(20);

impl Manager {
    /// Before pages are reclaimed: sees to it that compressed ones have where to go. The caller has
    /// no page isolated.
    pub(crate) fn stock_up_swap(&self) {
        if !self.swaps() || self.swap.stock_up() {
            return;
        }
        // One thread at a time is enough, and none that is making room already.
        let Some(mut failed) = self.stocking_failed.try_lock() else { return };
        if failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
            return;
        }
        let Some(_turn) = self.room_making.try_lock() else { return };
        let is_over = (0..DRAINS_MAX).find_map(|_| match self.drain_extent(Cost::Any) {
            true => self.swap.stock_up().then_some(true),
            false => Some(false),
        });
        *failed = if is_over == Some(true) { None } else { Some(Instant::now()) };
    }

    /// Fills the stock of a new area, at whatever price.
    pub(crate) fn stock_new_area(&self) -> Result<(), Error> {
        self.make_room_until(&mut || self.swap.stock_up())
    }
}
