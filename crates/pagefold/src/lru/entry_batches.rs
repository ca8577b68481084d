//! Pages on their way to their groups' lists.
//!
//! A page that was just loaded waits, isolated, in a small batch of the CPU that loaded it, so that
//! the head of a group's list goes to a CPU once for many pages. No thread depends on another CPU
//! to empty its batch: a thread that is short of pages drains the batches of all CPUs.

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame};
use sync::PerCpu;
use sync::lock::Mutex;

use crate::lru::list::Recent;

/// Pages in a full batch.
pub(crate) const BATCH_MAX: usize = 32;
/// A page waits only if its group holds so many times as many pages as the batch.
const GROUP_SHARE: u64 = 64;

pub(crate) type Batch = ArrayVec<IsolatedFrame, BATCH_MAX>;

/// What one CPU has loaded.
#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    recent: Recent,
    /// Pages that may wait, as the group of the first of them was when that came: a group's charges
    /// are on a line that other CPUs write to.
    patience: usize,
}

/// A batch for each CPU.
#[derive(Debug)]
pub(crate) struct EntryBatches {
    batches: PerCpu<Mutex<Waiting>>,
}

impl EntryBatches {
    pub(crate) fn new() -> Self {
        Self { batches: PerCpu::new(Mutex::default) }
    }

    /// Has a page wait in this CPU's batch, if `charged` pages of its group, of `max` that may be,
    /// are enough for that. Returns the batch if it waits no longer.
    pub(crate) fn add(
        &self,
        frames: &Frames,
        frame: IsolatedFrame,
        charged: impl FnOnce() -> u64,
        max: impl FnOnce() -> u64,
    ) -> Option<Batch> {
        let mut waiting = self.batches.here().lock();
        let Waiting { batch, recent, patience } = &mut *waiting;
        recent.add(frames, frame.id());
        if batch.is_empty() {
            *patience = (charged() / GROUP_SHARE) as usize;
        }
        batch.push(frame);
        // A small group has less.
        let patience = (*patience).min((max() / GROUP_SHARE) as usize);
        (batch.is_full() || batch.len() >= patience).then(|| std::mem::take(batch))
    }

    /// Notes pages that don't wait.
    pub(crate) fn pass(&self, frames: &Frames, run: &[IsolatedFrame]) {
        let recent = &mut self.batches.here().lock().recent;
        run.iter().for_each(|frame| recent.add(frames, frame.id()));
    }

    /// What waits, batch by batch.
    pub(crate) fn drain(&self) -> impl Iterator<Item = Batch> + '_ {
        self.batches.iter().map(|waiting| std::mem::take(&mut waiting.lock().batch))
    }
}
