//! A mutual exclusion lock.

use super::{Label, Look, give_back, wait_for};
use crate::atomic::{AtomicU8, Ordering};
use crate::ledger::At;
use crate::task::here;
use std::cell::UnsafeCell;
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

const FREE: u8 = 0;
const TAKEN: u8 = 1;
/// Taken, and threads may be parked for it.
const WANTED: u8 = 2;

const KIND: &str = "mutex";

/// See `parking_lot::Mutex`.
pub struct Mutex<T: ?Sized> {
    state: AtomicU8,
    label: Label,
    value: UnsafeCell<T>,
}

// SAFETY: only the thread that holds the lock accesses the value, so one thread at a time does.
// Therefore the value must be `Send`, but needn't be `Sync`.
unsafe impl<T: ?Sized + Send> Send for Mutex<T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Send> Sync for Mutex<T> {}

/// The guard of a [`Mutex`]: gives access to the value until dropped.
#[must_use]
pub struct MutexGuard<'a, T: ?Sized> {
    lock: &'a Mutex<T>,
    /// Where the lock was taken.
    at: At,
    /// Not `Send`: the thread that took a lock gives it back.
    _here: std::marker::PhantomData<*const ()>,
}

// SAFETY: sharing the guard shares the value.
unsafe impl<T: ?Sized + Sync> Sync for MutexGuard<'_, T> {}

impl<T> Mutex<T> {
    /// Creates a free lock over `value`. The profile names it by the source line of this call.
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU8::new(FREE), label: Label::Place(Location::caller()), value: UnsafeCell::new(value) }
    }

    /// Creates a free lock over `value`, with a name for the profile. Locks of one name are counted
    /// together.
    pub const fn named(name: &'static str, value: T) -> Self {
        Self { state: AtomicU8::new(FREE), label: Label::Name(name), value: UnsafeCell::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.state).addr()
    }

    /// Waits for the lock.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let look = || match self.state.load(Ordering::Relaxed) {
            FREE => Look::Free,
            TAKEN => Look::Taken,
            _ => Look::Wanted,
        };
        wait_for(self.place(), || self.take(), look, || self.take_wanted());
        self.guard()
    }

    /// Takes the lock if it is free.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        if self.take() { Some(self.guard()) } else { None }
    }

    /// Waits for the lock without a limit. The timeout is ignored, on the assumption that no thread
    /// of a machine holds a lock for so long that a timeout would pass.
    #[track_caller]
    pub fn try_lock_for(&self, _timeout: std::time::Duration) -> Option<MutexGuard<'_, T>> {
        Some(self.lock())
    }

    /// Returns whether a thread holds the lock.
    #[track_caller]
    pub fn is_locked(&self) -> bool {
        self.state.load(Ordering::Relaxed) != FREE
    }

    /// Returns the value, which no other thread can be using.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[track_caller]
    fn guard(&self) -> MutexGuard<'_, T> {
        MutexGuard { lock: self, at: here(), _here: std::marker::PhantomData }
    }

    fn place(&self) -> (Label, &'static str, usize) {
        (self.label, KIND, self.address())
    }

    #[track_caller]
    fn take(&self) -> bool {
        // Acquire pairs with the Release in `release`: changes that the last owner made to the
        // value are visible.
        self.state.compare_exchange(FREE, TAKEN, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    /// Puts the lock into the state *wanted*. Returns true if the lock was free; this thread then
    /// holds the lock. The state must be *wanted* in that case, too, rather than *taken*: other
    /// threads may still be parked, and a release wakes a thread only if the state was *wanted*.
    #[track_caller]
    fn take_wanted(&self) -> bool {
        // Acquire as in `take`.
        self.state.swap(WANTED, Ordering::Acquire) == FREE
    }

    pub(super) fn release(&self, at: At) {
        give_back(self.place(), at, || {
            // Release pairs with the Acquire in `take`.
            usize::from(self.state.swap(FREE, Ordering::Release) == WANTED)
        });
    }

    /// Takes the lock again after a wait for a condition.
    #[track_caller]
    pub(super) fn retake(&self) {
        wait_for(self.place(), || self.take_wanted(), || Look::Wanted, || self.take_wanted());
    }
}

impl<'a, T: ?Sized> MutexGuard<'a, T> {
    pub(super) fn lock_of(guard: &Self) -> &'a Mutex<T> {
        guard.lock
    }

    /// Releases the lock while `f` runs.
    #[track_caller]
    pub fn unlocked<R>(guard: &mut Self, f: impl FnOnce() -> R) -> R {
        struct Retake<'a, T: ?Sized>(&'a Mutex<T>);
        impl<T: ?Sized> Drop for Retake<'_, T> {
            fn drop(&mut self) {
                self.0.retake();
            }
        }
        guard.lock.release(guard.at);
        let _retake = Retake(guard.lock);
        f()
    }
}

impl<T: ?Sized> Drop for MutexGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.release(self.at);
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard's owner has the lock, which no other thread gets before the guard is
        // dropped.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: Default> Default for Mutex<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Mutex").finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
