//! How the background reclaimer is asked (`reclaimer`).

use sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};
use sync::lock::{Condvar, Mutex};

/// How the thread is talked to.
#[derive(Debug, Default)]
pub(crate) struct Doorbell {
    asked: AtomicBool,
    /// The group that asked last. Others that are short ask again with the next frame that they
    /// take.
    last: AtomicU32,
    stop: Mutex<bool>,
    rung: Condvar,
    wakeups: AtomicU64,
}

impl Doorbell {
    /// Asks the reclaimer to look at what is short, in this group or the whole budget.
    pub(crate) fn ring(&self, group: u32) {
        // Relaxed, and looked at first: a hint that is repeated with every frame taken while
        // something is short.
        if !self.asked.load(Ordering::Relaxed) && !self.asked.swap(true, Ordering::Relaxed) {
            self.last.store(group, Ordering::Relaxed);
            let _stop = self.stop.lock();
            self.rung.notify_one();
        }
    }

    /// Waits until asked. False when it is time to end.
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

    /// The group that asked last.
    pub(crate) fn last(&self) -> u32 {
        self.last.load(Ordering::Relaxed)
    }
}
