//! Timers for tasks. One thread wakes all tasks. It exists only while tasks wait, and for a second
//! after that.
//!
//! - TIMER-1. A task's waker is added to the table when its timer is created. The waker is removed
//!   when the timer is dropped, or by the thread when the timer's time comes. The table changes
//!   only under the lock. Wakers are called and dropped without the lock, because they may run any
//!   code.
//! - TIMER-2. The thread never sleeps past the earliest time in the table: inserting an earlier
//!   time wakes the thread. When the table has been empty for a second, the thread ends. It records
//!   its end under the lock (`has_thread`), so a timer that is inserted after that starts a new
//!   thread.
//! - TIMER-3. A timer may end without having measured its full time. [`Timer::measured`] reports
//!   the two reasons. [`Nothing`](Measured::Nothing): no thread could be started, so the timer
//!   ended before its time. [`StoppedFor`](Measured::StoppedFor): the thread woke a task much later
//!   than it should have, because the process was stopped or got no CPU. `late` is the sum of these
//!   delays.

use std::collections::BTreeMap;
use std::task::Waker;

use sync::Arc;
use sync::lock::{Condvar, Mutex};
use sync::tasks::wake_all;
use sync::thread;
use sync::time::{Duration, Instant};

/// How long the thread waits with an empty table before it ends.
const IDLE: Duration = Duration::from_secs(1);
/// A thread that wakes later than it should by more than this got no CPU in the meantime, or its
/// process was stopped.
const STOPPED_MIN: Duration = Duration::from_millis(50);

/// Returns whether a wait, which began at `began` and should have taken `asked`, took so much
/// longer that the process must have been stopped, or got no CPU.
pub(crate) fn was_stopped(asked: Duration, began: Instant) -> bool {
    began.elapsed().saturating_sub(asked) > STOPPED_MIN
}

/// Returns how much of a wait that began at `began` counts as waiting for a device: nothing, if the
/// process was stopped or got no CPU; otherwise all of it. `asked` is the timeout of the wait.
pub(crate) fn counted_wait(asked: Option<Duration>, began: Instant) -> Duration {
    let waited = began.elapsed();
    if asked.is_some_and(|asked| was_stopped(asked, began)) { Duration::ZERO } else { waited }
}

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
    /// The sum of the delays with which the thread woke tasks. Delays of at most `STOPPED_MIN`
    /// don't count.
    late: Duration,
}

type Key = (u64, u64);

/// How much of its time a timer has measured, once it is over.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Measured {
    /// The timer's time has passed.
    Whole,
    /// The process was stopped meanwhile, or got no CPU, for this part of the time.
    StoppedFor(Duration),
    /// Nothing, because no thread could be started.
    Nothing,
}

/// A task's timer. Once it is dropped, it doesn't wake the task.
pub(crate) struct Timer {
    shared: Arc<Shared>,
    key: Key,
    /// `late` when the timer was created.
    late_before: Duration,
}

impl Timers {
    /// Creates a timer that wakes the task after `time`; at once if the thread can't be started.
    pub(crate) fn after(&self, time: Duration, waker: &Waker) -> Timer {
        let waker = waker.clone();
        let mut table = self.0.table.lock();
        let now = table.start.get_or_insert_with(Instant::now).elapsed();
        table.made += 1;
        let late_before = table.late;
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
        Timer { shared: Arc::clone(&self.0), key, late_before }
    }
}

impl Table {
    /// Returns the time now, in nanoseconds.
    fn now(&self) -> u64 {
        self.start.map_or(Duration::ZERO, Instant::elapsed).as_nanos() as u64
    }
}

impl Shared {
    fn run(&self) {
        let mut table = self.table.lock();
        loop {
            let now = table.now();
            let mut due = table.tasks.split_off(&(now.saturating_add(1), 0));
            std::mem::swap(&mut due, &mut table.tasks);
            if let Some(((at, _), _)) = due.first_key_value() {
                let late = Duration::from_nanos(now - at);
                table.late += if late > STOPPED_MIN { late } else { Duration::ZERO };
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

    /// Returns how much of its time the timer has measured (TIMER-3). The timer must be over.
    pub(crate) fn measured(&self) -> Measured {
        let table = self.shared.table.lock();
        let stopped_for = table.late.saturating_sub(self.late_before);
        if !stopped_for.is_zero() {
            Measured::StoppedFor(stopped_for)
        } else if table.now() < self.key.0 {
            Measured::Nothing
        } else {
            Measured::Whole
        }
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
    use crate::patience::eventually;
    use sync::atomic::{AtomicUsize, Ordering};

    struct Count(AtomicUsize);

    impl std::task::Wake for Count {
        fn wake(self: std::sync::Arc<Self>) {
            self.0.fetch_add(1, Ordering::SeqCst);
        }
    }

    /// Waits until a timer is over.
    fn await_end(timer: &Timer) {
        eventually("a timer doesn't end", || timer.is_over(Waker::noop()));
    }

    /// A regression: a device's time limit counted time in which the process was stopped. Here the
    /// timers' thread begins late.
    #[test]
    fn a_timer_tells_that_the_process_was_stopped() {
        let timers = Timers::default();
        timers.0.table.lock().has_thread = true;
        let stopped = timers.after(Duration::from_millis(5), Waker::noop());
        thread::sleep(Duration::from_millis(5) + 2 * STOPPED_MIN);
        let shared = Arc::clone(&timers.0);
        thread::spawn("pagefold-timers", move || shared.run()).unwrap();
        await_end(&stopped);
        let measured = stopped.measured();
        assert!(matches!(measured, Measured::StoppedFor(time) if time > STOPPED_MIN), "{measured:?}");
    }

    /// A regression: if the thread couldn't be started, the timer of a device's time limit was over
    /// at once, and the device counted as silent.
    #[test]
    fn a_timer_without_a_thread_tells_nothing() {
        let timers = Timers::default();
        timers.0.table.lock().has_thread = true;
        let timer = timers.after(Duration::from_secs(3600), Waker::noop());
        assert!(!timer.is_over(Waker::noop()));
        timers.0.have_no_thread();
        assert!(timer.is_over(Waker::noop()));
        assert_eq!(timer.measured(), Measured::Nothing);
        assert!(!timers.0.table.lock().has_thread);
    }

    /// The thread sleeps until the earliest time. Regression: a task that was added later, but with
    /// an earlier time, was woken only together with the first task.
    #[test]
    fn each_task_is_woken_once_and_an_earlier_one_isnt_overlooked() {
        let (timers, count) = (Timers::default(), std::sync::Arc::new(Count(AtomicUsize::new(0))));
        let waker = Waker::from(std::sync::Arc::clone(&count));
        let late = timers.after(Duration::from_secs(3600), &waker);
        let soon: Vec<_> = (0..10).map(|n| timers.after(Duration::from_millis(20 - 2 * n), &waker)).collect();
        let dropped = timers.after(Duration::from_millis(1), &waker);
        drop(dropped);
        let are_over = || soon.iter().all(|timer| timer.is_over(&waker)) && count.0.load(Ordering::SeqCst) >= 10;
        eventually("a task isn't woken", are_over);
        assert!(!late.is_over(&waker));
        drop((late, soon));
        eventually("the thread stays", || {
            timers.0.changed.notify_one();
            !timers.0.table.lock().has_thread
        });
    }
}
