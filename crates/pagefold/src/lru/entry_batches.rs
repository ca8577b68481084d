//! Batches of pages that wait to enter their groups' lists.
//!
//! A page that was just loaded waits, isolated, in a small batch of the CPU that loaded it. So a
//! CPU gets the cache line of a list's head once for many pages. No thread depends on another CPU
//! to empty its batch: a thread that is short of pages drains the batches of all CPUs.

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame};
use sync::PerCpu;
use sync::lock::Mutex;

use crate::group::state::GroupState;
use crate::lru::list::Recent;

/// Pages in a full batch.
pub(crate) const BATCH_MAX: usize = 32;
/// A page waits only if its group has at least this many times the pages of the batch: while the
/// group grows, and when it is full. Pages that wait can't be reclaimed, so a full group has less
/// memory meanwhile.
const GROWING_SHARE: u64 = 64;
const FULL_SHARE: u64 = 512;

pub(crate) type Batch = ArrayVec<IsolatedFrame, BATCH_MAX>;

/// The pages that one CPU has loaded.
#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    recent: Recent,
    /// How many pages may wait, and the part of a group that this is, by what the group of the first
    /// page had then. The group's counters are on cache lines that other CPUs write to, so they
    /// aren't read for each page.
    patience: usize,
    share: u64,
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
    /// its group.
    pub(crate) fn add(&self, group: &GroupState, frames: &Frames, frame: IsolatedFrame) -> Option<Batch> {
        let mut waiting = self.batches.here().lock();
        let Waiting { batch, recent, patience, share } = &mut *waiting;
        recent.add(frames, frame.id());
        if batch.is_empty() {
            *share = if group.lists.grows() { GROWING_SHARE } else { FULL_SHARE };
            *patience = (group.charged() / *share) as usize;
        }
        batch.push(frame);
        // The limit of a small group allows less.
        let patience = (*patience).min((group.max() / *share) as usize);
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
