//! Lets a test wait until another thread of its process has gone to sleep, to wait for something.
//! The kernel reports whether a thread sleeps. So the test needn't guess how long the thread takes
//! to go to sleep.
//!
//! A thread that polls, and sleeps between two checks, counts as sleeping. A thread that hasn't
//! begun to run doesn't.

use std::fs;
use std::sync::Arc;
use std::sync::atomic::{AtomicI32, Ordering};
use std::thread::{Scope, ScopedJoinHandle};
use std::time::{Duration, Instant};

/// How long a thread may take until it sleeps or has ended. This is much longer than a thread takes
/// even on a very busy machine.
const WATCHDOG: Duration = Duration::from_secs(120);
/// The time between two looks at a thread.
const PAUSE: Duration = Duration::from_millis(1);
/// The number of looks in a row that must find a thread asleep. One look isn't enough, because a
/// thread also sleeps for a moment if it needs a lock, for example the allocator's, that another
/// thread holds.
const LOOKS: u32 = 3;

/// The values of a [`Sleeper`], besides the kernel's number of the thread.
const NOT_BEGUN: i32 = 0;
const OVER: i32 = -1;

/// A thread that a test waits for: the thread that calls [`run`](Self::run).
#[derive(Debug, Default)]
pub struct Sleeper(AtomicI32);

impl Sleeper {
    /// Calls `body` in the calling thread, and returns its result. The thread counts as ended when
    /// `body` has returned or panicked.
    pub fn run<T>(&self, body: impl FnOnce() -> T) -> T {
        struct Ends<'a>(&'a AtomicI32);
        impl Drop for Ends<'_> {
            fn drop(&mut self) {
                self.0.store(OVER, Ordering::Relaxed);
            }
        }
        let _ends = Ends(&self.0);
        // Relaxed, in the whole module: threads exchange only this value, so there is nothing to
        // order.
        // SAFETY: the call takes nothing, and returns a number.
        self.0.store(unsafe { libc::gettid() }, Ordering::Relaxed);
        body()
    }

    /// Waits until the thread sleeps or has ended. Returns whether it sleeps. Also returns false
    /// if the thread neither sleeps nor ends in time.
    #[must_use]
    pub fn sleeps(&self) -> bool {
        self.found_asleep() == Some(true)
    }

    /// Waits until the thread sleeps or has ended.
    ///
    /// # Panics
    /// If it does neither in time.
    #[track_caller]
    pub fn await_sleep(&self) {
        assert!(self.found_asleep().is_some(), "a thread neither sleeps nor ends, after {WATCHDOG:?}");
    }

    /// Waits until the thread has gone to sleep `times` times since this call, or has ended. If the
    /// thread polls, each sleep between two checks counts.
    ///
    /// # Panics
    /// If it does neither in time.
    #[track_caller]
    pub fn await_sleeps(&self, times: u64) {
        let mut before = None;
        let is_so = |thread| {
            let now = times_asleep(thread);
            now >= *before.get_or_insert(now) + times
        };
        let found = self.found(is_so);
        assert!(found.is_some(), "a thread neither sleeps {times} times nor ends, after {WATCHDOG:?}");
    }

    fn found_asleep(&self) -> Option<bool> {
        let mut in_a_row = 0;
        self.found(|thread| {
            in_a_row = if is_asleep(thread) { in_a_row + 1 } else { 0 };
            in_a_row == LOOKS
        })
    }

    /// Waits until `is_so` returns true for the thread, or the thread has ended. Returns which of
    /// the two happened, or `None` if neither did in time.
    fn found(&self, mut is_so: impl FnMut(i32) -> bool) -> Option<bool> {
        let start = Instant::now();
        while start.elapsed() < WATCHDOG {
            match self.0.load(Ordering::Relaxed) {
                NOT_BEGUN => {}
                OVER => return Some(false),
                thread if is_so(thread) => return Some(true),
                _ => {}
            }
            std::thread::sleep(PAUSE);
        }
        None
    }
}

/// Starts a thread in a scope. Returns once the thread sleeps or has ended.
///
/// # Panics
/// If it does neither in time.
#[track_caller]
pub fn spawn<'scope, T: Send + 'scope>(
    scope: &'scope Scope<'scope, '_>,
    body: impl FnOnce() -> T + Send + 'scope,
) -> ScopedJoinHandle<'scope, T> {
    let sleeper = Arc::new(Sleeper::default());
    let its = Arc::clone(&sleeper);
    let thread = scope.spawn(move || its.run(body));
    sleeper.await_sleep();
    thread
}

