//! A reader/writer lock. The count of readers is a single word, as in most such locks, so the
//! word's cache line moves to the core of each reader. Waiting writers keep new readers out.

use super::{Label, Look, give_back, wait_for};
use crate::atomic::{AtomicU32, Ordering};
use crate::ledger::At;
use crate::task::here;
use std::cell::UnsafeCell;
use std::fmt;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};
use std::panic::Location;

/// A writer has the lock.
const WRITER: u32 = 1 << 31;
/// Threads may be parked for the lock, so it admits no new readers.
const WANTED: u32 = 1 << 30;
/// Readers.
const READERS: u32 = WANTED - 1;

/// Bits that keep a reader out, and bits that keep a writer out.
const NO_READERS: u32 = WRITER | WANTED;
const NO_WRITER: u32 = WRITER | READERS;

const KIND: &str = "rwlock";

/// See `parking_lot::RwLock`.
pub struct RwLock<T: ?Sized> {
    state: AtomicU32,
    label: Label,
    value: UnsafeCell<T>,
}

// SAFETY: one writer, or several readers, access the value at a time. A writer may be on any
// thread, so the value has to be `Send`.
unsafe impl<T: ?Sized + Send> Send for RwLock<T> {}
// SAFETY: as above. Readers share the value, so it has to be `Sync` as well.
unsafe impl<T: ?Sized + Send + Sync> Sync for RwLock<T> {}

/// The guard of a reader of a [`RwLock`]: gives read access until dropped.
#[must_use]
pub struct RwLockReadGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    at: At,
    _here: PhantomData<*const ()>,
}

/// The guard of a writer of a [`RwLock`]: gives write access until dropped.
#[must_use]
pub struct RwLockWriteGuard<'a, T: ?Sized> {
    lock: &'a RwLock<T>,
    at: At,
    _here: PhantomData<*const ()>,
}

// SAFETY: sharing the guard shares the value.
unsafe impl<T: ?Sized + Sync> Sync for RwLockReadGuard<'_, T> {}
// SAFETY: as above.
unsafe impl<T: ?Sized + Sync> Sync for RwLockWriteGuard<'_, T> {}

impl<T> RwLock<T> {
    /// Creates a free lock over `value`. The profile names it by the source line of this call.
    #[track_caller]
    pub const fn new(value: T) -> Self {
        Self { state: AtomicU32::new(0), label: Label::Place(Location::caller()), value: UnsafeCell::new(value) }
    }

    /// Creates a free lock over `value`, with a name for the profile.
    pub const fn named(name: &'static str, value: T) -> Self {
        Self { state: AtomicU32::new(0), label: Label::Name(name), value: UnsafeCell::new(value) }
    }

    /// Returns the value.
    pub fn into_inner(self) -> T {
        self.value.into_inner()
    }
}

impl<T: ?Sized> RwLock<T> {
    fn address(&self) -> usize {
        std::ptr::from_ref(&self.state).addr()
    }

