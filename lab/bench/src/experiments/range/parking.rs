//! parking_lot's lock for the whole file: once with its default, unfair unlock, and once with its
//! fair unlock.

#[cfg(not(pagefold_manycore))]
use parking_lot::RwLock;
use span_lock::LockRange;
#[cfg(pagefold_manycore)]
use sync::lock::RwLock;

use super::{FileLock, Use, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "parking-lot",
    about: "parking_lot's reader/writer lock for the whole file, or the virtual machine's, made like it; not fair",
    hidden: false,
    measure: |job| measure::<Plain>(job),
};

struct Plain(RwLock<()>);

impl FileLock for Plain {
    fn new(_: usize) -> Self {
        Self(RwLock::new(()))
    }

    #[inline(always)]
    fn with(&self, _: usize, _: LockRange, what: Use, inside: impl FnOnce()) {
        match what {
            Use::Read => {
                let _guard = self.0.read();
                inside();
            }
            Use::Write => {
                let _guard = self.0.write();
                inside();
            }
        }
    }
}

/// The scheme with the fair unlock, which the virtual machine's lock hasn't.
#[cfg(not(pagefold_manycore))]
pub(super) const FAIR: Scheme = Scheme {
    name: "parking-lot-fair",
    about: "the same, each unlock a fair one",
    hidden: false,
    measure: |job| measure::<Fair>(job),
};

#[cfg(not(pagefold_manycore))]
struct Fair(RwLock<()>);

#[cfg(not(pagefold_manycore))]
impl FileLock for Fair {
    fn new(_: usize) -> Self {
        Self(RwLock::new(()))
    }

    #[inline(always)]
    fn with(&self, _: usize, _: LockRange, what: Use, inside: impl FnOnce()) {
        match what {
            Use::Read => {
                let guard = self.0.read();
                inside();
                parking_lot::RwLockReadGuard::unlock_fair(guard);
            }
            Use::Write => {
                let guard = self.0.write();
                inside();
                parking_lot::RwLockWriteGuard::unlock_fair(guard);
            }
        }
    }
}
