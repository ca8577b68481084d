//! Pages on their way to their groups' lists.
//!
//! A page that was just loaded waits, isolated, in a small batch of the CPU that loaded it, so that a group's lists
//! are locked once for many pages. Nobody depends on a CPU to get on with it: whoever is short of pages drains the
//! batches of all CPUs.

use arrayvec::ArrayVec;
use frames::{IsolatedFrame, OwnedFrame};
use sync::PerCpu;
use sync::lock::Mutex;

use crate::group_lists::Orphans;
use crate::group_state::GroupState;
use crate::manager::Manager;

/// Pages in a full batch.
const BATCH_MAX: usize = 32;
/// A page waits only if its group holds so many times as many pages as the batch.
const GROUP_SHARE: u64 = 64;

type Batch = ArrayVec<IsolatedFrame, BATCH_MAX>;

/// A batch for each CPU.
#[derive(Debug)]
pub(crate) struct EntryBatches {
    batches: PerCpu<Mutex<Batch>>,
}

impl EntryBatches {
    pub(crate) fn new() -> Self {
        Self { batches: PerCpu::new(Mutex::default) }
    }
}

impl Manager {
    /// Puts a loaded page on its group's lists, soon.
    pub(crate) fn enter(&self, group: &GroupState, frame: IsolatedFrame) {
        let full = {
            let mut batch = self.entries.batches.here().lock();
            batch.push(frame);
            let patience = (group.charged() / GROUP_SHARE) as usize;
            if !batch.is_full() && batch.len() < patience {
                return;
            }
            std::mem::take(&mut *batch)
        };
        self.enter_all(full);
    }

    /// Puts all waiting pages on their lists.
    pub(crate) fn drain_entries(&self) {
        for batch in self.entries.batches.iter() {
            let batch = std::mem::take(&mut *batch.lock());
            self.enter_all(batch);
        }
    }

    /// Lists a batch, locking a group's lists again only where the group changes.
    fn enter_all(&self, batch: Batch) {
        let frames = &*self.frames;
        let group_of = |frame: &IsolatedFrame| frames.group(frame.id());
        let mut rest = batch.into_iter().peekable();
        while let Some(first) = rest.next() {
            let number = group_of(&first);
            let Some(group) = self.groups.get(number) else {
                debug_assert!(false, "a page outlived its group");
                continue;
            };
            let mut orphans = Orphans::default();
            let mut lists = group.lists.lock();
            lists.put_back(frames, first, &mut orphans);
            while let Some(frame) = rest.next_if(|next| group_of(next) == number) {
                lists.put_back(frames, frame, &mut orphans);
            }
            lists.ripen(frames);
            drop(lists);
            group.uncharge(orphans.count);
        }
    }

    /// Frees frames whose pages are gone, and uncharges them. Says how many.
    pub(crate) fn release<'a>(&'a self, group: &GroupState, gone: impl IntoIterator<Item = OwnedFrame<'a>>) -> usize {
        let count = self.frames.free_all(gone);
        if count > 0 {
            group.uncharge(count as u64);
        }
        count
    }
}
