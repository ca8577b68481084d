//! A ticket lock: tasks are served in the order in which they come.

use sync::atomic::{AtomicU32, Ordering, spin_hint};

use super::words::Words;
use super::{Shared, measure};
use crate::scaling::experiment::Scheme;

/// The scheme.
pub(super) const SCHEME: Scheme = Scheme {
    name: "ticket",
    about: "a ticket lock; each operation changes both words",
    hidden: false,
    measure: |job| measure(job, new),
};

#[derive(Default)]
#[repr(align(64))]
struct Next(AtomicU32);

#[derive(Default)]
#[repr(align(64))]
struct Serving(AtomicU32);

#[derive(Default)]
struct Ticket {
    next: Next,
    serving: Serving,
    words: Words,
}

/// A lock for any number of tasks.
pub(super) fn new(_: usize) -> impl Shared {
    Ticket::default()
}

impl Shared for Ticket {
    fn operate(&self, _: usize, _: u64) {
        // Relaxed: a ticket orders nothing.
        let ticket = self.next.0.fetch_add(1, Ordering::Relaxed);
        // Acquire pairs with the Release below.
        while self.serving.0.load(Ordering::Acquire) != ticket {
            spin_hint();
        }
        self.words.change();
        // Release pairs with the Acquire of the next holder.
        self.serving.0.store(ticket.wrapping_add(1), Ordering::Release);
    }

    #[cfg(test)]
    fn check(&self, uses: u64) {
        assert_eq!(self.words.read(), uses);
    }
}
