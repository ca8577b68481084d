//! A plain lock for the whole file, as Linux had it: see [`RwSem`].

use span_lock::LockRange;

use super::{FileLock, Use, measure};
use crate::experiments::older::rw_sem::RwSem;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "rwlock",
    about: "Linux's reader/writer semaphore for the whole file: a word, and a queue in order of arrival",
    hidden: false,
    measure: |job| measure::<RwSem>(job),
};

impl FileLock for RwSem {
    fn new(tasks: usize) -> Self {
        Self::new(tasks)
    }

    #[inline(always)]
    fn with(&self, task: usize, _: LockRange, what: Use, inside: impl FnOnce()) {
        self.with(task, what, inside);
    }
}
