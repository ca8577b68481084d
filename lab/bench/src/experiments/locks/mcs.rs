//! A queue lock: each task waits at a line of its own until the task before it passes the lock on
//! (Mellor-Crummey and Scott, TOCS 1991).

use super::words::Words;
use super::{Shared, measure};
use crate::experiments::older::queued_spinlock::QueuedSpinlock;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "mcs",
    about: "a queue lock of Mellor-Crummey and Scott; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, new),
};

struct Queued {
    lock: QueuedSpinlock,
    words: Words,
}

/// A lock for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    Queued { lock: QueuedSpinlock::new(tasks), words: Words::default() }
}

impl Shared for Queued {
    fn operate(&self, task: usize, _: u64) {
        self.lock.with(task, || self.words.change());
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.words.read(), uses);
    }
}
