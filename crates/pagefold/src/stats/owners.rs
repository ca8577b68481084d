//! The counters of files, by the number that the frames of their pages carry.

use smp_list::TwoModeLock;
use sync::Arc;

use crate::slab::Slab;
use crate::stats::Counters;

/// A file has a place here until it goes, and then takes itself out.
pub(crate) struct OwnerCounters {
    /// Shared mode is for looking at it: that happens whenever pages are evicted.
    slots: TwoModeLock<Slab<Arc<Counters>>>,
}

impl Default for OwnerCounters {
    fn default() -> Self {
        Self { slots: TwoModeLock::new(Slab::default()) }
    }
}

impl OwnerCounters {
    /// Counts something for the file with this number, if it is still open.
    pub(crate) fn count(&self, owner: u32, what: impl FnOnce(&Counters)) {
        if let Some(counters) = self.slots.shared().get(owner) {
            what(counters);
        }
    }

    /// Gives a file a number.
    pub(crate) fn enrol(&self, counters: &Arc<Counters>) -> u32 {
        self.slots.exclusive().insert(Arc::clone(counters))
    }

    /// Takes the counters of a file out that is going.
    pub(crate) fn remove(&self, owner: u32) {
        drop(self.slots.exclusive().remove(owner));
    }

    /// How many there are.
    #[cfg(all(test, not(pagefold_loom)))]
    pub(crate) fn len(&self) -> usize {
        self.slots.shared().len()
    }
}
