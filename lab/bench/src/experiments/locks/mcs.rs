//! A queue lock: each task waits at a line of its own until the task before it passes the lock on
//! (J. Mellor-Crummey and M. Scott, "Algorithms for scalable synchronization on shared-memory
//! multiprocessors", TOCS 1991).

use sync::atomic::{AtomicU32, Ordering, spin_hint};

use super::words::Words;
use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "mcs",
    about: "a queue lock of Mellor-Crummey and Scott; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, new),
};

/// No task. Tasks are numbered from 1 here.
const NOBODY: u32 = 0;

#[derive(Default)]
#[repr(align(64))]
struct Place {
    next: AtomicU32,
    waits: AtomicU32,
}

/// The lock. Its last waiter is on a line of its own.
struct Queue {
    last: Last,
    places: Box<[Place]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Last(AtomicU32);

impl Queue {
    fn new(tasks: usize) -> Self {
        Self { last: Last::default(), places: (0..=tasks).map(|_| Place::default()).collect() }
    }

    /// Has `inside` run by one task at a time.
    fn with<R>(&self, task: usize, inside: impl FnOnce() -> R) -> R {
        let me = task + 1;
        let mine = &self.places[me];
        // Relaxed: no other task knows the place yet.
        mine.next.store(NOBODY, Ordering::Relaxed);
        mine.waits.store(1, Ordering::Relaxed);
        // Release publishes this task's place, which must be initialised before the next task links
        // itself to it. Acquire pairs with the Release of the task that left the lock free.
        let before = self.last.0.swap(me as u32, Ordering::AcqRel);
        if before != NOBODY {
            // Release pairs with the Acquire loads of `next` below: the place waits.
            self.places[before as usize].next.store(me as u32, Ordering::Release);
            // Acquire pairs with the Release below.
            while mine.waits.load(Ordering::Acquire) != 0 {
                spin_hint();
            }
        }
        let result = inside();
        // Acquire, here and below, pairs with the Release with which the next task links itself.
        if mine.next.load(Ordering::Acquire) == NOBODY {
            // Release pairs with the swap above.
            let free = self.last.0.compare_exchange(me as u32, NOBODY, Ordering::Release, Ordering::Relaxed);
            if free.is_ok() {
                return result;
            }
            while mine.next.load(Ordering::Acquire) == NOBODY {
                spin_hint();
            }
        }
        let next = mine.next.load(Ordering::Acquire);
        // Release pairs with the Acquire of the task that waits.
        self.places[next as usize].waits.store(0, Ordering::Release);
        result
    }
}

struct Queued {
    lock: Queue,
    words: Words,
}

/// A lock for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    Queued { lock: Queue::new(tasks), words: Words::default() }
}

impl Shared for Queued {
    fn operate(&self, task: usize, _: u64) {
        self.lock.with(task, || self.words.change());
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.words.read(), uses);
    }
}
