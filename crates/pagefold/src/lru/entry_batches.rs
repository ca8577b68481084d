//! Batches of pages that wait to enter their groups' lists.
//!
//! A page that was just loaded waits, isolated, in a small batch of the CPU that loaded it. The CPU
//! lists all pages of a batch together. So it gets the cache line of a list's head once for many
//! pages. No thread depends on another CPU to empty its batch: a thread that is short of pages
//! drains the batches of all CPUs.

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame};
use sync::PerCpu;
use sync::lock::Mutex;

use crate::lru::list::Recent;

/// Pages in a full batch.
pub(crate) const BATCH_MAX: usize = 32;
/// A batch may have at most 1/`GROWING_SHARE` of its group's pages while the group grows, and
/// 1/`FULL_SHARE` when the group is full. The share of a full group is smaller, because pages in a
/// batch can't be reclaimed, so they take room from the group's other pages.
const GROWING_SHARE: u64 = 64;
const FULL_SHARE: u64 = 256;

pub(crate) type Batch = ArrayVec<IsolatedFrame, BATCH_MAX>;

/// How many pages may wait in a batch. The group of the batch's first page sets this when that page
/// is added. This number isn't computed again for each page, because the group's counters are on
/// cache lines that other CPUs write to.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Patience {
    pages: u64,
    share: u64,
}

impl Patience {
    /// Returns how many pages may wait in a group of `charged` pages.
    pub(crate) fn new(charged: u64, grows: bool) -> Self {
        let share = if grows { GROWING_SHARE } else { FULL_SHARE };
        Self { pages: charged / share, share }
    }

    /// Returns whether a batch of `waiting` pages may wait for more pages, in a group with a limit
    /// of `max` pages.
    fn allows(self, waiting: usize, max: u64) -> bool {
        (waiting as u64) < self.pages.min(max / self.share)
    }
}

/// The pages that one CPU has loaded.
#[derive(Debug, Default)]
struct Waiting {
    batch: Batch,
    recent: Recent,
    patience: Patience,
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

    /// Adds a page to this CPU's batch. Takes and returns the batch if it is then full, or has at
    /// least as many pages as its [`Patience`] allows. The patience was set by the group of the
    /// batch's first page; `max` is the limit of the added page's group, in pages.
    pub(crate) fn add(
        &self,
        frames: &Frames,
        frame: IsolatedFrame,
        patience: impl FnOnce() -> Patience,
        max: u64,
    ) -> Option<Batch> {
        let mut waiting = self.batches.here().lock();
        let Waiting { batch, recent, patience: kept } = &mut *waiting;
        recent.add(frames, frame.id());
        if batch.is_empty() {
            *kept = patience();
        }
        batch.push(frame);
        (batch.is_full() || !kept.allows(batch.len(), max)).then(|| std::mem::take(batch))
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
