//! A two-mode lock for changes that need exclusive mode. If another thread is in exclusive mode or
//! entering it, the calling thread leaves its change in a list, and doesn't wait. The other thread
//! makes the change.
//!
//! This is the flat combining of Hendler, Incze, Shavit and Tzafrir ("Flat combining and the
//! synchronization-parallelism tradeoff", SPAA 2010), for changes whose results the threads don't
//! need. Entering exclusive mode costs two cache-line fetches per CPU. If many threads have a
//! change to make, that cost is shared: one thread enters, and makes the changes of all.
//!
//! - C1. A thread adds its change to `changes`, and then tries to enter exclusive mode. If another
//!   thread has exclusive mode, or is entering it, the attempt fails, and the call returns.
//! - C2. The thread in exclusive mode takes all changes and makes them. After it has left exclusive
//!   mode, it looks for changes once more. If there are any changes, it tries to enter exclusive
//!   mode again.
//!
//! **Why no change is forgotten.** Thread A has left exclusive mode and looks for changes; thread B
//! adds a change. Both lock the mutex of `changes`. If B locks it first, A finds the change. If A
//! locks it first, B sees that A has left exclusive mode, so B's attempt to enter can't fail
//! because of A. No other ordering is needed.
//!
//! **A panic.** A call of [`change`](CombiningLock::change) passes a function, `make`, which makes
//! whatever change it is given. The thread in exclusive mode uses its own `make` for all changes in
//! the list, including those of other threads. If `make` panics for a change, that change is lost,
//! and the call of `change` by the thread in exclusive mode unwinds. The changes that were still to
//! be made are put back into the list; a later call makes them.
//!
//! **A bound.** A call enters exclusive mode at most [`ROUNDS`] times, so that it doesn't work for
//! other threads for ever. Changes that are added during its last round may stay in the list; the
//! next thread with a change makes them. If no thread has a change any more, they stay there:
//! memory that such a change would free may stay allocated until the lock is dropped.

use core::mem;
use std::vec;

use sync::lock::Mutex;

use crate::two_mode_lock::{SharedMode, TwoModeLock};

/// The most times that one call enters exclusive mode, for its own change and those of other
/// threads.
const ROUNDS: usize = 8;

/// A value that many threads use in shared mode, and a list of changes to the value. A change is
/// made in exclusive mode, and no thread waits for its result.
#[derive(Debug)]
pub struct CombiningLock<T, C> {
    value: TwoModeLock<T>,
    /// The changes that no thread has made yet. Lock order: `value` → `changes`.
    changes: Mutex<Vec<C>>,
}

impl<T, C> CombiningLock<T, C> {
    /// Creates a free lock around `value`.
    #[must_use]
    pub fn new(value: T) -> Self {
        Self { value: TwoModeLock::new(value), changes: Mutex::new(Vec::new()) }
    }

    /// Enters shared mode. Waits while another thread is in exclusive mode, or waits for exclusive
    /// mode. A change that another thread has [left](Self::change) may not have been made yet.
    ///
    /// A thread that is in shared mode already must not call this. It could wait for a thread that
    /// wants exclusive mode, while that thread waits for the caller's first guard to be dropped.
    pub fn shared(&self) -> SharedMode<'_, T> {
        self.value.shared()
    }

    /// Makes `change`, by `make`, in exclusive mode. If another thread has exclusive mode or is
    /// entering it, this call leaves the change for that thread and returns at once. That thread,
    /// or a later call, makes the change by its own `make`. So all calls should pass the same
    /// function.
    ///
    /// Otherwise this call waits until no thread is in shared mode. So a thread that is in shared
    /// mode must not call it: it would wait for itself.
    ///
    /// What `make` returns is dropped after the thread has left exclusive mode.
    pub fn change<R>(&self, change: C, make: impl Fn(&mut T, C) -> R) {
        self.changes.lock().push(change);
        for _ in 0..ROUNDS {
            let mut results: Vec<R> = Vec::new();
            let Some(mut value) = self.value.try_exclusive() else { return };
            let changes = mem::take(&mut *self.changes.lock());
            let mut taken = Taken { changes: changes.into_iter(), of: &self.changes };
            results.extend(taken.changes.by_ref().map(|change| make(&mut value, change)));
            drop(taken);
            drop(value);
            drop(results);
            if self.changes.lock().is_empty() {
                return;
            }
        }
    }

    /// Returns the value. No other thread can be using it. Changes that were left over aren't made.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }
}

/// Changes that a thread is making. If the thread panics, the remaining changes are put back.
struct Taken<'a, C> {
    changes: vec::IntoIter<C>,
    of: &'a Mutex<Vec<C>>,
}

impl<C> Drop for Taken<'_, C> {
    fn drop(&mut self) {
        if self.changes.len() > 0 {
            let mut changes = self.of.lock();
            let later = mem::replace(&mut *changes, self.changes.by_ref().collect());
            changes.extend(later);
        }
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};
    use std::sync::OnceLock;

    use super::*;

    /// Regression: `make` panicked for one change. The changes of other threads that came after it
    /// in the list were lost, too. Now they are put back, and a later call makes them.
    #[test]
    fn a_panic_loses_only_its_own_change() {
        static LOCK: OnceLock<CombiningLock<Vec<u32>, u32>> = OnceLock::new();
        fn make(value: &mut Vec<u32>, change: u32) {
            if change == 1 {
                // Simulates other threads that leave changes meanwhile.
                [2, 3].into_iter().for_each(|more| LOCK.get().unwrap().change(more, make));
            }
            assert!(change != 2, "made to panic");
            value.push(change);
        }
        let lock = LOCK.get_or_init(|| CombiningLock::new(Vec::new()));
        assert!(catch_unwind(AssertUnwindSafe(|| lock.change(1, make))).is_err());
        lock.change(4, make);
        assert_eq!(*lock.shared(), [1, 3, 4]);
    }
}
