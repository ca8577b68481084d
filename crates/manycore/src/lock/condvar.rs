//! A condition variable.

use super::MutexGuard;
use crate::task::{Doing, here};
use crate::time::{Instant, ticks_of};
use crate::world;
use std::time::Duration;

/// See `parking_lot::Condvar`.
#[derive(Debug, Default)]
pub struct Condvar {
    /// Gives each `Condvar` an address of its own. The address identifies the queue of the threads
    /// that wait for the `Condvar`. The field itself is never accessed, so it costs no virtual
    /// time. Only parking, waking, and accesses to the mutex cost time.
    _place: u64,
}

/// The result of a wait with a timeout.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct WaitTimeoutResult(bool);

impl WaitTimeoutResult {
    /// Returns true if the time was up before a notification came.
    #[must_use]
    pub fn timed_out(self) -> bool {
        self.0
    }
}

impl Condvar {
    /// Creates a condition variable without waiting threads.
    #[must_use]
    pub const fn new() -> Self {
        Self { _place: 0 }
    }

    fn address(&self) -> usize {
        std::ptr::from_ref(self).addr()
    }

    /// Releases the lock, waits for a notification, and takes the lock again.
    ///
    /// # Panics
    /// Outside of a machine, where no other thread could notify.
    #[track_caller]
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.wait_until_ticks(guard, None);
    }

    /// Waits like [`wait`](Self::wait), for at most `timeout`.
    #[track_caller]
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, timeout: Duration) -> WaitTimeoutResult {
        self.wait_until_ticks(guard, Some(timeout))
    }

    /// Waits like [`wait`](Self::wait), at most until `deadline`.
    #[track_caller]
    pub fn wait_until<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, deadline: Instant) -> WaitTimeoutResult {
        self.wait_until_ticks(guard, Some(deadline.duration_since(Instant::now())))
    }

    /// Waits while `condition` holds.
    #[track_caller]
    pub fn wait_while<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, mut condition: impl FnMut(&mut T) -> bool) {
        while condition(guard) {
            self.wait(guard);
        }
    }

    #[track_caller]
    fn wait_until_ticks<T: ?Sized>(
        &self,
        guard: &mut MutexGuard<'_, T>,
        timeout: Option<Duration>,
    ) -> WaitTimeoutResult {
        let world = world::expect("waiting for a condition");
        let lock = MutexGuard::lock_of(guard);
        world.arrive(here());
        // The thread enters the queue before it releases the lock: otherwise a notification could
        // be lost.
        world.state.borrow_mut().enqueue(self.address());
        lock.release(here());
        let timed_out = {
            let mut state = world.state.borrow_mut();
            if state.was_notified() {
                false
            } else {
                let now = state.clock();
                state.block(Doing::Waiting, timeout.map(|timeout| now + ticks_of(timeout)));
                drop(state);
                world.wait();
                world.state.borrow_mut().current().timed_out
            }
        };
        lock.retake();
        WaitTimeoutResult(timed_out)
    }

    /// Wakes one waiter. Returns whether there was one.
    #[track_caller]
    pub fn notify_one(&self) -> bool {
        self.notify(1) != 0
    }

    /// Wakes all waiters. Returns their number.
    #[track_caller]
    pub fn notify_all(&self) -> usize {
        self.notify(usize::MAX)
    }

    #[track_caller]
    fn notify(&self, count: usize) -> usize {
        let Some(world) = world::current() else { return 0 };
        world.arrive(here());
        let mut state = world.state.borrow_mut();
        state.wake_at(self.address(), count)
    }
}
