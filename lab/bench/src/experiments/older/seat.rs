//! A place where a task waits until another task wakes it: it spins for a while, then sleeps.

use sync::atomic::{AtomicU32, Ordering, spin_hint};
use sync::lock::{Condvar, Mutex};
use sync::time::{Duration, Instant};

/// As long as `span-lock` spins.
const SPIN: Duration = Duration::from_micros(2);

const WAITS: u32 = 0;
const SLEEPS: u32 = 1;
const GOES: u32 = 2;

/// A task's place, on lines of its own.
#[derive(Default)]
#[repr(align(128))]
pub(crate) struct Seat {
    state: AtomicU32,
    mutex: Mutex<()>,
    bell: Condvar,
}

impl Seat {
    /// Before it becomes known that the task waits.
    pub(crate) fn sit(&self) {
        // Relaxed: the task that tells learns of the wait under a lock.
        self.state.store(WAITS, Ordering::Relaxed);
    }

    /// Waits until told.
    pub(crate) fn wait(&self) {
        let start = Instant::now();
        while start.elapsed() < SPIN {
            // Acquire pairs with the Release in `tell`.
            if self.state.load(Ordering::Acquire) == GOES {
                return;
            }
            spin_hint();
        }
        let mut guard = self.mutex.lock();
        // Acquire as above.
        if self.state.compare_exchange(WAITS, SLEEPS, Ordering::Acquire, Ordering::Acquire).is_ok() {
            while self.state.load(Ordering::Acquire) != GOES {
                self.bell.wait(&mut guard);
            }
        }
    }

    /// Tells the task to go on.
    pub(crate) fn tell(&self) {
        // Release pairs with the Acquire in `wait`.
        if self.state.swap(GOES, Ordering::Release) == SLEEPS {
            drop(self.mutex.lock());
            self.bell.notify_one();
        }
    }
}