    /// Waits for the lock in shared mode.
    #[track_caller]
    pub fn read(&self) -> RwLockReadGuard<'_, T> {
        wait_for(self.place(), || self.take_share(), || self.look(NO_READERS), || self.take_or_mark(1, NO_READERS));
        RwLockReadGuard { lock: self, at: here(), _here: PhantomData }
    }

    /// Waits for the lock in exclusive mode.
    #[track_caller]
    pub fn write(&self) -> RwLockWriteGuard<'_, T> {
        wait_for(self.place(), || self.take_all(), || self.look(NO_WRITER), || self.take_or_mark(WRITER, NO_WRITER));
        RwLockWriteGuard { lock: self, at: here(), _here: PhantomData }
    }

    /// Takes the lock in shared mode, unless a writer holds it, or threads may be parked for it.
    #[track_caller]
    pub fn try_read(&self) -> Option<RwLockReadGuard<'_, T>> {
        if self.take_share() { Some(RwLockReadGuard { lock: self, at: here(), _here: PhantomData }) } else { None }
    }

    /// Takes the lock in exclusive mode if it is free.
    #[track_caller]
    pub fn try_write(&self) -> Option<RwLockWriteGuard<'_, T>> {
        if self.take_all() { Some(RwLockWriteGuard { lock: self, at: here(), _here: PhantomData }) } else { None }
    }

    /// Returns the value, which no other thread can be using.
    pub fn get_mut(&mut self) -> &mut T {
        self.value.get_mut()
    }

    #[track_caller]
    fn take_share(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & NO_READERS == 0 {
            // Acquire pairs with the Release of the last writer in `release`.
            match self.state.compare_exchange_weak(state, state + 1, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => state = other,
            }
        }
        false
    }

    #[track_caller]
    fn take_all(&self) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        while state & NO_WRITER == 0 {
            // The mark stays, because other threads may be parked as well. Acquire pairs with the
            // Release in `release`.
            match self.state.compare_exchange_weak(state, state | WRITER, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return true,
                Err(other) => state = other,
            }
        }
        false
    }

    /// Returns the state of the lock for a thread that any bit of `obstacle` keeps out.
    #[track_caller]
    fn look(&self, obstacle: u32) -> Look {
        match self.state.load(Ordering::Relaxed) {
            state if state & obstacle == 0 => Look::Free,
            state if state & WANTED != 0 => Look::Wanted,
            _ => Look::Taken,
        }
    }

    /// Adds `mine` and returns true if no bit of `obstacle` is set. Otherwise marks the lock as
    /// wanted, and returns false.
    #[track_caller]
    fn take_or_mark(&self, mine: u32, obstacle: u32) -> bool {
        let mut state = self.state.load(Ordering::Relaxed);
        loop {
            let free = state & obstacle == 0;
            if !free && state & NO_WRITER == 0 {
                // Only the mark is left: the last holder has released the lock, and is about to
                // remove the mark and wake the parked threads. So this thread waits without
                // parking.
                crate::atomic::spin_hint();
                state = self.state.load(Ordering::Relaxed);
                continue;
            }
            let new = if free { state + mine } else { state | WANTED };
            if new == state {
                return false; // Marked already.
            }
            // Acquire as in `take_share` and `take_all`.
            match self.state.compare_exchange_weak(state, new, Ordering::Acquire, Ordering::Relaxed) {
                Ok(_) => return free,
                Err(other) => state = other,
            }
        }
    }

    fn place(&self) -> (Label, &'static str, usize) {
        (self.label, KIND, self.address())
    }

    fn release(&self, held: u32, at: At) {
        give_back(self.place(), at, || {
            // Release pairs with the Acquire in `take_share` and `take_all`.
            let left = self.state.fetch_sub(held, Ordering::Release) - held;
            // If another thread has taken the lock since the subtraction, that thread leaves the
            // mark in place. It wakes the parked threads when it releases the lock.
            let wakes =
                left == WANTED && self.state.compare_exchange(WANTED, 0, Ordering::Relaxed, Ordering::Relaxed).is_ok();
            if wakes { usize::MAX } else { 0 }
        });
    }
}

impl<T: ?Sized> Drop for RwLockReadGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.release(1, self.at);
    }
}

impl<T: ?Sized> Drop for RwLockWriteGuard<'_, T> {
    fn drop(&mut self) {
        self.lock.release(WRITER, self.at);
    }
}

impl<T: ?Sized> Deref for RwLockReadGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: while there are readers, no thread writes.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> Deref for RwLockWriteGuard<'_, T> {
    type Target = T;

    fn deref(&self) -> &T {
        // SAFETY: the guard's owner has the whole lock.
        unsafe { &*self.lock.value.get() }
    }
}

impl<T: ?Sized> DerefMut for RwLockWriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        // SAFETY: as in `deref`, and the guard is borrowed exclusively.
        unsafe { &mut *self.lock.value.get() }
    }
}

impl<T: Default> Default for RwLock<T> {
    #[track_caller]
    fn default() -> Self {
        Self::new(T::default())
    }
}

impl<T: ?Sized> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("RwLock").finish_non_exhaustive()
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLockWriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        (**self).fmt(f)
    }
}
