//! The seam's mutex, which spins for a while and then sleeps.

use sync::atomic::{AtomicU64, Ordering};
use sync::lock::Mutex;

use super::{Pair, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "mutex",
    about: "the mutex that Pagefold uses; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, || Locked(Mutex::new(Words::default()))),
};

#[derive(Default)]
#[repr(align(64))]
struct Words([AtomicU64; 2]);

struct Locked(Mutex<Words>);

impl Pair for Locked {
    fn operate(&self, _: u64) {
        let words = self.0.lock();
        for word in &words.0 {
            // Relaxed: under the lock.
            word.store(word.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        }
    }
}
