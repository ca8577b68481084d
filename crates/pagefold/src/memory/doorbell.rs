//! How threads wake the background reclaimer (`reclaimer`).

use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};

/// The requests to the background reclaimer.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    asked: AtomicBool,
    /// The group of the last request that was accepted. While a request is pending, further
    /// requests are dropped. A group that is still short of pages repeats its request with the next
    /// frame that it takes.
    last: AtomicU32,
    stop: Mutex<bool>,
    rung: Condvar,
    wakeups: AtomicU64,
}

impl Doorbell {
    /// Asks the reclaimer to look at the reserves of this group and of the whole budget.
    pub(crate) fn ring(&self, group: u32) {
        // Relaxed: the request is a hint, repeated with every frame that is taken while a reserve
        // is short. The load comes first because a swap takes the cache line from other CPUs.
        if !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed) {
            self.last.store(group, Ordering::Relaxed);
            let _stop = self.stop.lock();
            self.rung.notify_one();
        }
    }

    /// Waits for a request. Returns false if the thread has to end.
    pub(crate) fn wait(&self) -> bool {
        let mut stop = self.stop.lock();
        while !*stop && !self.asked.swap(false, Ordering::Relaxed) {
            self.rung.wait(&mut stop);
        }
        self.wakeups.fetch_add(1, Ordering::Relaxed);
        !*stop
    }

    pub(crate) fn wakeups(&self) -> u64 {
        self.wakeups.load(Ordering::Relaxed)
    }

    pub(crate) fn stop(&self) {
        *self.stop.lock() = true;
        self.rung.notify_one();
    }

    /// The group of the last request.
    pub(crate) fn last(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }
}
