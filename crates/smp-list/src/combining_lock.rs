//! A two-mode lock whose exclusive mode no thread waits for: a thread leaves its change in a list,
//! and the thread in exclusive mode makes it.
//!
//! This is the combining of Hendler, Incze, Shavit and Tzafrir ("Flat combining and the
//! synchronization-parallelism tradeoff", SPAA 2010), for changes whose results the threads don't
//! need. Entering exclusive mode costs two cache-line fetches per CPU. If many threads have a
//! change to make, that cost is shared: one thread enters, and makes the changes of all.
//!
//! - C1. A thread adds its change to `changes`, and then tries to enter exclusive mode. If another
//!   thread has exclusive mode, or is entering it, the attempt fails, and the call returns.
//! - C2. The thread in exclusive mode takes all changes and makes them. After it has left exclusive
//!   mode, it looks for changes once more. If there are any, it tries to enter exclusive mode
//!   again.
//!
//! **Why no change is forgotten.** Thread A has left exclusive mode and looks for changes; thread B
//! adds a change. Both lock the mutex of `changes`. If B locks it first, A finds the change. If A
//! locks it first, B sees that A has left exclusive mode, so B's attempt to enter can't fail
//! because of A. No other ordering is needed.
//!
//! **A bound.** A call enters exclusive mode at most [`ROUNDS`] times, so that it doesn't work for
//! other threads for ever. Changes that arrive during its last round may be left over; the next
//! thread with a change makes them. If no thread makes a change any more, they stay left over:
//! memory that such a change would free may stay allocated until the lock is dropped.

use core::mem;

use sync::lock::Mutex;

use crate::two_mode_lock::{SharedMode, TwoModeLock};

/// The most times that one call enters exclusive mode, for its own change and those of other
/// threads.
const ROUNDS: usize = 8;

/// A value that many threads use in shared mode, and changes to it that need exclusive mode, but
/// that no thread waits for.
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

    /// Enters shared mode. Waits while a thread is in exclusive mode. A change that another thread
    /// [left](Self::change) may not be made yet.
    pub fn shared(&self) -> SharedMode<'_, T> {
        self.value.shared()
    }

    /// Makes `change`, by `make`, in exclusive mode. If another thread has exclusive mode or is
    /// entering it, the change is left for that thread, with its `make`, and this call returns at
    /// once. All calls should pass the same function.
    ///
    /// What `make` returns is dropped after the thread has left exclusive mode.
    pub fn change<R>(&self, change: C, make: impl Fn(&mut T, C) -> R) {
        self.changes.lock().push(change);
        for _ in 0..ROUNDS {
            let Some(mut value) = self.value.try_exclusive() else { return };
            let changes = mem::take(&mut *self.changes.lock());
            let results: Vec<R> = changes.into_iter().map(|change| make(&mut value, change)).collect();
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
