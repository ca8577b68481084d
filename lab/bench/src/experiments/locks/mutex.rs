//! The mutex of `sync`, which spins for a while and then sleeps.

use sync::lock::Mutex;

use super::words::Words;
use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "mutex",
    about: "the mutex that Pagefold uses; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, new),
};

struct Locked(Mutex<Words>);

/// A lock for any number of tasks.
pub(super) fn new(_: usize) -> impl Shared {
    Locked(Mutex::new(Words::default()))
}

impl Shared for Locked {
    fn operate(&self, _: usize, _: u64) {
        self.0.lock().change();
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.0.lock().read(), uses);
    }
}
