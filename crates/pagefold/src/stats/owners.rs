//! The counters of files, by the owner number in their pages' frames.

use smp_list::CombiningLock;
use sync::Arc;

use crate::numbered::Numbered;
use crate::stats::Counters;

/// The table of files' counters. A file removes its entry when the file is dropped.
pub(crate) struct OwnerCounters {
    /// Lookups and insertions use the lock's shared mode. (Every eviction does a lookup.) A thread
    /// that wants to remove an entry may leave that to a thread that is removing another entry.
    slots: CombiningLock<Numbered<Counters>, u32>,
}

impl Default for OwnerCounters {
    fn default() -> Self {
        Self { slots: CombiningLock::new(Numbered::default()) }
    }
}

impl OwnerCounters {
    /// Calls `what` with the counters of the file numbered `owner`, if the file is still open.
    pub(crate) fn count(&self, owner: u32, what: impl FnOnce(&Counters)) {
        if let Some(counters) = self.slots.shared().get(owner) {
            what(counters);
        }
    }

    /// Adds a file's counters and returns the file's number.
    pub(crate) fn enrol(&self, counters: &Arc<Counters>) -> u32 {
        self.slots.shared().insert(|_| Arc::clone(counters)).0
    }

    /// Removes the counters of a file that is being dropped.
    pub(crate) fn remove(&self, owner: u32) {
        self.slots.change(owner, Numbered::remove);
    }

    /// Returns the number of entries.
    #[cfg(all(test, not(pagefold_loom)))]
    pub(crate) fn len(&self) -> usize {
        self.slots.shared().len()
    }
}
