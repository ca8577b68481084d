//! A spinlock like the kernel's: a task that finds it taken joins a queue, and spins on a line of
//! its own until it is the first in the queue.
//!
//! After J. Mellor-Crummey and M. Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors" (TOCS 1991). In that paper, the first task in the queue holds the lock. Here it
//! has to take a separate word first, as in Linux's `qspinlock`.

use sync::atomic::{AtomicBool, AtomicUsize, Ordering, spin_hint};

/// The lock, with what else its owner keeps on its line.
#[derive(Default)]
#[repr(align(64))]
pub(crate) struct QueuedSpinlock {
    taken: AtomicBool,
    /// One more than the last task in the queue, or 0.
    last: AtomicUsize,
}

/// The places in queues. Each task needs only one place, because it waits for one lock at a time.
pub(crate) struct Places(Box<[Place]>);

#[derive(Default)]
#[repr(align(64))]
struct Place {
    waiting: AtomicBool,
    /// One more than the next task in the queue, or 0.
    next: AtomicUsize,
}

impl Places {
    pub(crate) fn new(tasks: usize) -> Self {
        let places: Box<[Place]> = (0..tasks).map(|_| Place::default()).collect();
        places.iter().for_each(name);
        Self(places)
    }
}

/// Gives a line the name `spinlock` in the profile: a lock's line, or the place at which a task
/// waits. The region in the profile says which lock it is.
fn name<T>(_line: &T) {
    #[cfg(pagefold_manycore)]
    manycore::profile::name(_line, "spinlock");
}

impl QueuedSpinlock {
    /// Gives its line a name in the profile.
    pub(crate) fn name(&self) {
        name(self);
    }

    /// Calls `f` with the lock taken.
    pub(crate) fn with<R>(&self, places: &Places, task: usize, f: impl FnOnce() -> R) -> R {
        if !self.try_take() {
            self.queue(places, task);
        }
        let result = f();
        // Release pairs with the Acquire in `try_take`.
        self.taken.store(false, Ordering::Release);
        result
    }

    fn try_take(&self) -> bool {
        self.taken.compare_exchange(false, true, Ordering::Acquire, Ordering::Relaxed).is_ok()
    }

    fn queue(&self, Places(places): &Places, task: usize) {
        let mine = &places[task];
        // Relaxed: published by the swap.
        mine.waiting.store(true, Ordering::Relaxed);
        mine.next.store(0, Ordering::Relaxed);
        // AcqRel: publishes the place, and finds the one before.
        let before = self.last.swap(task + 1, Ordering::AcqRel);
        if let Some(before) = before.checked_sub(1) {
            // Release pairs with the Acquire below, in the one before.
            places[before].next.store(task + 1, Ordering::Release);
            while mine.waiting.load(Ordering::Acquire) {
                spin_hint();
            }
        }
        while self.taken.load(Ordering::Relaxed) || !self.try_take() {
            spin_hint();
        }
        if self.last.compare_exchange(task + 1, 0, Ordering::AcqRel, Ordering::Relaxed).is_ok() {
            return;
        }
        loop {
            // Acquire pairs with the Release above.
            if let Some(next) = mine.next.load(Ordering::Acquire).checked_sub(1) {
                // Release: the next one may use its place again.
                return places[next].waiting.store(false, Ordering::Release);
            }
            spin_hint();
        }
    }
}
