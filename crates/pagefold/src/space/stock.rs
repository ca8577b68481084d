//! Charges of a space, taken from its group in batches: one word of the group for each page would be a line that every
//! first touch fights for.

use frames::OwnedFrame;
use sync::atomic::{AtomicU64, Ordering};
use sync::{Arc, PerCpu};

use crate::error::Error;
use crate::group_state::GroupState;
use crate::manager::Manager;

/// Pages that are charged at once.
const BATCH: u64 = 32;
/// Charges that a CPU keeps at most.
const KEPT_MAX: u64 = 2 * BATCH;
/// Frames whose bytes are still in the caches of the CPU that freed them, at most.
const WARM_MAX: u64 = 32;

/// A CPU's part.
#[derive(Debug, Default)]
struct Local {
    /// Pages that are charged, but not in memory.
    charges: AtomicU64,
    /// Frames freed lately, that will be taken again next. A guess, not kept exactly.
    warm: AtomicU64,
}

/// The charges of a space that no page has.
#[derive(Debug)]
pub(super) struct Stock {
    group: Arc<GroupState>,
    local: PerCpu<Local>,
}

impl Stock {
    pub(super) fn new(group: &Arc<GroupState>) -> Self {
        Self { group: Arc::clone(group), local: PerCpu::new(Local::default) }
    }

    /// A frame, charged. Says whether its bytes are likely to be in this CPU's caches.
    ///
    /// # Errors
    /// [`Error::LimitReached`].
    pub(super) fn take<'a>(&'a self, manager: &'a Manager) -> Result<(OwnedFrame<'a>, bool), Error> {
        let local = self.local.here();
        if take_one(&local.charges) || self.refill(local) {
            if let Some(frame) = manager.frames.allocate() {
                // Relaxed, and not one operation: a guess.
                let warm = local.warm.load(Ordering::Relaxed);
                if warm > 0 {
                    local.warm.store(warm - 1, Ordering::Relaxed);
                }
                return Ok((frame, warm > 0));
            }
            self.give(1);
        }
        self.empty();
        Ok((manager.take_frame(&self.group)?.into_anonymous(), false))
    }

    /// Charges a batch, or less near the limit, of which one is the caller's. False if there is no room.
    fn refill(&self, local: &Local) -> bool {
        let got = self.group.try_charge_anonymous(BATCH);
        if got == 0 {
            return self.local.iter().any(|other| take_one(&other.charges));
        }
        if got > 1 {
            // Relaxed, here and below: a number of things that are all alike.
            local.charges.fetch_add(got - 1, Ordering::Relaxed);
        }
        true
    }

    /// Takes back the charges of pages that are gone.
    pub(super) fn give(&self, pages: u64) {
        let local = self.local.here();
        let kept = local.charges.load(Ordering::Relaxed);
        let keep = KEPT_MAX.saturating_sub(kept).min(pages);
        if keep > 0 {
            local.charges.fetch_add(keep, Ordering::Relaxed);
        }
        if pages > keep {
            self.group.uncharge_anonymous(pages - keep);
        }
    }

    /// Frames were freed here.
    pub(super) fn freed(&self, frames: u64) {
        self.give(frames);
        self.local.here().warm.store(frames.min(WARM_MAX), Ordering::Relaxed);
    }

    /// Gives all charges back to the group.
    pub(super) fn empty(&self) {
        let charges: u64 = self.local.iter().map(|local| local.charges.swap(0, Ordering::Relaxed)).sum();
        if charges > 0 {
            self.group.uncharge_anonymous(charges);
        }
    }
}

fn take_one(charges: &AtomicU64) -> bool {
    charges.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |charges| charges.checked_sub(1)).is_ok()
}
