//! Locks and once-cells: no poisoning, and clean under ThreadSanitizer.
//!
//! Outside of loom models and virtual CPUs, a lock is a futex: only the kernel keeps a list of the
//! threads that wait for the lock. A forked child doesn't inherit that list, so locks that are
//! created in the child work correctly. Some lock libraries keep their own table of waiting threads
//! instead. A process has one such table, and a child may inherit parts of it locked.
//!
//! The locks are unfair: a thread that arrives while a waiting thread is about to wake up may get
//! the lock first.

#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
pub use futex::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};
#[cfg(pagefold_manycore)]
pub use manycore::lock::{Condvar, Mutex, MutexGuard, OnceCell, RwLock, RwLockReadGuard, RwLockWriteGuard};

#[cfg(not(pagefold_manycore))]
pub use once_cell::sync::OnceCell;

/// A place for a box that is set at most once. A read is one load, which isn't charged to a virtual
/// CPU.
pub use once_cell::race::OnceBox;

#[cfg(pagefold_loom)]
pub use model::{Condvar, Mutex, MutexGuard, RwLock, RwLockReadGuard, RwLockWriteGuard};

/// The product's locks.
#[cfg(not(any(pagefold_loom, pagefold_manycore)))]
mod futex {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::{Duration, Instant};

    use lock_api::{RawMutex as _, RawMutexTimed};
    use rustix_futex_sync::{RawCondvar, RawRwLock};

    use crate::wait::Backoff;

    /// A lock for one thread at a time.
    pub type Mutex<T> = lock_api::Mutex<RawMutex, T>;
    /// Releases a [`Mutex`] when dropped.
    pub type MutexGuard<'a, T> = lock_api::MutexGuard<'a, RawMutex, T>;
    /// A lock for many readers or one writer.
    pub type RwLock<T> = lock_api::RwLock<RawRwLock, T>;
    /// Releases a share of a [`RwLock`] when dropped.
    pub type RwLockReadGuard<'a, T> = lock_api::RwLockReadGuard<'a, RawRwLock, T>;
    /// Releases a whole [`RwLock`] when dropped.
    pub type RwLockWriteGuard<'a, T> = lock_api::RwLockWriteGuard<'a, RawRwLock, T>;

    /// The raw lock of a [`Mutex`].
    pub struct RawMutex(rustix_futex_sync::RawMutex);

    // SAFETY: forwards to that lock.
    unsafe impl lock_api::RawMutex for RawMutex {
        type GuardMarker = lock_api::GuardNoSend;

        const INIT: Self = Self(rustix_futex_sync::RawMutex::INIT);

        #[inline]
        fn lock(&self) {
            self.0.lock();
        }

        #[inline]
        fn try_lock(&self) -> bool {
            self.0.try_lock()
        }

        #[inline]
        unsafe fn unlock(&self) {
            // SAFETY: the caller holds the lock.
            unsafe { self.0.unlock() }
        }
    }

    // SAFETY: as above.
    unsafe impl RawMutexTimed for RawMutex {
        type Duration = Duration;
        type Instant = Instant;

        /// Tries to take the lock repeatedly. A thread that waits in
        /// [`lock`](lock_api::RawMutex::lock) may get it first.
        fn try_lock_for(&self, time: Duration) -> bool {
            // No time limit if its end is beyond the clock's range.
            let end = Instant::now().checked_add(time);
            let mut backoff = Backoff::new();
            while !self.try_lock() {
                if end.is_some_and(|end| Instant::now() >= end) {
                    return false;
                }
                backoff.wait();
            }
            true
        }

        fn try_lock_until(&self, end: Instant) -> bool {
            self.try_lock_for(end.saturating_duration_since(Instant::now()))
        }
    }

    /// The maximum time of a single wait: over a century. The kernel refuses times beyond its
    /// clock's range, and a refused wait returns at once.
    const WAIT_MAX: Duration = Duration::from_secs(1 << 32);

    /// A condition variable: waits for changes that other threads make under a [`Mutex`]. A wait
    /// may end without a notification.
    pub struct Condvar {
        raw: RawCondvar,
        /// The number of threads that wait, or are about to wait. Threads change the number only
        /// while they hold the mutex. So a thread that changes the condition under the same mutex,
        /// and then notifies, sees a number that includes every thread that it must wake. If the
        /// number is 0, notifying makes no system call.
        waiting: AtomicU32,
    }

