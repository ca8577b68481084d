//! The product: `span-lock`, a word for each granule once ranges have met.

use span_lock::{LockRange, RangeLock};

use super::{FileLock, Use, file_io, is_io, measure};
use crate::experiments::OURS;
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: OURS,
    about: "span-lock: one word at first; once disjoint ranges have met, a word for each granule, which no other task \
            writes",
    hidden: false,
    measure: |job| if is_io(job) { file_io::measure_own(job) } else { measure::<RangeLock>(job) },
};

impl FileLock for RangeLock {
    fn new(_: usize) -> Self {
        Self::new()
    }

    #[inline(always)]
    fn with(&self, _: usize, range: LockRange, what: Use, inside: impl FnOnce()) {
        match what {
            Use::Read => {
                let _guard = self.read(range);
                inside();
            }
            Use::Write => {
                let _guard = self.write(range);
                inside();
            }
        }
    }

    fn meet(&self) {
        let ranges = [0, 1].map(|at| LockRange::at(at << 40, 4096));
        let [Ok(low), Ok(high)] = ranges else { return };
        let _low = self.write(low);
        let _high = self.write(high);
    }
}
