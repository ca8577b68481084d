//! What the threads of a run share with each other and with the one that watches them.

use std::time::Duration;

use sync::Arc;
use sync::atomic::{AtomicBool, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};

/// One of these for each run.
#[derive(Debug)]
pub(crate) struct Shared {
    /// All are to end.
    stop: AtomicBool,
    /// By number of the thread.
    progress: Box<[Progress]>,
    /// Threads that haven't ended.
    running: Mutex<usize>,
    /// `running` has become 0.
    all_ended: Condvar,
}

/// What a thread has done, for the live line: on a cache line pair of its own. Relaxed throughout:
/// figures that are exact enough at any age.
#[derive(Debug, Default)]
#[repr(align(128))]
pub(crate) struct Progress {
    ops: AtomicU64,
    writes: AtomicU64,
    /// Since it was last looked at.
    worst_write_ns: AtomicU64,
}

impl Progress {
    /// The thread has done so many operations.
    pub(crate) fn ops(&self, ops: u64) {
        self.ops.store(ops, Ordering::Relaxed);
    }

    /// One more write, which took so long.
    pub(crate) fn wrote(&self, latency: Duration) {
        // No read-modify-write: the thread alone counts up, and a worst one that is lost to the
        // live line isn't lost to the report.
        self.writes.store(self.writes.load(Ordering::Relaxed) + 1, Ordering::Relaxed);
        let ns = u64::try_from(latency.as_nanos()).unwrap_or(u64::MAX);
        if ns > self.worst_write_ns.load(Ordering::Relaxed) {
            self.worst_write_ns.store(ns, Ordering::Relaxed);
        }
    }
}

impl Shared {
    /// For so many threads.
    pub(crate) fn new(threads: usize) -> Self {
        Self {
            stop: AtomicBool::new(false),
            progress: (0..threads).map(|_| Progress::default()).collect(),
            running: Mutex::new(threads),
            all_ended: Condvar::default(),
        }
    }

    /// Where thread `number` counts.
    pub(crate) fn progress(&self, number: usize) -> &Progress {
        &self.progress[number]
    }

    /// Operations done by all threads, and the writes among them.
    pub(crate) fn ops(&self) -> (u64, u64) {
        let load = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        self.progress.iter().fold((0, 0), |sum, thread| (sum.0 + load(&thread.ops), sum.1 + load(&thread.writes)))
    }

    /// The longest that a write took since the last call.
    pub(crate) fn take_worst_write_ns(&self) -> u64 {
        self.progress.iter().map(|thread| thread.worst_write_ns.swap(0, Ordering::Relaxed)).max().unwrap_or(0)
    }

    /// Waits for the threads to end, for `time` at most. Says whether some are still running.
    pub(crate) fn wait(&self, time: Duration) -> bool {
        let mut running = self.running.lock();
        if *running > 0 {
            self.all_ended.wait_for(&mut running, time);
        }
        *running > 0
    }

    /// Has all threads end after their current operation.
    pub(crate) fn stop(&self) {
        // Relaxed: nothing is published with it.
        self.stop.store(true, Ordering::Relaxed);
    }

    /// Whether they are to end.
    pub(crate) fn stopping(&self) -> bool {
        self.stop.load(Ordering::Relaxed)
    }
}

/// Counts a thread as ended when it is dropped, also if that is because of a panic.
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
