//! Locks and once-cells, with parking_lot's interface: no poisoning, and clean under ThreadSanitizer.

#[cfg(pagefold_manycore)]
pub use manycore::lock::{Condvar, Mutex, MutexGuard, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use parking_lot::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(pagefold_manycore))]
pub use once_cell::sync::OnceCell;

/// A place for a box, which stays once it is there. Looking is one load, which costs a virtual CPU nothing.
pub use once_cell::race::OnceBox;

#[cfg(pagefold_loom)]
pub use model::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// loom's locks behind parking_lot's signatures.
#[cfg(pagefold_loom)]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub use loom::sync::{RwLockReadGuard, RwLockWriteGuard};

    /// See `parking_lot::Mutex`.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    /// See `parking_lot::MutexGuard`. Empty only while a condition variable has the inner guard.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        /// A free lock over `value`.
        pub fn new(value: T) -> Self {
            Self(loom::sync::Mutex::new(value))
        }

        /// Waits for the lock.
        pub fn lock(&self) -> MutexGuard<'_, T> {
            MutexGuard(Some(self.0.lock().expect("a model thread panicked")))
        }

        /// Takes the lock if it is free.
        pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
            self.0.try_lock().ok().map(|guard| MutexGuard(Some(guard)))
        }

        /// As [`lock`](Self::lock): the model never times out.
        pub fn try_lock_for(&self, _timeout: Duration) -> Option<MutexGuard<'_, T>> {
            Some(self.lock())
        }

        /// The value, which nobody else can be using.
        pub fn into_inner(self) -> T {
            self.0.into_inner().expect("a model thread panicked")
        }
    }

    impl<T> Deref for MutexGuard<'_, T> {
        type Target = T;
        fn deref(&self) -> &T {
            self.0.as_ref().expect("guard is with a condition variable")
        }
    }

    impl<T> DerefMut for MutexGuard<'_, T> {
        fn deref_mut(&mut self) -> &mut T {
            self.0.as_mut().expect("guard is with a condition variable")
        }
    }

    /// See `parking_lot::RwLock`.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// A free lock over `value`.
        pub fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        /// Waits for a share of the lock.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("a model thread panicked")
        }

        /// Waits for the whole lock.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("a model thread panicked")
        }
    }

    /// See `parking_lot::Condvar`. A model has no time, so a timed wait ends only by a notification.
    #[derive(Debug)]
    pub struct Condvar(loom::sync::Condvar);

    impl Default for Condvar {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Condvar {
        /// A condition nobody waits for.
        #[must_use]
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        /// Releases the lock, waits for a notification, and takes the lock again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect("guard is with a condition variable");
            guard.0 = Some(self.0.wait(inner).expect("a model thread panicked"));
        }

        /// As [`wait`](Self::wait): the model never times out.
        pub fn wait_for<T>(&self, guard: &mut MutexGuard<'_, T>, _timeout: Duration) {
            self.wait(guard);
        }

        /// Wakes one waiter.
        pub fn notify_one(&self) {
            self.0.notify_one();
        }

        /// Wakes all waiters.
        pub fn notify_all(&self) {
            self.0.notify_all();
        }
    }
}