    impl Default for Condvar {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Condvar {
        /// Creates a condition variable without waiting threads.
        #[must_use]
        pub const fn new() -> Self {
            Self { raw: RawCondvar::new(), waiting: AtomicU32::new(0) }
        }

        /// Releases the lock, waits for a notification, and locks again.
        pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
            self.wait_while_counted(guard, |lock| {
                // SAFETY: the caller's guard shows that this thread holds the lock.
                unsafe { self.raw.wait(lock) }
                true
            });
        }

        /// Releases the lock, waits for a notification for at most `time`, and locks again. Returns
        /// false if the time has passed.
        pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) -> bool {
            self.wait_while_counted(guard, |lock| {
                // SAFETY: the caller's guard shows that this thread holds the lock.
                let is_notified = unsafe { self.raw.wait_timeout(lock, time.min(WAIT_MAX)) };
                is_notified || time > WAIT_MAX // A wait may end without a notification.
            })
        }

        fn wait_while_counted<T: ?Sized>(
            &self,
            guard: &mut MutexGuard<'_, T>,
            wait: impl FnOnce(&rustix_futex_sync::RawMutex) -> bool,
        ) -> bool {
            // Relaxed: under the lock.
            self.waiting.fetch_add(1, Ordering::Relaxed);
            // SAFETY: the lock is held again when `wait` returns.
            let is_notified = wait(unsafe { &MutexGuard::mutex(guard).raw().0 });
            self.waiting.fetch_sub(1, Ordering::Relaxed);
            is_notified
        }

        /// Wakes one waiting thread.
        pub fn notify_one(&self) {
            if self.waiting.load(Ordering::Relaxed) > 0 {
                self.raw.notify_one();
            }
        }

        /// Wakes all waiting threads.
        pub fn notify_all(&self) {
            if self.waiting.load(Ordering::Relaxed) > 0 {
                self.raw.notify_all();
            }
        }
    }

    impl std::fmt::Debug for Condvar {
        fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
            f.debug_struct("Condvar").field("waiting", &self.waiting).finish_non_exhaustive()
        }
    }
}

/// loom's locks, with the product's signatures.
#[cfg(pagefold_loom)]
mod model {
    use std::ops::{Deref, DerefMut};
    use std::time::Duration;

    pub use loom::sync::{RwLockReadGuard, RwLockWriteGuard};

    /// The model's version of the product's `Mutex`.
    #[derive(Debug, Default)]
    pub struct Mutex<T>(loom::sync::Mutex<T>);

