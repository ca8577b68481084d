//! Timers for tasks. One thread wakes all of them; it exists only while tasks wait, and a second
//! longer.
//!
//! - TIMER-1. A task's waker is in the table from when its timer is created until the timer is
//!   dropped, or until the timer's time comes and the thread removes the waker. The table changes
//!   only under the lock. Wakers are called and dropped without the lock, because they may run any
//!   code.
//! - TIMER-2. The thread never sleeps past the earliest time in the table: inserting an earlier
//!   time wakes the thread. When the table has been empty for a second, the thread ends. It records
//!   its end under the lock (`has_thread`), so a timer that is inserted after that starts a new
//!   thread.

use std::collections::BTreeMap;
use std::task::Waker;

use sync::Arc;
use sync::lock::{Condvar, Mutex};
use sync::tasks::wake_all;
use sync::thread;
use sync::time::{Duration, Instant};

/// How long the thread waits with an empty table before it ends.
const IDLE: Duration = Duration::from_secs(1);

/// The tasks that wait for their time.
#[derive(Default)]
pub(crate) struct Timers(Arc<Shared>);

#[derive(Default)]
struct Shared {
    table: Mutex<Table>,
    changed: Condvar,
}

#[derive(Default)]
struct Table {
    /// The wakers, by time (nanoseconds since the first timer was created) and number.
    tasks: BTreeMap<Key, Waker>,
    start: Option<Instant>,
    /// The number of timers created so far.
    made: u64,
    has_thread: bool,
}

type Key = (u64, u64);

/// A task's timer. Once it is dropped, it doesn't wake the task.
pub(crate) struct Timer {
    shared: Arc<Shared>,
    key: Key,
}

impl Timers {
    /// Creates a timer that wakes the task after `time`; at once if the thread can't be started.
    pub(crate) fn after(&self, time: Duration, waker: &Waker) -> Timer {
        let waker = waker.clone();
        let mut table = self.0.table.lock();
        let now = table.start.get_or_insert_with(Instant::now).elapsed();
        table.made += 1;
        let key = (u64::try_from((now + time).as_nanos()).unwrap_or(u64::MAX), table.made);
        let is_first = table.tasks.first_key_value().is_none_or(|(first, _)| key < *first);
        table.tasks.insert(key, waker);
        let starts = !std::mem::replace(&mut table.has_thread, true);
        drop(table);
        if is_first {
            self.0.changed.notify_one();
        }
        let shared = Arc::clone(&self.0);
        if starts && thread::spawn("pagefold-timers", move || shared.run()).is_err() {
            self.0.have_no_thread();
        }
        Timer { shared: Arc::clone(&self.0), key }
    }
}

impl Shared {
    fn run(&self) {
        let mut table = self.table.lock();
        loop {
            let now = table.start.map_or(Duration::ZERO, Instant::elapsed).as_nanos() as u64;
            let mut due = table.tasks.split_off(&(now.saturating_add(1), 0));
            std::mem::swap(&mut due, &mut table.tasks);
            if !due.is_empty() {
                drop(table);
                wake_all(due.into_values()); // TIMER-1
                table = self.table.lock();
                continue;
            }
            let rest = table.tasks.first_key_value().map(|((at, _), _)| Duration::from_nanos(at - now));
            if let Some(rest) = rest {
                self.changed.wait_for(&mut table, rest);
                continue;
            }
            self.changed.wait_for(&mut table, IDLE);
            if table.tasks.is_empty() {
                table.has_thread = false;
                return;
            }
        }
    }

    fn have_no_thread(&self) {
        let mut table = self.table.lock();
        table.has_thread = false;
        let tasks = std::mem::take(&mut table.tasks);
        drop(table);
        wake_all(tasks.into_values());
    }
}

impl Timer {
    /// Returns whether the timer's time has come. If not, registers `waker` in place of the
    /// previous one.
    pub(crate) fn is_over(&self, waker: &Waker) -> bool {
        let mut waker = waker.clone();
        let mut table = self.shared.table.lock();
        let is_over = match table.tasks.get_mut(&self.key) {
            Some(known) => {
                std::mem::swap(known, &mut waker);
                false
            }
            None => true,
        };
        drop(table); // TIMER-1: before `waker`.
        is_over
    }
}

impl Drop for Timer {
    fn drop(&mut self) {
        let mut table = self.shared.table.lock();
        let waker = table.tasks.remove(&self.key);
        drop(table); // TIMER-1: before the waker.
        drop(waker);
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;
    use crate::patience::WATCHDOG;
    use sync::atomic::{AtomicUsize, Ordering};

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// The thread sleeps until the earliest time. Regression: a task that came later, with an
    /// earlier time, was woken only with the other task.
    #[test]
    fn each_task_is_woken_once_and_an_earlier_one_isnt_overlooked() {
        let (timers, count) = (Timers::default(), std::sync::Arc::new(Count(AtomicUsize::new(0))));
        let waker = Waker::from(std::sync::Arc::clone(&count));
        let late = timers.after(Duration::from_secs(3600), &waker);
        let soon: Vec<_> = (0..10).map(|n| timers.after(Duration::from_millis(20 - 2 * n), &waker)).collect();
        let dropped = timers.after(Duration::from_millis(1), &waker);
        drop(dropped);
        let start = Instant::now();
        while !soon.iter().all(|timer| timer.is_over(&waker)) || count.0.load(Ordering::SeqCst) < 10 {
            assert!(start.elapsed() < WATCHDOG, "a task isn't woken");
            thread::sleep(Duration::from_millis(1));
        }
        assert!(!late.is_over(&waker));
        drop((late, soon));
        let start = Instant::now();
        while timers.0.table.lock().has_thread {
            assert!(start.elapsed() < WATCHDOG, "the thread stays");
            timers.0.changed.notify_one();
            thread::sleep(Duration::from_millis(1));
        }
    }
}
