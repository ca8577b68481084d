//! Linux's spinlock since 4.2, without the short cut for a second waiter: each waiter spins on a
//! line of its own (Mellor-Crummey and Scott, "Algorithms for scalable synchronization on
//! shared-memory multiprocessors", TOCS 1991).

use sync::atomic::{AtomicU32, Ordering, spin_hint};

/// No task. Tasks are numbered from 1 here.
const NOBODY: u32 = 0;

#[derive(Default)]
#[repr(align(64))]
struct Place {
    next: AtomicU32,
    waits: AtomicU32,
}

/// The lock. Its last waiter is on a line of its own.
pub(crate) struct QueuedSpinlock {
    last: Last,
    places: Box<[Place]>,
}

#[derive(Default)]
#[repr(align(64))]
struct Last(AtomicU32);

impl QueuedSpinlock {
    pub(crate) fn new(tasks: usize) -> Self {
        Self { last: Last::default(), places: (0..=tasks).map(|_| Place::default()).collect() }
    }

    /// Has `inside` run by one task at a time.
    pub(crate) fn with<R>(&self, task: usize, inside: impl FnOnce() -> R) -> R {
        let me = task + 1;
        let mine = &self.places[me];
        // Relaxed: no other task knows the place yet.
        mine.next.store(NOBODY, Ordering::Relaxed);
        mine.waits.store(1, Ordering::Relaxed);
        // AcqRel: the place is ready; pairs with the Release of the task that leaves the lock free.
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
        // Acquire, here and below, pairs with the Release of the task that queued up behind.
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
