//! The state that the threads of a run share with each other and with the thread that watches them.

use std::time::Duration;

use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};

/// There is one for each run.
#[derive(Debug)]
pub(crate) struct Shared {
    /// All threads must end.
    stop: AtomicBool,
    /// Indexed by the thread's number.
    progress: Box<[Progress]>,
    /// Number of threads that haven't ended.
    running: Mutex<usize>,
    /// Notified when `running` becomes 0.
    all_ended: Condvar,
}

/// The counts of one thread, which the live line shows during a run. They are aligned to a pair of
/// cache lines, to avoid false sharing. All accesses are Relaxed: the live line may show slightly
/// old figures.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    ops: AtomicU64,
    writes: AtomicU64,
    /// The longest write since the value was last taken.
    worst_write_ns: AtomicU64,
}

impl Progress {
    /// Sets the number of operations that the thread has completed.
    pub(crate) fn ops(&self, ops: u64) {
        self.ops.store(ops, Ordering::Relaxed);
    }

    /// Adds `count` writes that took `latency` together.
    pub(crate) fn wrote(&self, count: u64, latency: Duration) {
        // Only this thread increments the count, so no read-modify-write is needed. The check and
        // the store below aren't one atomic operation, so the live line may miss a worst latency.
        // The report doesn't miss it.
        self.writes.store(self.writes.load(Ordering::Relaxed) + count, Ordering::Relaxed);
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if ns > self.worst_write_ns.load(Ordering::Relaxed) {
            self.worst_write_ns.store(ns, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// Creates the state for `threads` threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            progress: (0..threads).map(|_| Progress::default()).collect(),
            running: Mutex::new(threads),
            all_ended: Condvar::default(),
        }
    }

    /// Returns the counts of thread `number`.
    pub(crate) fn progress(&self, number: usize) -> &Progress {
        &self.progress[number]
    }

    /// Returns the number of operations of all threads, and of the writes among them.
    pub(crate) fn ops(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.progress.iter().fold((0, 0), |sum, thread| (sum.0 + load(&thread.ops), sum.1 + load(&thread.writes)))
    }

    /// Returns the longest latency of a write since the last call.
    pub(crate) fn take_worst_write_ns(&self) -> u64 {
        self.progress.iter().map(|thread| thread.worst_write_ns.swap(0, Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Waits until the threads have ended, for `time` at most. Returns whether some are still
    /// running.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut running = self.running.lock();
        if *running > 0 {
            self.all_ended.wait_for(&mut running, time);
        }
        *running > 0
    }

    /// Makes all threads end after their current operation.
    pub(crate) fn stop(&self) {
        // Relaxed: the flag publishes no other data.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Returns whether the threads must end.
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Counts a thread as ended when it is dropped, also after a panic.
pub(crate) struct Ended(pub(crate) Arc<Shared>);

impl Drop for Ended {
    fn drop(&mut self) {
        let mut running = self.0.running.lock();
        *running -= 1;
        if *running == 0 {
            self.0.all_ended.notify_all();
        }
    }
}
