//! A queue lock without links: each task waits at the place of the task before it. After its turn,
//! it takes over that place for its next turn (T. Craig, "Building FIFO and priority-queuing spin
//! locks from atomic swap", 1993; Magnusson, Landin and Hagersten, "Queue locks on cache coherent
//! multiprocessors", IPPS 1994).

use sync::atomic::{AtomicBool, AtomicUsize, Ordering, spin_hint};

use super::words::Words;
use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "clh",
    about: "a queue lock of Craig, Landin and Hagersten; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, new),
};

/// True from when its owner queues up until its owner is done.
#[derive(Default)]
#[repr(align(64))]
struct Place(AtomicBool);

/// The number of a place.
#[repr(align(64))]
struct Number(AtomicUsize);

struct Queue {
    /// One more than there are tasks.
    places: Box<[Place]>,
    /// The place of each task's next turn. Only the task uses it.
    mine: Box<[Number]>,
    /// The place of the last task in the queue.
    last: Number,
    words: Words,
}

/// A lock for so many tasks.
pub(super) fn new(tasks: usize) -> impl Shared {
    let number = |place| Number(AtomicUsize::new(place));
    Queue {
        places: (0..=tasks).map(|_| Place::default()).collect(),
        mine: (0..tasks).map(number).collect(),
        last: number(tasks),
        words: Words::default(),
    }
}

impl Shared for Queue {
    fn operate(&self, task: usize, _: u64) {
        // Relaxed, here and at the end: only this task uses it.
        let mine = self.mine[task].0.load(Ordering::Relaxed);
        // Relaxed: the swap publishes the place.
        self.places[mine].0.store(true, Ordering::Relaxed);
        // Release publishes this task's place, which is true. Acquire pairs with the Release of the
        // previous task's swap, which published the place that this task waits at.
        let before = self.last.0.swap(mine, Ordering::AcqRel);
        // Acquire pairs with the Release below.
        while self.places[before].0.load(Ordering::Acquire) {
            spin_hint();
        }
        self.words.change();
        // Release pairs with the Acquire above, in the next task.
        self.places[mine].0.store(false, Ordering::Release);
        // The task before has left its place, and no other task waits there.
        self.mine[task].0.store(before, Ordering::Relaxed);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.words.read(), uses);
    }
}
