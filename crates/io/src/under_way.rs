//! Detects devices that have stopped answering: counts each device's tasks in progress, and records
//! when the device last made progress.

use sync::atomic::{AtomicU32, AtomicU64, Ordering};
use sync::time::{Duration, Instant};

/// A device's tasks in progress. All accesses are Relaxed: the result is an estimate.
#[derive(Debug)]
pub struct UnderWay {
    tasks: AtomicU32,
    /// When the device last made progress, or was given a task while it had no other: nanoseconds
    /// since `start`.
    progress_ns: AtomicU64,
    start: Instant,
}

/// A task of a device, in progress until this is dropped.
#[derive(Debug)]
pub struct Task<'a>(&'a UnderWay);

impl Default for UnderWay {
    fn default() -> Self {
        Self { tasks: AtomicU32::new(0), progress_ns: AtomicU64::new(0), start: Instant::now() }
    }
}

impl UnderWay {
    /// Records that the device was given a task.
    pub fn begin(&self) -> Task<'_> {
        if self.tasks.fetch_add(1, Ordering::Relaxed) == 0 {
            self.progressed();
        }
        Task(self)
    }

    /// Records that the device has made progress.
    pub fn progressed(&self) {
        self.progress_ns.store(self.now_ns(), Ordering::Relaxed);
    }

    /// Returns when the device last made progress, or was given a task while it had no other. The
    /// result is the time from the creation of this value until then.
    #[must_use]
    pub fn last_progress(&self) -> Duration {
        Duration::from_nanos(self.progress_ns.load(Ordering::Relaxed))
    }

    /// Returns whether the device has made no progress for longer than `time`, although it had
    /// tasks for all of that time.
    #[must_use]
    pub fn has_stopped_for(&self, time: Duration) -> bool {
        self.tasks.load(Ordering::Relaxed) > 0 && self.start.elapsed().saturating_sub(self.last_progress()) > time
    }

    fn now_ns(&self) -> u64 {
        self.start.elapsed().as_nanos() as u64
    }
}

impl Drop for Task<'_> {
    fn drop(&mut self) {
        self.0.progressed();
        self.0.tasks.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(all(test, not(any(pagefold_loom, pagefold_manycore))))]
mod tests {
    use super::*;

    #[test]
    fn a_device_has_stopped_if_it_has_something_to_do_and_does_nothing() {
        let device = UnderWay::default();
        assert!(!device.has_stopped_for(Duration::ZERO), "it has nothing to do");
        let task = device.begin();
        assert!(!device.has_stopped_for(Duration::from_secs(1000)));
        while !device.has_stopped_for(Duration::ZERO) {}
        drop(task);
        assert!(!device.has_stopped_for(Duration::ZERO), "it has done all");
    }

    #[test]
    fn what_is_given_to_a_device_that_has_stopped_does_not_count_as_done() {
        let device = UnderWay::default();
        // A clock may be coarse: wait until its reading differs from 0.
        while device.now_ns() == 0 {}
        let first = device.begin();
        device.progress_ns.store(0, Ordering::Relaxed);
        let second = device.begin();
        assert_eq!(device.progress_ns.load(Ordering::Relaxed), 0);
        drop(second);
        assert_ne!(device.progress_ns.load(Ordering::Relaxed), 0);
        drop(first);
    }
}
