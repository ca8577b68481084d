//! Batches of pages that wait to enter their groups' lists.
//!
//! A page that was just loaded waits, isolated, in a small batch of the CPU that loaded it. So a
//! CPU gets the cache line of a list's head once for many pages. No thread depends on another CPU
//! to empty its batch: a thread that is short of pages drains the batches of all CPUs.

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame};
use sync::PerCpu;
use sync::lock::Mutex;

use crate::lru::list::Recent;

/// Pages in a full batch.
pub(crate) const BATCH_MAX: usize = 32;
/// A page waits only if its group holds at least this many times the pages of the batch.
const GROUP_SHARE: u64 = 128;

pub(crate) type Batch = ArrayVec<IsolatedFrame, BATCH_MAX>;

/// The pages that one CPU has loaded.
#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    recent: Recent,
    /// How many pages may wait, computed from the group's charges when the batch got its first
    /// page. The group's counter is on a cache line that other CPUs write to, so it isn't read for
    /// each page.
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

    /// Adds a page to this CPU's batch. Takes and returns the batch if it is full, or too large for
    /// a group with `charged` pages and a limit of `max`.
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
        // The limit of a small group allows less.
        let patience = (*patience).min((max() / GROUP_SHARE) as usize);
        (batch.is_full() || batch.len() >= patience).then(|| std::mem::take(batch))
    }

    /// Records the order of pages that are listed without waiting.
    pub(crate) fn pass(&self, frames: &Frames, run: &[IsolatedFrame]) {
        let recent = &mut self.batches.here().lock().recent;
        run.iter().for_each(|frame| recent.add(frames, frame.id()));
    }

    /// Takes the waiting pages of all CPUs, batch by batch.
    pub(crate) fn drain(&self) -> impl Iterator<Item = Batch> + '_ {
        self.batches.iter().map(|waiting| std::mem::take(&mut waiting.lock().batch))
    }
}
