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

use frames::Frames;
use swap::Memory;
use sync::Arc;

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