/// Returns the text of a thread's file in `/proc`, which is empty if the thread has ended.
fn text(thread: i32, file: &str) -> String {
    fs::read_to_string(format!("/proc/self/task/{thread}/{file}")).unwrap_or_default()
}

fn is_asleep(thread: i32) -> bool {
    // The state follows the thread's name, which is in brackets.
    text(thread, "stat").rsplit_once(") ").is_some_and(|(_, rest)| rest.starts_with('S'))
}

/// Returns how often a thread has gone to sleep so far.
fn times_asleep(thread: i32) -> u64 {
    let status = text(thread, "status");
    let count = status.lines().find_map(|line| line.strip_prefix("voluntary_ctxt_switches:"));
    count.map_or(0, |count| count.trim().parse().expect("the kernel writes a number"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::AtomicBool;
    use std::sync::{Condvar, Mutex, PoisonError};

    /// A thread waits here until [`open`](Self::open) is called.
    #[derive(Default)]
    struct Gate(Mutex<bool>, Condvar);

    impl Gate {
        fn pass(&self) {
            let open = self.0.lock().unwrap_or_else(PoisonError::into_inner);
            drop(self.1.wait_while(open, |open| !*open).unwrap());
        }

        fn open(&self) {
            *self.0.lock().unwrap_or_else(PoisonError::into_inner) = true;
            self.1.notify_all();
        }
    }

    #[test]
    fn a_thread_that_waits_sleeps() {
        let (sleeper, gate) = (Sleeper::default(), Gate::default());
        std::thread::scope(|scope| {
            scope.spawn(|| sleeper.run(|| gate.pass()));
            let sleeps = sleeper.sleeps();
            gate.open();
            assert!(sleeps);
        });
    }

    #[test]
    fn a_thread_that_runs_or_has_not_begun_is_not_asleep() {
        let (sleeper, stop, gate) = (Sleeper::default(), AtomicBool::new(false), Gate::default());
        let looks = || {
            let mut looks = 0;
            sleeper.found(|thread| {
                assert!(!is_asleep(thread), "it never waits");
                looks += 1;
                looks == 50
            })
        };
        std::thread::scope(|scope| {
            let begins = spawn(scope, || {
                gate.pass();
                sleeper.run(|| {
                    while !stop.load(Ordering::Relaxed) {
                        std::hint::spin_loop();
                    }
                });
            });
            let before = sleeper.0.load(Ordering::Relaxed);
            gate.open();
            let found = std::panic::catch_unwind(std::panic::AssertUnwindSafe(looks));
            stop.store(true, Ordering::Relaxed);
            begins.join().unwrap();
            assert_eq!((before, found.unwrap()), (NOT_BEGUN, Some(true)));
        });
    }

    #[test]
    fn a_thread_that_has_returned_or_panicked_has_ended() {
        for panics in [false, true] {
            let sleeper = Sleeper::default();
            let ended = std::thread::scope(|scope| {
                scope.spawn(|| sleeper.run(|| assert!(!panics, "on purpose"))).join().is_err()
            });
            assert_eq!((ended, sleeper.sleeps()), (panics, false));
            sleeper.await_sleep();
            sleeper.await_sleeps(u64::MAX / 2);
        }
    }

    #[test]
    fn the_looks_of_a_thread_are_counted() {
        let (sleeper, looks, stop) = (Sleeper::default(), AtomicI32::new(0), AtomicBool::new(false));
        std::thread::scope(|scope| {
            scope.spawn(|| {
                sleeper.run(|| {
                    while !stop.load(Ordering::Relaxed) {
                        looks.fetch_add(1, Ordering::Relaxed);
                        std::thread::park_timeout(PAUSE);
                    }
                });
            });
            sleeper.await_sleep();
            let before = looks.load(Ordering::Relaxed);
            sleeper.await_sleeps(20);
            let seen = looks.load(Ordering::Relaxed) - before;
            stop.store(true, Ordering::Relaxed);
            // The thread may also have slept for other reasons, for example for a page of its code.
            assert!(seen >= 10, "{seen} looks");
        });
    }
}
