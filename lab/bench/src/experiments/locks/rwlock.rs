//! The reader/writer lock of `sync`, mostly for reading.

use sync::lock::RwLock;

use super::words::Words;
use super::{Shared, is_rare, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "rwlock",
    about: "the reader/writer lock that Pagefold uses; each 16th operation of a task changes both words, the others \
            read them",
    hidden: false,
    measure: |job| measure(job, new),
};

struct Locked(RwLock<Words>);

/// A lock for any number of tasks.
pub(super) fn new(_: usize) -> impl Shared {
    Locked(RwLock::new(Words::default()))
}

impl Shared for Locked {
    fn operate(&self, _: usize, turn: u64) {
        if is_rare(turn) {
            self.0.write().change();
        } else {
            self.0.read().read();
        }
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.0.read().read(), uses / super::RARE);
    }
}
