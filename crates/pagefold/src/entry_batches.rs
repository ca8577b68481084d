//! Pages on their way to their groups' lists.
//!
//! A page that was just loaded waits, isolated, in a small batch of the CPU that loaded it, so that a group's lists
//! are locked once for many pages. Nobody depends on a CPU to get on with it: whoever is short of pages drains the
//! batches of all CPUs.

use arrayvec::ArrayVec;
use frames::{Frames, IsolatedFrame, OwnedFrame};
use sync::lock::Mutex;
use sync::{Arc, PerCpu};

use crate::group_lists::Orphans;
use crate::group_state::GroupState;

/// Pages in a full batch.
const BATCH_MAX: usize = 32;
/// A page waits only if its group holds so many times as many pages as the batch.
const GROUP_SHARE: u64 = 64;

type Batch = ArrayVec<(IsolatedFrame, Arc<GroupState>), BATCH_MAX>;

/// A batch for each CPU.
#[derive(Debug)]
pub(crate) struct EntryBatches {
    batches: PerCpu<Mutex<Batch>>,
}

impl EntryBatches {
    pub(crate) fn new() -> Self {
        Self { batches: PerCpu::new(Mutex::default) }
    }

    /// Puts a loaded page on its group's lists, soon.
    pub(crate) fn add(&self, frames: &Frames, group: &Arc<GroupState>, frame: IsolatedFrame) {
        let full = {
            let mut batch = self.batches.here().lock();
            batch.push((frame, Arc::clone(group)));
            let patience = (group.charged() / GROUP_SHARE) as usize;
            if !batch.is_full() && batch.len() < patience {
                return;
            }
            std::mem::take(&mut *batch)
        };
        enter(frames, full);
    }

    /// Puts all waiting pages on their lists.
    pub(crate) fn drain(&self, frames: &Frames) {
        for batch in self.batches.iter() {
            let batch = std::mem::take(&mut *batch.lock());
            enter(frames, batch);
        }
    }
}

/// Lists a batch, locking a group's lists again only where the group changes.
fn enter(frames: &Frames, batch: Batch) {
    let mut rest = batch.into_iter().peekable();
    while let Some((first, group)) = rest.next() {
        let mut orphans = Orphans::new();
        let mut lists = group.lists.lock();
        lists.put_back(frames, first, &mut orphans);
        while let Some((frame, _)) = rest.next_if(|(_, next)| Arc::ptr_eq(next, &group)) {
            lists.put_back(frames, frame, &mut orphans);
        }
        lists.ripen(frames, &mut orphans);
        drop(lists);
        release(&group, orphans);
    }
}

/// Frees frames whose pages are gone, and uncharges them.
pub(crate) fn release<'a>(group: &GroupState, frames: impl IntoIterator<Item = OwnedFrame<'a>>) {
    for frame in frames {
        drop(frame);
        group.uncharge(1);
    }
}
