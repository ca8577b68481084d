//! Memory for compressed swap areas: how it is charged and obtained.
//!
//! A compressed area takes memory from the budget as it fills, one chunk at a time. But pages are
//! swapped out just when memory is short, and at such times frames take up the whole budget. So
//! before the area can get its next chunk, an extent of frames has to be drained. The pages of that
//! extent are swapped out in turn, and may have to be compressed, for which the area again needs
//! memory.
//!
//! To break this cycle, the area has a *stock*: memory that is charged in advance, and used when no
//! other memory can be had. Most of the stock, as much as an extent, is only for pages of an extent
//! that is being drained ([`Need::Drain`](swap::Need)). A thread that is about to reclaim refills
//! the stock first, before it isolates any page. (To refill the stock, an extent may have to be
//! drained. An extent can't be drained while the thread itself has isolated one of its pages.) If
//! there is still no memory for a page, the page goes to the next area, or stays in memory.
//!
//! A drain that fails after it has swapped pages out has used up some of the stock for nothing. So
//! while another thread holds a frame of an extent, a drain swaps out no page of this extent
//! (`reclaim::drain`). If the other thread keeps the frame, the next drain is tried after a pause,
//! and no call fails for want of a frame during that pause.

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

/// The most extents that are drained in one attempt.
const DRAINS_MAX: u32 = 4;
/// After a thread has failed to get memory for a stock, no thread tries again for this long. The
/// reason: a drain that fails evicts many pages for nothing.
const PAUSE: Duration = Duration::from_millis(20);

impl Manager {
    /// Fills the stocks of compressed areas, before pages are reclaimed. The caller must have no
    /// page isolated. Returns whether a stock isn't full and will be tried again shortly: another
    /// thread is filling it, or the pause after a failure isn't over.
    pub(crate) fn stock_up_swap(&self) -> bool {
        if !self.swaps() || self.swap.stock_up() {
            return false;
        }
        // One thread at a time is enough, and it must not be making room already.
        let Some(mut failed) = self.stocking_failed.try_lock() else { return true };
        if failed.is_some_and(|failed| failed.elapsed() < PAUSE) {
            return true;
        }
        let Some(_turn) = self.room_making.try_lock() else { return true };
        for _ in 0..DRAINS_MAX {
            if !self.drain_extent(Cost::Any) {
                break;
            }
            if self.swap.stock_up() {
                *failed = None;
                return false;
            }
        }
        *failed = Some(Instant::now());
        false
    }

    /// Fills the stock of a new area, and evicts as many pages as that takes.
    pub(crate) fn stock_new_area(&self) -> Result<(), Error> {
        self.make_room_until(&mut || self.swap.stock_up())
    }
}