    /// The model's version of the product's `MutexGuard`. Empty only while a condition variable
    /// holds the inner guard.
    #[derive(Debug)]
    pub struct MutexGuard<'a, T>(Option<loom::sync::MutexGuard<'a, T>>);

    impl<T> Mutex<T> {
        /// Creates an unlocked lock that protects `value`.
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

        /// Waits for the lock without a time limit, because a model has no time.
        pub fn try_lock_for(&self, _timeout: Duration) -> Option<MutexGuard<'_, T>> {
            Some(self.lock())
        }

        /// Returns the value, which no other thread can be using.
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

    /// The model's version of the product's `RwLock`.
    #[derive(Debug, Default)]
    pub struct RwLock<T>(loom::sync::RwLock<T>);

    impl<T> RwLock<T> {
        /// Creates an unlocked lock that protects `value`.
        pub fn new(value: T) -> Self {
            Self(loom::sync::RwLock::new(value))
        }

        /// Waits for shared access.
        pub fn read(&self) -> RwLockReadGuard<'_, T> {
            self.0.read().expect("a model thread panicked")
        }

        /// Waits for exclusive access.
        pub fn write(&self) -> RwLockWriteGuard<'_, T> {
            self.0.write().expect("a model thread panicked")
        }
    }

    /// The model's version of the product's `Condvar`. A model has no time, so only a notification
    /// ends a timed wait.
    #[derive(Debug)]
    pub struct Condvar(loom::sync::Condvar);

    impl Default for Condvar {
        fn default() -> Self {
            Self::new()
        }
    }

    impl Condvar {
        /// Creates a condition variable without waiting threads.
        #[must_use]
        pub fn new() -> Self {
            Self(loom::sync::Condvar::new())
        }

        /// Releases the lock, waits for a notification, and locks again.
        pub fn wait<T>(&self, guard: &mut MutexGuard<'_, T>) {
            let inner = guard.0.take().expect("guard is with a condition variable");
            guard.0 = Some(self.0.wait(inner).expect("a model thread panicked"));
        }

        /// Waits like [`wait`](Self::wait), without a time limit, because a model has no time.
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

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use std::sync::atomic::{AtomicU32, Ordering};
    use std::time::Duration;

    use super::{Condvar, Mutex, RwLock};

    const THREADS: u32 = 4;
    const ROUNDS: u32 = 5_000;

    /// Regression: the kernel refuses times beyond its clock's range. So a wait with such a time
    /// limit ended at once, and the loop around the wait kept a CPU busy.
    #[test]
    fn a_wait_of_any_length_sleeps() {
        for time in [Duration::from_secs(i64::MAX as u64), Duration::MAX] {
            let (state, changed) = (Mutex::new((0, false)), Condvar::new());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    while state.lock().0 == 0 {
                        std::thread::yield_now();
                    }
                    std::thread::sleep(Duration::from_millis(20));
                    state.lock().1 = true;
                    changed.notify_all();
                });
                let mut state = state.lock();
                while !state.1 {
                    state.0 += 1;
                    assert!(changed.wait_for(&mut state, time), "centuries have passed");
                }
                assert!(state.0 < 100, "{} waits", state.0);
            });
        }
    }

    /// The threads hold the lock in a fixed order, and no notification gets lost.
    #[test]
    fn threads_take_turns() {
        let (turn, changed) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            for own in 0..THREADS {
                let (turn, changed) = (&turn, &changed);
                scope.spawn(move || {
                    for _ in 0..ROUNDS {
                        let mut turn = turn.lock();
                        while *turn % THREADS != own {
                            changed.wait(&mut turn);
                        }
                        *turn += 1;
                        drop(turn);
                        changed.notify_all();
                    }
                });
            }
        });
        assert_eq!(turn.into_inner(), THREADS * ROUNDS);
    }

    /// If each thread that continues takes one unit, one notification for each unit is enough.
    #[test]
    fn one_notification_is_enough_for_one_thread() {
        let (free, given) = (Mutex::new(0), Condvar::new());
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        let mut free = free.lock();
                        while *free == 0 {
                            given.wait(&mut free);
                        }
                        *free -= 1;
                    }
                });
            }
            for _ in 0..THREADS * ROUNDS {
                *free.lock() += 1;
                given.notify_one();
            }
        });
        assert_eq!(free.into_inner(), 0);
    }

    #[test]
    fn waits_for_a_time_end() {
        let (lock, never) = (Mutex::new(()), Condvar::new());
        let mut guard = lock.lock();
        assert!(!never.wait_for(&mut guard, Duration::from_millis(5)));
        assert!(!never.wait_for(&mut guard, Duration::ZERO));
        assert!(std::thread::scope(|scope| {
            scope.spawn(|| lock.try_lock_for(Duration::from_millis(5)).is_none()).join().unwrap()
        }));
        drop(guard);
        assert!(lock.try_lock_for(Duration::ZERO).is_some() && lock.try_lock_for(Duration::MAX).is_some());
    }

    /// Readers share the lock; a writer has it alone.
    #[test]
    fn a_writer_is_alone() {
        let (lock, readers) = (RwLock::new(0), AtomicU32::new(0));
        std::thread::scope(|scope| {
            for _ in 0..THREADS {
                scope.spawn(|| {
                    for _ in 0..ROUNDS {
                        *lock.write() += 1;
                        let _guard = lock.read();
                        readers.fetch_add(1, Ordering::Relaxed);
                    }
                });
            }
        });
        assert_eq!((*lock.read(), readers.into_inner()), (THREADS * ROUNDS, THREADS * ROUNDS));
        let _reader = lock.read();
        assert!(lock.try_write().is_none() && lock.try_read().is_some());
    }
}
